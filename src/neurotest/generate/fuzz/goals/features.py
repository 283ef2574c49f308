"""What forecasts are made from: the logits of an input, its label, and what the network or the pixels show beside them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from neurotest.measure.traces import array
from neurotest.target import Probe, Target, Trace, Want

if TYPE_CHECKING:
    from torch import Tensor

    from neurotest.generate.fuzz.seeds import Seeds

COMPONENTS = 32  # principal components of hidden neurons or pixels, and of logits where there are many classes
MANY_CLASSES = 32  # classes beyond which logits are forecast by their principal components
FITTED = 1000  # seeds that components are fitted on, at most
SEEDS_AT_ONCE = 250
HIDDEN = Want(layers="last_hidden", neuron="unit", inputs=True)
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class _Components:
    """The first principal components of some rows, not whitened; scaled together so that the first has spread 1."""

    mean: Floats  # (values,)
    axes: Floats  # (values, components), orthonormal
    scale: float

    @classmethod
    def fit(cls, rows: NDArray[Any], most: int = COMPONENTS) -> _Components:
        """By the eigenvectors of the rows' products: there may be far more values than rows."""
        rows = np.asarray(rows[:FITTED], dtype=np.float64)
        mean = rows.mean(axis=0)
        centred = rows - mean
        values, vectors = np.linalg.eigh(centred @ centred.T)
        first = np.argsort(-values, kind="stable")[:most]
        first = first[values[first] > 1e-9 * max(float(values.max()), 1e-12)]
        axes = (centred.T @ vectors[:, first]) / np.sqrt(values[first])
        spread = float(np.sqrt(values[first[0]] / len(rows))) if len(first) else 1.0
        return cls(mean, axes, spread)

    def __call__(self, rows: NDArray[Any]) -> Floats:
        """(n, components)"""
        return np.asarray((np.asarray(rows, dtype=np.float64) - self.mean) @ self.axes / self.scale)

    def __len__(self) -> int:
        return int(self.axes.shape[1])


class Beside:
    """What features are made from beside logits and label; this base class: nothing."""

    name = "logits"
    wants: tuple[Want, ...] = ()

    def values(self, x: Tensor, trace: Trace, true: NDArray[np.int64]) -> NDArray[Any] | None:
        """(n, values) of inputs (n, ...) with these expected classes (n,)."""
        return None


class Neurons(Beside):
    """The neurons of the last hidden layer."""

    name = "neurons"
    wants = (HIDDEN,)

    def values(self, x: Tensor, trace: Trace, true: NDArray[np.int64]) -> NDArray[Any]:
        return hidden(trace)


class Pixels(Beside):
    """The input itself: the control of everything that looks inside."""

    name = "pixels"

    def values(self, x: Tensor, trace: Trace, true: NDArray[np.int64]) -> NDArray[Any]:
        return array(x.flatten(1))


KINDS: dict[str, type[Beside]] = {kind.name: kind for kind in (Neurons, Pixels, Beside)}


def hidden(trace: Trace) -> NDArray[Any]:
    """(n, neurons) of the last hidden layer."""
    (values,) = trace[HIDDEN].values()
    return np.nan_to_num(array(values))


def _of_seeds(target: Target, seeds: Seeds, beside: Beside) -> NDArray[Any] | None:
    """(seeds, values), by one pass before the campaign, as other guides make over their data."""
    if type(beside) is Beside:
        return None
    parts = []
    with Probe(target, *beside.wants) as probe:
        for start in range(0, len(seeds), SEEDS_AT_ONCE):
            x = target.prepare(np.ascontiguousarray(seeds.x[start : start + SEEDS_AT_ONCE]))
            parts.append(beside.values(x, probe(x), seeds.expected[start : start + SEEDS_AT_ONCE]))
    return np.concatenate([part for part in parts if part is not None])


class Features:
    """[1, logits, label, components]: fitted on the seeds, then the same for every input of a campaign."""

    def __init__(self, target: Target, seeds: Seeds, beside: Beside) -> None:
        logits = np.nan_to_num(seeds.roots.logits.astype(np.float64))
        self.classes = seeds.classes
        centred = logits - logits.mean(axis=1, keepdims=True)
        self.sigma = float(centred.std()) or 1.0
        self.basis = _Components.fit(centred / self.sigma) if self.classes > MANY_CLASSES else None
        values = _of_seeds(target, seeds, beside)
        self.beside = None if values is None else _Components.fit(values)
        self.seeds = self(logits, seeds.expected, values)  # (seeds, width)

    @property
    def outputs(self) -> int:
        """How many numbers stand for the logits."""
        return self.classes if self.basis is None else len(self.basis)

    def coordinates(self, logits: NDArray[Any]) -> Floats:
        """(n, outputs): centred logits in units of their spread over the seeds, or their components where there are many."""
        centred = np.asarray(logits, dtype=np.float64)
        centred = (centred - centred.mean(axis=1, keepdims=True)) / self.sigma
        return centred if self.basis is None else np.asarray((centred - self.basis.mean) @ self.basis.axes)

    def __call__(self, logits: NDArray[Any], labels: NDArray[np.int64], values: NDArray[Any] | None) -> Floats:
        """(n, width)"""
        parts = [np.ones((len(logits), 1)), self.coordinates(logits)]
        if self.classes <= MANY_CLASSES:
            parts.append(np.eye(self.classes)[labels])
        if self.beside is not None and values is not None:
            parts.append(self.beside(values))
        return np.concatenate(parts, axis=1)


class Standing:
    """Which hidden neurons stand out: farthest from the seeds' mean, in units of their spread."""

    def __init__(self, target: Target, seeds: Seeds, top: int) -> None:
        self.top, self.count = top, 0
        self.seeds = np.zeros((len(seeds), 0), dtype=np.int64)
        if top:
            values = _of_seeds(target, seeds, Neurons())
            assert values is not None
            self.mean, spread = values.mean(axis=0), values.std(axis=0)
            self.spread = np.where(spread > 0, spread, np.inf)
            self.count = values.shape[1]
            self.seeds = self._of(values)

    def _of(self, values: NDArray[Any]) -> NDArray[np.int64]:
        return np.argsort(-np.abs((values - self.mean) / self.spread), axis=1, kind="stable")[:, : self.top]

    def __call__(self, trace: Trace) -> NDArray[np.int64]:
        """(n, top)"""
        if not self.top:
            return np.zeros((len(trace.logits), 0), dtype=np.int64)
        return self._of(hidden(trace))
