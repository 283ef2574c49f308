"""CLIP-Dissect's scoring for people who have CLIP, or any other encoder of images and texts: from their embeddings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax, logsumexp

from neurotest import checks
from neurotest.arrays import read_npy
from neurotest.errors import BadInput
from neurotest.reading import read_text, user_path
from neurotest.registry import register
from neurotest.scan import scan
from neurotest.semantics.describe.material import Describer, Material, content_hash
from neurotest.semantics.descriptions import NeuronDescription
from neurotest.semantics.exemplars import Exemplars

Floats = NDArray[np.float64]
SMALLEST = 1e-7  # keeps a logarithm finite
SURE = (0.998, 0.97)  # how probably a neuron's first and last top image belong to what excites it


@register(
    "describer",
    "clip-dissect",
    paper="CLIP-Dissect (Oikarinen and Weng, ICLR 2023), softWPMI",
    cost="one pass over the data; the embeddings are the user's to make (no CLIP weights come with neurotest)",
    differs="The encoder is left to the user: any image and text embeddings of one space will do. Similarities are computed per "
    "layer, in 64-bit numbers.",
)
class ClipDissect(checks.Settings, Describer):
    """Names the word whose images a neuron prefers, by soft weighted pointwise mutual information.

    images: a .npy with one embedding per input of the data, in its order; texts: a .npy with one per word; words: a text file
    with one word per line. The score is the mutual information; at `least` or below the neuron is unknown.
    """

    opens: ClassVar[tuple[str, ...]] = ("images", "texts", "words")

    images: str
    texts: str
    words: str
    top: int = checks.setting(100, "100 is usual")
    sharpness: float = 10.0
    weight: float = 1.0
    least: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.sharpness > 0 or not self.weight >= 0:
            raise BadInput(
                "out-of-range", "sharpness", f"sharpness={self.sharpness}, weight={self.weight}: expected numbers above 0."
            )

    @property
    def signature(self) -> str:
        return f"{self!r} {content_hash(self.images, self.texts, self.words)}"

    def describe(self, material: Material) -> Iterator[NeuronDescription]:
        vocabulary = _words(self.words)
        images, texts = _embeddings(self.images, "images"), _embeddings(self.texts, "texts")
        if len(images) != len(source := material.source):
            raise BadInput(
                "wrong-count", "images", f"{self.images} has {len(images)} embeddings for {len(source)} inputs of {source.what}."
            )
        if len(texts) != len(vocabulary):
            raise BadInput(
                "wrong-count", "texts", f"{self.texts} has {len(texts)} embeddings for {len(vocabulary)} words of {self.words}."
            )
        if images.shape[1] != texts.shape[1]:
            raise BadInput(
                "conflict",
                "embeddings",
                f"images have {images.shape[1]} dimensions, texts {texts.shape[1]}: they must come from one encoder.",
            )
        exemplars = Exemplars(material.layers, min(self.top, len(images)), samples=1, pool="mean")
        scan(material.target, material.source, [exemplars], batch=material.safe_batch(), progress=material.progress)
        similarity = images @ texts.T
        for layer in material.layers:
            index, _ = exemplars.top(layer.name)
            score = _soft_wpmi(similarity, index, sharpness=self.sharpness, weight=self.weight)  # (neurons, words)
            for neuron, best in enumerate(score.argmax(axis=1)):
                if score[neuron, best] > self.least:
                    yield NeuronDescription(layer.name, neuron, vocabulary[best], float(score[neuron, best]), "clip-dissect")


def _soft_wpmi(similarity: Floats, index: NDArray[np.int64], *, sharpness: float = 10.0, weight: float = 1.0) -> Floats:
    """(neurons, words) mutual information from similarities (images, words) and each neuron's top images (neurons, top).

    An image belongs to what excites the neuron with a probability that falls from the first towards the last (SURE);
    log p(word | neuron) is compared with the logarithm of its mean over the neurons.
    """
    top = index.shape[1]
    by_image = np.exp(log_softmax(sharpness * similarity, axis=1))  # (images, words) p(word | image)
    belongs = SURE[0] - np.arange(top) * (SURE[0] - SURE[1]) / top
    step = max(1, (1 << 24) // max(1, top * similarity.shape[1]))
    parts = []
    for start in range(0, len(index), step):
        mixed = 1 + belongs[None, :, None] * (by_image[index[start : start + step]] - 1)
        parts.append(np.log(mixed + SMALLEST).sum(axis=1))
    evidence = np.concatenate(parts)
    common = logsumexp(evidence, axis=0) - np.log(len(evidence))
    return evidence - weight * common  # type: ignore[no-any-return]


def _embeddings(file: str, what: str) -> Floats:
    """Embeddings (n, d) of length 1 each."""
    vectors = read_npy(user_path(file, f"{what}={file}"), f"{what}={file}")
    if vectors.ndim != 2 or not len(vectors) or vectors.dtype.kind != "f":
        raise BadInput("wrong-type", what, f"{what}={file}: expected a .npy with one embedding per row, floating point.")
    vectors = vectors.astype(np.float64)
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    if not (usable := np.isfinite(length[:, 0]) & (length[:, 0] > 0)).all():
        raise BadInput("not-finite", what, f"{what}={file}: row {int(np.argmin(usable))} is zero or not finite.")
    return vectors / length  # type: ignore[no-any-return]


def _words(file: str) -> list[str]:
    """A vocabulary: one word or phrase per line, each once."""
    text = read_text(user_path(file, f"words={file}"), "a file with one word per line")
    lines = [" ".join(line.split()) for line in text.splitlines() if line.strip()]
    if not lines:
        raise BadInput("empty", "words", f"words={file} is empty: expected one word per line.")
    if twice := [line for number, line in enumerate(lines) if line in lines[:number]]:
        raise BadInput("duplicate", "words", f"words={file}: {twice[0]!r} stands twice; give each word once.")
    return lines
