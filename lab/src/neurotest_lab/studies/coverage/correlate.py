"""Correlations with what belongs to them: p-value, an interval that resamples what belongs together, levels held fixed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from neurotest import rng
from neurotest.errors import BadInput
from neurotest.stats.comparison import pearson, ranks, sample

DRAWS = 1000
WEAK, STRONG = 0.3, 0.7  # as the coverage study names them


@dataclass(frozen=True)
class Correlation:
    """A coefficient, the p-value that takes all values as independent, and the interval that does not. NaN: nothing varies."""

    r: float
    p: float
    low: float
    high: float
    n: int
    clusters: int

    @property
    def strength(self) -> str:
        """weak (below .3), moderate or strong (from .7), whatever the direction; undefined where nothing varies.

        The value is rounded to two digits first, as it is printed: a table that says .70 says strong.
        """
        if math.isnan(self.r):
            return "undefined"
        size = round(abs(self.r), 2)
        return "weak" if size < WEAK else "moderate" if size < STRONG else "strong"

    def supports(self, direction: int = 1, *, level: float = 0.05) -> bool:
        """Whether a strong relation in the hoped direction is supported: strong, the right sign, p at most `level`."""
        return self.strength == "strong" and self.r * direction > 0 and self.p <= level

    def to_dict(self) -> dict[str, Any]:
        fields = {**vars(self), "strength": self.strength}
        return {k: None if isinstance(v, float) and math.isnan(v) else v for k, v in fields.items()}


def correlate(
    x: ArrayLike,
    y: ArrayLike,
    *,
    level: ArrayLike | None = None,
    clusters: ArrayLike | None = None,
    by_rank: bool = False,
    draws: int = DRAWS,
    seed: int = 0,
) -> Correlation:
    """Pearson's correlation (Spearman's with `by_rank`) of two rows of numbers.

    level: what is held fixed; each level's own mean is taken off both sides (partial correlation with one dummy per level).
    clusters: values with the same name were made together and are resampled together; without, each stands for itself.
    """
    a, b = sample("x", x, 2), sample("y", y, 2)
    if len(a) != len(b):
        raise BadInput("wrong-count", "values", f"{len(a)} values against {len(b)}: expected as many of one as of the other.")
    if by_rank:
        a, b = ranks(a), ranks(b)
    levels = np.zeros(len(a), dtype=np.int64) if level is None else _codes("level", level, len(a))
    groups = np.arange(len(a)) if clusters is None else _codes("clusters", clusters, len(a))
    r = pearson(a, b) if level is None else within(a, b, levels)
    count = int(groups.max()) + 1
    if math.isnan(r):
        return Correlation(r, math.nan, math.nan, math.nan, len(a), count)
    p = p_value(r, len(a) - 2 - int(levels.max()))
    low, high = _interval(a, b, levels, groups, draws, seed)
    return Correlation(r, p, low, high, len(a), count)


def p_value(r: float, freedom: int) -> float:
    """Two-sided, by the t distribution with `freedom` degrees; NaN where none are left."""
    from scipy.special import stdtr

    if freedom < 1:
        return math.nan
    if abs(r) >= 1:
        return 0.0
    t = abs(r) * math.sqrt(freedom / (1 - r * r))
    return float(2 * stdtr(freedom, -t))


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


def within_levels(x: ArrayLike, y: ArrayLike, level: Sequence[Any], *, least: int = 4) -> dict[Any, Correlation]:
    """The correlation inside each level that has at least `least` values, levels in ascending order."""
    a, b = sample("x", x, 2), sample("y", y, 2)
    codes = _codes("level", level, len(a))
    names = sorted(set(level))
    rows = [np.flatnonzero(codes == i) for i in range(len(names))]
    return {name: correlate(a[mine], b[mine]) for name, mine in zip(names, rows, strict=True) if len(mine) >= max(2, least)}


def _codes(name: str, names: ArrayLike, n: int) -> NDArray[np.int64]:
    array = np.asarray(names)
    if array.shape != (n,):
        raise BadInput("wrong-shape", name, f"{name} of shape {array.shape}: expected one name per value, ({n},).")
    codes: NDArray[np.int64] = np.unique(array, return_inverse=True)[1]
    return codes


def _interval(
    a: NDArray[np.float64], b: NDArray[np.float64], levels: NDArray[np.int64], groups: NDArray[np.int64], draws: int, seed: int
) -> tuple[float, float]:
    """Percentile interval over resampled clusters, from each cluster's sums: no resample is ever written out."""
    count, k = int(groups.max()) + 1, int(levels.max()) + 1
    if count < 3:
        return math.nan, math.nan
    a, b = (a - a.mean()) / a.std(), (b - b.mean()) / b.std()
    terms = np.stack([np.ones_like(a), a, b, a * a, b * b, a * b])  # (6, n)
    place = groups * k + levels
    sums = np.stack([np.bincount(place, t, minlength=count * k) for t in terms]).reshape(6, count, k)
    times = rng.stream("stats.correlation", seed).multinomial(count, np.full(count, 1 / count), size=draws)  # (draws, count)
    n, sa, sb, saa, sbb, sab = np.einsum("dc,tck->tdk", times, sums)
    inverse = np.divide(1.0, n, out=np.zeros_like(n), where=n > 0)
    va, vb = ((s2 - s1 * s1 * inverse).sum(1) for s1, s2 in ((sa, saa), (sb, sbb)))
    cov = (sab - sa * sb * inverse).sum(1)
    fine = (va > 1e-9) & (vb > 1e-9)
    if not fine.any():
        return math.nan, math.nan
    coefficients = np.clip(cov[fine] / np.sqrt(va[fine] * vb[fine]), -1, 1)
    low, high = np.quantile(coefficients, [0.025, 0.975])
    return float(low), float(high)
