"""Exact nearest neighbours in float64, in chunks, by matrix products."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
CHUNK = 1 << 22  # distances held at once: 32 MB


def squared_distances(left: Floats, right: Floats) -> Floats:
    """|l - r|^2 of every pair: (n, m). What cancels when points are far from the origin is restored by a common shift."""
    if not len(left) or not len(right):
        return np.zeros((len(left), len(right)))
    centre = right[0]
    a, b = left - centre, right - centre
    products = a @ b.T
    products *= -2
    products += np.einsum("ij,ij->i", a, a)[:, None]
    products += np.einsum("ij,ij->i", b, b)
    squared: Floats = np.maximum(products, 0, out=products)
    return squared


def nearest_other(points: Floats) -> Floats:
    """Distance of each point to the nearest other: (n,)."""
    distances = np.full(len(points), np.inf)
    step = max(1, CHUNK // max(1, len(points)))
    for start in range(0, len(points), step):
        apart = squared_distances(points[start : start + step], points)
        rows = np.arange(len(apart))
        apart[rows, start + rows] = np.inf
        distances[start : start + step] = np.sqrt(apart.min(axis=1))
    return distances


class Points:
    """Points that are searched again and again: what does not depend on the query is computed once."""

    def __init__(self, points: Floats) -> None:
        self.points = np.ascontiguousarray(points, dtype=np.float64)  # (n, d)
        self._centre = self.points.mean(axis=0)
        centred = self.points - self._centre
        self._double: Floats = np.ascontiguousarray(-2 * centred.T)  # (d, n)
        self._squares: Floats = np.einsum("ij,ij->i", centred, centred)

    def __len__(self) -> int:
        return len(self.points)

    def nearest(self, queries: Floats) -> tuple[Floats, NDArray[np.int64]]:
        """The nearest is searched by products, its distance taken from the difference itself."""
        index = np.empty(len(queries), dtype=np.int64)
        step = max(1, CHUNK // len(self))
        for start in range(0, len(queries), step):
            part = (queries[start : start + step] - self._centre) @ self._double
            part += self._squares
            index[start : start + step] = part.argmin(axis=1)
        apart = queries - self.points[index]
        return np.sqrt(np.einsum("ij,ij->i", apart, apart)), index
