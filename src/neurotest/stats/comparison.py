"""Comparing samples, two classifiers on the same inputs, and two searches from the same seeds: effect sizes and tests."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from neurotest import rng
from neurotest.errors import BadInput
from neurotest.stats.bootstrap import Interval

Floats = NDArray[np.float64]
Findings = Iterable[tuple[int, Hashable]]  # (seed, kind)
CHUNK = 1 << 24  # numbers held at once


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


def mcnemar(fixed: int, broken: int) -> float:
    """The two-sided exact p-value: how often a fair coin would part so many inputs at least as unevenly.

    >>> mcnemar(9, 1), mcnemar(0, 0)
    (0.021484375, 1.0)
    """
    _check(fixed, broken, fixed + broken)
    total, less = fixed + broken, min(fixed, broken)
    if total == 0:
        return 1.0
    # Sums of integers are exact; their quotient is the only rounding.
    tail = sum(math.comb(total, k) for k in range(less + 1))
    return min(1.0, 2 * tail / 2**total) if total < 1000 else min(1.0, 2 * _tail(total, less))


def _tail(total: int, less: int) -> float:
    from scipy.special import bdtr

    return float(bdtr(less, total, 0.5))


def paired_difference(fixed: int, broken: int, n: int, *, level: float = 0.95) -> Interval:
    """(fixed - broken) / n, n at least 1, with Bonett and Price's interval: two inputs are added, one fixed and one broken."""
    _check(fixed, broken, n)
    if not 0 < level < 1:
        raise BadInput("out-of-range", "level", f"level={level}: expected a number between 0 and 1 (0.95 is usual).")
    up, down = (fixed + 1) / (n + 2), (broken + 1) / (n + 2)
    half = NormalDist().inv_cdf((1 + level) / 2) * math.sqrt((up + down - (up - down) ** 2) / (n + 2))
    return Interval((fixed - broken) / n, max(-1.0, up - down - half), min(1.0, up - down + half))


def _check(fixed: int, broken: int, n: int) -> None:
    if min(fixed, broken) < 0 or fixed + broken > n or (n < 1 and fixed + broken > 0):
        raise BadInput(
            "out-of-range", "fixed", f"fixed={fixed}, broken={broken}, n={n}: expected counts of at least 0 that do not exceed n."
        )


class _Swapped(NamedTuple):
    """Kinds of the one and of the other, and the interval of their difference if the two did not differ."""

    left: int
    right: int
    low: float
    high: float

    @property
    def difference(self) -> int:
        return self.left - self.right

    @property
    def larger(self) -> str | None:
        """`left`, `right`, or None within chance."""
        return "left" if self.difference > self.high else "right" if self.difference < self.low else None


def swap_interval(left: Findings, right: Findings, *, draws: int = 2000, level: float = 0.95, seed: int = 0) -> _Swapped:
    """Kinds found by two campaigns from the same seeds, with what exchanging the two, seed by seed at random, would give.

    If both search alike, each seed's findings could as well be the other's. A bootstrap would leave a third of the seeds out, and
    with them rare kinds; an exchange leaves none out. Findings of one seed stay together, since they depend on each other.

    >>> swap_interval([(0, "a"), (1, "b")], [(0, "a"), (1, "a")])[:2]
    (2, 1)
    """
    pairs = [list(dict.fromkeys(side)) for side in (left, right)]
    seeds = {s: i for i, s in enumerate(sorted({s for side in pairs for s, _ in side}))}
    kinds = {k: i for i, k in enumerate(dict.fromkeys(k for side in pairs for _, k in side))}
    if not kinds:
        return _Swapped(0, 0, 0.0, 0.0)
    ours, theirs = (_table([(seeds[s], kinds[k]) for s, k in side], len(seeds), len(kinds)) for side in pairs)
    generator = rng.stream("stats.swaps", seed)
    differences = np.empty(draws)
    rows = max(1, CHUNK // (len(seeds) + len(kinds)))
    for start in range(0, draws, rows):
        swap = generator.integers(0, 2, (min(rows, draws - start), len(seeds))).astype(np.float32)
        a = (1 - swap) @ ours + swap @ theirs > 0  # (draws, kinds)
        b = swap @ ours + (1 - swap) @ theirs > 0
        differences[start : start + len(swap)] = a.sum(1) - b.sum(1, dtype=np.float64)
    reach = float(np.quantile(np.abs(differences), level))  # exchanging everything turns the sign: the interval is symmetric
    return _Swapped(len({k for _, k in pairs[0]}), len({k for _, k in pairs[1]}), -reach, reach)


def _table(places: list[tuple[int, int]], seeds: int, kinds: int) -> Any:
    """A sparse table (seeds, kinds) of 0 and 1."""
    from scipy.sparse import csr_array

    rows, columns = np.array(places, dtype=np.int64).reshape(-1, 2).T
    return csr_array((np.ones(len(rows), dtype=np.float32), (rows, columns)), shape=(seeds, kinds))
