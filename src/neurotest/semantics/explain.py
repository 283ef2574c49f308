"""Two inputs side by side: which neuron decided in each layer, what it looks for, where, and where the paths part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from neurotest.audio import spectrogram_size
from neurotest.devices import exact
from neurotest.semantics.exemplars import enlarge, globs, has_map, maps, places
from neurotest.semantics.guidance import Semantics
from neurotest.stats.comparison import holm
from neurotest.target import Layer, Probe, Want

LEAST_FAULTS = 3  # faults a substitution must be seen in to be listed


@dataclass(frozen=True, eq=False)
class _Side:
    """The neuron that decided for one of the two: its words, what passed it, its rank in both, where it was active."""

    neuron: int
    description: str
    score: float
    ranks: tuple[int, int]  # among the layer's neurons for the seed and for the fault, 1 is first
    map: NDArray[np.float32] | None  # (height, width) of the input it decided for; None: the layer has no maps

    def to_dict(self) -> dict[str, Any]:
        return {"neuron": self.neuron, "description": self.description, "conductance": self.score, "ranks": list(self.ranks)}


@dataclass(frozen=True, eq=False)
class _LayerPair:
    """One layer."""

    layer: str
    seed: _Side
    fault: _Side
    completeness: tuple[float, float] | None = None  # what share of the class's gain the layer's neurons add up to

    @property
    def same(self) -> bool:
        return self.seed.neuron == self.fault.neuron

    def to_dict(self) -> dict[str, Any]:
        whole = None if self.completeness is None else list(self.completeness)
        sides = {"seed": self.seed.to_dict(), "fault": self.fault.to_dict()}
        return {"layer": self.layer, "same": self.same, **sides, "completeness": whole}


@dataclass(frozen=True, eq=False)
class PathPair:
    """A seed and a fault, layer by layer."""

    layers: tuple[_LayerPair, ...]
    predicted: tuple[str, str]
    confidence: tuple[float, float]
    attributed: str  # the class whose logit was attributed for both
    similarity: float
    tau: float | None
    texts: tuple[str, str]

    @property
    def parts(self) -> str | None:
        """The first layer in which another neuron decides."""
        return next((pair.layer for pair in self.layers if not pair.same), None)

    def to_dict(self) -> dict[str, Any]:
        predicted, confidence, paths = (
            dict(zip(("seed", "fault"), both, strict=True)) for both in (self.predicted, self.confidence, self.texts)
        )
        return {
            "predicted": predicted, "confidence": confidence, "attributed": self.attributed, "similarity": self.similarity,
            "tau": self.tau, "parts": self.parts, "paths": paths, "layers": [pair.to_dict() for pair in self.layers],
        }  # fmt: skip


def compare(ready: Semantics, seed: Tensor, fault: Tensor, classes: Sequence[str]) -> PathPair:
    """Explain a fault (1, *shape) beside its seed (1, *shape), both in bounds."""
    reference = ready.reader.references(seed)
    changed = ready.reader.mutants(fault, reference)
    both = torch.cat([seed, fault])
    attribution = ready.reader.critic(both, torch.from_numpy(reference.classes).to(both.device).repeat(2))
    chosen = {
        layer.name: [int(paths.units[0, number, 0]) for paths in (reference, changed)]
        for number, layer in enumerate(ready.layers)
    }
    shown_maps = _maps(ready, both, chosen)
    complete = attribution.completeness()
    pairs = []
    for layer in ready.layers:
        scores = attribution.scores[layer.name].detach()
        sides = []
        for who, unit in enumerate(chosen[layer.name]):
            ranks = tuple(int((scores[i] > scores[i, unit]).sum()) + 1 for i in range(2))
            shown = shown_maps[layer.name][who] if layer.name in shown_maps else None
            text = ready.bank[layer.name, unit].text
            sides.append(_Side(unit, text, float(scores[who, unit]), (ranks[0], ranks[1]), shown))
        gained = complete.get(layer.name)
        shares = (float(gained[0]), float(gained[1])) if gained is not None and bool(gained.isfinite().all()) else None
        pairs.append(_LayerPair(layer.name, sides[0], sides[1], shares))  # no shares where the class gained nothing
    probs = exact(attribution.logits).softmax(1)
    best = probs.argmax(1).tolist()
    confidence = float(probs[0, best[0]]), float(probs[1, best[1]])
    similarity = float(ready.similarity(reference, changed)[0])
    texts = tuple(paths.text(0, ready.layers, ready.bank, classes) for paths in (reference, changed))
    attributed, predicted = classes[int(reference.classes[0])], (classes[best[0]], classes[best[1]])
    return PathPair(tuple(pairs), predicted, confidence, attributed, similarity, ready.tau, texts)  # type: ignore[arg-type]


def _maps(ready: Semantics, x: Tensor, chosen: Mapping[str, Sequence[int]]) -> dict[str, NDArray[np.float32]]:
    """Per layer that has maps, that of one neuron for each of two inputs, at image size; of audio, over its spectrogram."""
    audio = ready.target.preprocess.rate is not None
    image = spectrogram_size(x.shape[-1]) if audio else tuple(x.shape[2:])
    layers = [layer for layer in ready.layers if has_map(layer, (1, *image))]
    if not layers or (x.ndim != 4 and not audio):
        return {}
    want = Want(layers=globs(layers), keep="map")
    with Probe(ready.target, want) as probe:
        trace = probe(x)
    grown = {}
    for layer in layers:
        flat = maps(layer, trace[want][layer.name].float())[torch.arange(len(x)), list(chosen[layer.name])]  # (2, places)
        grown[layer.name] = enlarge(flat.unsqueeze(1), places(layer), image)[:, 0].cpu().numpy()
    # Low tones are first in a network and below in a spectrogram.
    return {name: values[..., ::-1, :].copy() for name, values in grown.items()} if audio else grown


@dataclass(frozen=True)
class Substitution:
    """Neuron `before` decided for the seed, `after` for the mutant: how often among faults and among others.

    lift: how many times more often among faults, with a 95 % interval. sure: whether Fisher's exact test, corrected by Holm
    for all substitutions that were looked at, says so.
    """

    layer: str
    before: int
    after: int
    words: tuple[str, str]
    faults: int
    others: int
    lift: float
    low: float
    high: float
    p: float
    sure: bool

    def to_dict(self) -> dict[str, Any]:
        return {**vars(self), "words": list(self.words)}


def substitutions(
    ready: Semantics, before: NDArray[np.int64], after: NDArray[np.int64], faults: NDArray[np.bool_], least: int = LEAST_FAULTS
) -> list[Substitution]:
    """Those that occur more often among faults than among others, surest first. before, after: neurons (n, layers)."""
    from scipy.stats import fisher_exact

    n, m = int(faults.sum()), int((~faults).sum())
    rows: list[tuple[Layer, int, int, int, int]] = []
    for number, layer in enumerate(ready.layers):
        moved = before[:, number] != after[:, number]
        pairs = np.stack([before[:, number], after[:, number]], 1)
        distinct, where = np.unique(pairs[moved], axis=0, return_inverse=True)
        where = where.reshape(-1)
        hit = np.bincount(where[faults[moved]], minlength=len(distinct))
        miss = np.bincount(where[~faults[moved]], minlength=len(distinct))
        rows += [(layer, int(a), int(b), int(h), int(o)) for (a, b), h, o in zip(distinct, hit, miss, strict=True) if h >= least]
    if not rows:
        return []
    p = [float(fisher_exact([[h, n - h], [o, m - o]], alternative="greater")[1]) for _, _, _, h, o in rows]
    frequent = []
    for (layer, a, b, h, o), raw, corrected in zip(rows, p, holm(p), strict=True):
        lift, low, high = _risk_ratio(h, n, o, m)
        words = (ready.bank[layer.name, a].text, ready.bank[layer.name, b].text)
        if lift > 1:
            frequent.append(Substitution(layer.name, a, b, words, h, o, lift, low, high, raw, bool(corrected < 0.05)))
    return sorted(frequent, key=lambda s: (s.p, -s.faults))


def _risk_ratio(hit: int, n: int, other: int, m: int) -> tuple[float, float, float]:
    """How many times more often, with its 95 % interval; half a case is added to each count, so that 0 does no harm."""
    a, b = (hit + 0.5) / (n + 1), (other + 0.5) / (m + 1)
    spread = np.sqrt(1 / (hit + 0.5) - 1 / (n + 1) + 1 / (other + 0.5) - 1 / (m + 1))
    ratio = a / b
    return float(ratio), float(ratio * np.exp(-1.96 * spread)), float(ratio * np.exp(1.96 * spread))
