"""How many kinds there are in all, by how many were seen once and twice."""

from __future__ import annotations

import math
from collections.abc import Iterable
from statistics import NormalDist

from neurotest.stats.bootstrap import Interval


def chao1(counts: Iterable[int], level: float = 0.95) -> Interval:
    """Chao's estimate, bias-corrected, of how many kinds there are, out of how often each was seen.

    The interval is Chao's of 1987: the kinds not seen are taken as log-normal, so that it never ends below what was seen. Samples
    are taken as drawn at random, which a guided campaign's are not.

    >>> round(chao1([1, 1, 1, 2, 2, 5]).value, 4)  # 6 seen, 11/12 * 3 * 2 / (2 * 3) not
    6.9167
    """
    numbers = [n for n in counts if n > 0]
    seen, total = len(numbers), sum(numbers)
    once, twice = sum(n == 1 for n in numbers), sum(n == 2 for n in numbers)
    if not total:
        return Interval(0.0, 0.0, 0.0)
    shrink = (total - 1) / total
    unseen = shrink * once * (once - 1) / (2 * (twice + 1))
    if not unseen:
        return Interval(float(seen), float(seen), float(seen))
    a, b = once * (once - 1) / (2 * (twice + 1)), once * (2 * once - 1) ** 2 / (4 * (twice + 1) ** 2)
    variance = shrink * a + shrink**2 * b + shrink**2 * once**2 * twice * (once - 1) ** 2 / (4 * (twice + 1) ** 4)
    factor = math.exp(NormalDist().inv_cdf((1 + level) / 2) * math.sqrt(math.log(1 + variance / unseen**2)))
    return Interval(seen + unseen, seen + unseen / factor, seen + unseen * factor)
