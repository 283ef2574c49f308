"""Verification: whether a voice is the one it claims to be, by the cosine of embeddings and a threshold."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from neurotest.data.source import Source
from neurotest.errors import BadInput
from neurotest.evaluate.features import Extractor
from neurotest.stats.bootstrap import wilson
from neurotest.target import Target

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Verification:
    """eer: the share of errors at the threshold where both kinds are equally frequent, over all trials. The threshold itself is
    set on every other input; with it, so many of the others' own claims are rejected and of foreign ones accepted."""

    eer: float
    threshold: float
    rejected: int
    genuine: int
    accepted: int
    impostors: int

    @property
    def rejection(self) -> tuple[float, float, float]:
        """Share and 95 % interval."""
        return wilson(self.rejected, self.genuine)

    @property
    def acceptance(self) -> tuple[float, float, float]:
        return wilson(self.accepted, self.impostors)


def verify(target: Target, enrolled: Source, claims: Source) -> Verification:
    """Every input of `claims` claims to be each of the classes in turn.

    A class is the mean of the embeddings (the last hidden layer, brought to length 1) of its inputs in `enrolled`.
    """
    if enrolled.labels is None or claims.labels is None:
        raise BadInput(
            "no-labels", "data", f"verification needs labels: {(enrolled if enrolled.labels is None else claims).what} has none."
        )
    extract = Extractor.of("target", target)
    known, new = (unit(extract(target, source).values) for source in (enrolled, claims))
    classes = np.unique(enrolled.labels)
    if len(classes) < 2:
        raise BadInput("too-few", "classes", f"verification needs two classes at least: {enrolled.what} has {len(classes)}.")
    models = unit(np.stack([known[enrolled.labels == label].mean(axis=0) for label in classes]))
    scores = new @ models.T  # (claims, classes)
    own = claims.labels[:, None] == classes[None, :]
    half = np.arange(len(new)) % 2 == 0
    _, threshold = equal_error(scores[half][own[half]], scores[half][~own[half]])
    rest, mine = scores[~half], own[~half]
    return Verification(
        equal_error(scores[own], scores[~own])[0], threshold, int((rest[mine] < threshold).sum()), int(mine.sum()),
        int((rest[~mine] >= threshold).sum()), int((~mine).sum()),
    )  # fmt: skip


def unit(values: Floats) -> Floats:
    """Rows of length 1."""
    return np.asarray(values / np.maximum(np.linalg.norm(values, axis=1, keepdims=True), 1e-12))


def equal_error(genuine: Floats, impostors: Floats) -> tuple[float, float]:
    """The equal error rate and its threshold: claims are accepted from there on. Where no threshold makes both shares equal, it
    is the mean of them at the one where they differ least."""
    if not len(genuine) or not len(impostors):
        raise BadInput("too-few", "claims", "an equal error rate needs claims of both kinds, true and false.")
    own, others = np.sort(genuine), np.sort(impostors)
    places = np.unique(np.concatenate([own, others]))
    places = np.append(places, np.nextafter(places[-1], np.inf))
    rejected = np.searchsorted(own, places, side="left") / len(own)
    accepted = 1 - np.searchsorted(others, places, side="left") / len(others)
    best = int(np.abs(rejected - accepted).argmin())
    return float(rejected[best] + accepted[best]) / 2, float(places[best])
