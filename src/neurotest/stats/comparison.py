"""Comparing samples: effect sizes, corrections for many tests, correlations with something held fixed."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from neurotest.errors import BadInput

Floats = NDArray[np.float64]


def sample(name: str, values: ArrayLike, least: int = 1) -> Floats:
    """One row of finite numbers."""
    row = np.asarray(values, dtype=np.float64)
    if row.ndim != 1 or row.size < least or not np.isfinite(row).all():
        raise BadInput(
            "wrong-shape", name, f"{name}: values of shape {row.shape}; expected one row of at least {least} finite numbers."
        )
    return row


def ranks(values: ArrayLike) -> Floats:
    """1 for the smallest; ties share the mean of their ranks."""
    row = np.asarray(values, dtype=np.float64)
    _, inverse, counts = np.unique(row, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    shared: Floats = (last - (counts - 1) / 2)[inverse]
    return shared


def a12(left: ArrayLike, right: ArrayLike) -> float:
    """Vargha and Delaney: the chance that a value of `left` exceeds one of `right`, ties counting half; 0.5 is no difference.

    >>> a12([2, 3], [1, 2])
    0.875
    """
    a, b = sample("left", left), sample("right", right)
    together = ranks(np.concatenate([a, b]))
    return float((together[: len(a)].sum() / len(a) - (len(a) + 1) / 2) / len(b))


def magnitude(effect: float) -> str:
    """What an A12 is called: negligible, small (.56), medium (.64) or large (.71), in either direction."""
    size = abs(effect - 0.5) + 1e-9  # 0.71 - 0.5 is a little less than 0.21
    return "large" if size >= 0.21 else "medium" if size >= 0.14 else "small" if size >= 0.06 else "negligible"


def holm(p: ArrayLike) -> Floats:
    """Holm's corrected p-values for several tests at once, in the order given; NaN (no test) stays NaN and does not count.

    >>> holm([0.01, 0.04, 0.03]).tolist()
    [0.03, 0.06, 0.06]
    """
    row = np.asarray(p, dtype=np.float64)
    tests = np.flatnonzero(~np.isnan(row))
    if row.ndim != 1 or (tests.size and not ((row[tests] >= 0) & (row[tests] <= 1)).all()):
        raise BadInput("out-of-range", "p", f"p-values of shape {row.shape}: expected one row of numbers from 0 to 1.")
    order = tests[np.argsort(row[tests], kind="stable")]
    corrected = row.copy()
    corrected[order] = np.minimum(1, np.maximum.accumulate(row[order] * np.arange(len(order), 0, -1)))
    return corrected


def pearson(x: ArrayLike, y: ArrayLike) -> float:
    """Linear correlation; NaN where one side is constant (there is nothing to correlate)."""
    a, b = sample("x", x, 2), sample("y", y, 2)
    if len(a) != len(b):
        raise BadInput("wrong-count", "values", f"{len(a)} values against {len(b)}: expected as many of one as of the other.")
    # All values equal: checked before centring, which leaves rounding errors that correlate with anything.
    if np.ptp(a) == 0 or np.ptp(b) == 0:
        return math.nan
    a, b = a - a.mean(), b - b.mean()
    return float(a @ b / math.sqrt((a @ a) * (b @ b)))


def spearman(x: ArrayLike, y: ArrayLike) -> float:
    """Correlation of ranks, ties averaged."""
    return pearson(ranks(sample("x", x, 2)), ranks(sample("y", y, 2)))


def within(x: ArrayLike, y: ArrayLike, level: ArrayLike) -> float:
    """Correlation given a level (lambda, a layer, ...): each level's own mean is taken off both sides first.

    This is the partial correlation with one dummy per level. NaN where nothing varies within any level.
    """
    a, b = sample("x", x, 2), sample("y", y, 2)
    groups = np.asarray(level)
    if len(a) != len(b) or groups.shape != a.shape:
        raise BadInput(
            "wrong-count",
            "levels",
            f"{len(a)}, {len(b)} and {groups.size} values: expected as many levels as values on each side.",
        )
    _, inverse = np.unique(groups, return_inverse=True)
    sizes = np.bincount(inverse)
    left, right = (v - (np.bincount(inverse, v) / sizes)[inverse] for v in (a, b))
    scale = 1e-12 * max(1.0, float(np.abs(a).max()), float(np.abs(b).max()))
    if np.abs(left).max() <= scale or np.abs(right).max() <= scale:
        return math.nan
    return pearson(left, right)
