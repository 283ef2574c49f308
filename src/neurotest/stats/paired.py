"""Two classifiers on the same inputs: McNemar's exact test and the difference of their accuracies with an interval."""

from __future__ import annotations

import math
from statistics import NormalDist

from neurotest.errors import BadInput
from neurotest.stats.bootstrap import Interval


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
