"""What is kept of scores that are too many to sort: the best, a sample, moments. Two halves merged equal the whole."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from neurotest.stats.moments import Moments

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
SAMPLE = 10_000  # scores that quantiles are taken from
QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)
_MIX = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


class Best:
    """The k best of scores with their positions, highest first and of equals the earlier; a fixed random sample of all."""

    def __init__(self, k: int) -> None:
        self.k = k
        self.moments = Moments(1)
        self.scores: Floats = np.empty(0)
        self.positions: Ints = np.empty(0, dtype=np.int64)
        self._keys: NDArray[np.uint64] = np.empty(0, dtype=np.uint64)
        self._sample: Floats = np.empty(0)

    def update(self, positions: Ints, scores: Floats) -> None:
        if len(scores):
            self.moments.update(np.asarray(scores, dtype=np.float64)[:, None])
            self._rank(positions, scores)
            self._take(_hashes(positions), np.asarray(scores, dtype=np.float64))

    def merge(self, other: Best) -> None:
        self.moments.merge(other.moments)
        self._rank(other.positions, other.scores)
        self._take(other._keys, other._sample)

    def _rank(self, positions: Ints, scores: Floats) -> None:
        every, whose = np.concatenate([self.scores, scores]), np.concatenate([self.positions, positions])
        order = np.lexsort((whose, -every))[: self.k]
        self.scores, self.positions = every[order], whose[order]

    def _take(self, keys: NDArray[np.uint64], values: Floats) -> None:
        """The inputs whose positions hash lowest are the sample, whoever saw them when."""
        every, held = np.concatenate([self._keys, keys]), np.concatenate([self._sample, values])
        if len(every) > SAMPLE:
            least = np.argpartition(every, SAMPLE)[:SAMPLE]
            every, held = every[least], held[least]
        self._keys, self._sample = every, held

    @property
    def count(self) -> int:
        return self.moments.count

    def quantiles(self) -> dict[str, float]:
        """Exact at both ends and where there are no more scores than the sample holds."""
        if not self.count:
            return {}
        values = np.quantile(self._sample, QUANTILES, method="inverted_cdf")
        values[0], values[-1] = self.moments.low[0], self.moments.high[0]
        return {f"{q:g}": float(value) for q, value in zip(QUANTILES, values, strict=True)}

    def to_dict(self) -> dict[str, Any]:
        mean = float(self.moments.mean[0]) if self.count else None
        return {"count": self.count, "mean": mean, "quantiles": self.quantiles()}


def _hashes(positions: Ints) -> NDArray[np.uint64]:
    """A number per position that looks random and depends on nothing else."""
    with np.errstate(over="ignore"):
        mixed = (positions.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * _MIX[0]
        mixed = (mixed ^ (mixed >> np.uint64(27))) * _MIX[1]
    return mixed ^ (mixed >> np.uint64(31))
