"""Per-neuron count, range, mean and spread that can be merged: two halves joined equal the whole."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from neurotest.errors import BadInput

Floats = NDArray[np.float64]
ARRAYS = ("low", "high", "mean", "m2")  # what is kept per neuron


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
