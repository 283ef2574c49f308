"""Which neurons to drive up: DLFuzz's four strategies."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from neurotest.generate.differential.neurons import Covered, Neurons, weighted
from neurotest.jobs.parts import Arrays

STRATEGIES = ("often", "rarely", "weight", "threshold")
HEAVY = 0.1  # the share of neurons with the largest weights

Numbers = NDArray[np.float64]
Chosen = NDArray[np.int64]


class Selector(Protocol):
    """Chooses m neurons for every image, and learns from the result."""

    def choose(self, counts: NDArray[np.int64], scaled: Numbers, uniforms: Numbers, m: int) -> Chosen: ...

    def learn(self, covered: Covered, failed: NDArray[np.bool_]) -> None: ...

    def arrays(self) -> Arrays: ...

    def restore(self, arrays: Arrays) -> None: ...


class Mixed:
    """DLFuzz's strategies; several share the m neurons, as even as possible, the first ones getting the rest."""

    def __init__(self, names: tuple[str, ...], neurons: Neurons, threshold: float) -> None:
        self.names, self.threshold = names, threshold
        weights = neurons.weights
        heavy = np.argsort(-weights, kind="stable")[: max(1, int(np.ceil(HEAVY * len(weights))))]
        self.heavy = np.zeros(len(weights))
        self.heavy[heavy] = 1.0

    def choose(self, counts: NDArray[np.int64], scaled: Numbers, uniforms: Numbers, m: int) -> Chosen:
        parts, left = [], m
        for number, name in enumerate(self.names):
            share = int(np.ceil(left / (len(self.names) - number)))
            left -= share
            if share:
                parts.append(self._one(name, counts, scaled, uniforms, share))
        return np.concatenate(parts, axis=1)

    def _one(self, name: str, counts: NDArray[np.int64], scaled: Numbers, uniforms: Numbers, m: int) -> Chosen:
        if name == "threshold":
            distance = np.abs(np.nan_to_num(scaled, nan=np.inf) - self.threshold)
            return np.argsort(distance, axis=1, kind="stable")[:, :m]
        weights = {"often": counts, "rarely": counts.max() - counts, "weight": self.heavy}[name].astype(np.float64)
        if not weights.any():  # nothing is covered yet
            weights = np.ones_like(weights)
        return weighted(weights[None], uniforms, m)

    def learn(self, covered: Covered, failed: NDArray[np.bool_]) -> None:
        return None

    def arrays(self) -> Arrays:
        return {}

    def restore(self, arrays: Arrays) -> None:
        return None
