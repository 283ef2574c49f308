"""How close inputs are to training data, and to each other, in the space of features."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from neurotest.errors import BadInput
from neurotest.stats.neighbours import CHUNK, Points, squared_distances

Floats = NDArray[np.float64]


def own_nearest(points: Floats) -> Floats:
    """Distance of each point to the nearest other one: (n,)."""
    if len(points) < 2:
        raise BadInput("too-few", "inputs", f"{len(points)} inputs: nearest others need at least 2.")
    out = np.empty(len(points))
    step = max(1, CHUNK // len(points))
    for start in range(0, len(points), step):
        apart = squared_distances(points[start : start + step], points)
        apart[np.arange(len(apart)), np.arange(start, start + len(apart))] = np.inf
        out[start : start + step] = np.sqrt(apart.min(axis=1))
    return out


@dataclass(frozen=True, eq=False)
class Manifold:
    """Training features, and the distance to the nearest other that only 1 % of them exceed."""

    points: Points
    limit: float

    @classmethod
    def of(cls, train: Floats, *, quantile: float = 0.99) -> Manifold:
        if len(train) < 100:
            raise BadInput(
                "too-few", "train", f"train: {len(train)} inputs cannot tell what is far from training data; give at least 100."
            )
        if not 0 < quantile < 1:
            raise BadInput("out-of-range", "quantile", f"quantile={quantile}: expected a number between 0 and 1 (0.99 is usual).")
        limit = float(np.quantile(own_nearest(train), quantile))
        if limit == 0:
            raise BadInput(
                "duplicate", "train", "train: nearly all inputs have an exact copy among the others: leave the copies out."
            )
        return cls(Points(train), limit)

    def distance(self, features: Floats) -> Floats:
        """To the nearest training input, in units of the limit: above 1 is outside."""
        return np.asarray(self.points.nearest(features)[0] / self.limit)


@dataclass(frozen=True)
class Spread:
    """How various a suite is. vendi: the effective number of different inputs, from 1 to n, by cosine similarity."""

    nearest: float  # mean distance to the nearest other input
    pairwise: float  # root mean square distance of two inputs
    vendi: float


def spread(features: Floats) -> Spread:
    """Variety of features (n, d)."""
    x = np.asarray(features, dtype=np.float64)
    near = own_nearest(x)
    n = len(x)
    centred = x - x.mean(0)
    pairwise = float(np.sqrt(2 * np.square(centred).sum() / (n - 1)))
    norm = np.linalg.norm(x, axis=1, keepdims=True)
    unit = np.divide(x, norm, out=np.zeros_like(x), where=norm > 0)
    # Eigenvalues of the n x n similarities are those of the smaller of the two products.
    product = unit @ unit.T if n <= unit.shape[1] else unit.T @ unit
    values = np.linalg.eigvalsh(product)
    values = values[values > 1e-12 * max(1.0, float(values.max()))]
    shares = values / values.sum() if values.size else np.ones(1)
    return Spread(float(near.mean()), pairwise, float(np.exp(-(shares * np.log(shares)).sum())))
