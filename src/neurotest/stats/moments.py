"""What is kept of too many values: count, range, mean, spread, the best, a sample. Two halves merged equal the whole."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neurotest.errors import BadInput

Floats = NDArray[np.float64]
ARRAYS = ("low", "high", "mean", "m2")  # what is kept per neuron
Ints = NDArray[np.int64]
SAMPLE = 10_000  # scores that quantiles are taken from
QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)


class Moments:
    """Moments of `neurons` columns in float64, joined by Chan's formula.

    A value that is NaN or infinite makes that neuron's numbers NaN or infinite: it is never silently left out.
    Before the first update the range is empty (low = inf, high = -inf) and the mean 0.
    """

    def __init__(self, neurons: int) -> None:
        if neurons < 1:
            raise BadInput("out-of-range", "neurons", f"neurons={neurons}: expected an integer >= 1.")
        self.count = 0
        self.low: Floats = np.full(neurons, np.inf)
        self.high: Floats = np.full(neurons, -np.inf)
        self.mean: Floats = np.zeros(neurons)
        self.m2: Floats = np.zeros(neurons)

    @property
    def neurons(self) -> int:
        return self.mean.size

    @property
    def variance(self) -> Floats:
        """Mean squared distance from the mean (divided by the count, as profiles use it); NaN before the first update."""
        return self.m2 / self.count if self.count else np.full(self.neurons, np.nan)

    @property
    def std(self) -> Floats:
        deviation: Floats = np.sqrt(self.variance)
        return deviation

    def update(self, values: NDArray[np.floating]) -> None:
        """Take in a batch of inputs."""
        values = np.asarray(values)  # (n, neurons)
        if values.ndim != 2 or values.shape[1] != self.neurons:
            raise BadInput(
                "wrong-shape",
                "values",
                f"values have shape {values.shape}: expected (inputs, {self.neurons}), one column per neuron.",
            )
        if len(values) == 0:
            return
        with np.errstate(invalid="ignore", over="ignore"):
            wide = np.array(values, dtype=np.float64)  # a copy: it is centred in place
            mean = wide.mean(axis=0)
            wide -= mean
            m2 = np.einsum("ij,ij->j", wide, wide)
            self._join(len(values), values.min(axis=0), values.max(axis=0), mean, m2)

    def merge(self, other: Moments) -> None:
        """Take in what another accumulated over other inputs."""
        if other.neurons != self.neurons:
            raise BadInput(
                "conflict", "merge", f"cannot merge moments of {other.neurons} neurons into moments of {self.neurons}."
            )
        if other.count:
            with np.errstate(invalid="ignore", over="ignore"):
                self._join(other.count, other.low, other.high, other.mean, other.m2)

    def _join(self, count: int, low: NDArray[np.floating], high: NDArray[np.floating], mean: Floats, m2: Floats) -> None:
        total = self.count + count
        apart = mean - self.mean
        self.low = np.minimum(self.low, low).astype(np.float64)
        self.high = np.maximum(self.high, high).astype(np.float64)
        if self.count == 0:  # into an empty one the other is taken as it is, without rounding
            self.mean, self.m2 = mean.copy(), m2.copy()
        else:
            self.mean = self.mean + apart * (count / total)
            self.m2 = self.m2 + m2 + apart * apart * (self.count * count / total)
        self.count = total

    def state_dict(self) -> dict[str, NDArray[np.generic]]:
        """Everything, as arrays (safetensors and npz take it as it is)."""
        return {"count": np.array([self.count], dtype=np.int64), **{name: getattr(self, name).copy() for name in ARRAYS}}

    @classmethod
    def load(cls, state: Mapping[str, NDArray[np.generic]]) -> Moments:
        """What `state_dict` gave, checked."""
        if missing := sorted({"count", *ARRAYS} - set(state)):
            raise BadInput("damaged", "moments", f"the saved moments lack {', '.join(missing)}: compute the profile again.")
        arrays = {name: np.asarray(state[name]) for name in ARRAYS}
        shapes = {array.shape for array in arrays.values()}
        count = np.asarray(state["count"]).ravel()
        if len(shapes) != 1 or len(next(iter(shapes))) != 1 or count.size != 1 or int(count[0]) < 0:
            raise BadInput(
                "damaged",
                "shapes",
                f"the saved moments do not fit together (shapes {sorted(shapes)}): compute the profile again.",
            )
        moments = cls(arrays["mean"].size)
        moments.count = int(count[0])
        for name, array in arrays.items():
            setattr(moments, name, array.astype(np.float64))
        return moments


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
            self._take(hashed(positions.astype(np.uint64)), np.asarray(scores, dtype=np.float64))

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


def hashed(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """For each number another one that looks random and depends on nothing else (splitmix64)."""
    with np.errstate(over="ignore"):
        mixed = (numbers + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))
