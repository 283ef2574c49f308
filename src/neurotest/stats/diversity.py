"""How evenly outcomes spread over classes (Pielou), how many kinds there are in all (Chao), and how many different were seen."""

from __future__ import annotations

import math
from collections.abc import Iterable
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray

from neurotest.errors import BadInput
from neurotest.stats.bootstrap import Interval

HASH = 16  # bytes of a hash
Hashes = NDArray[np.bytes_]  # of type S16, compared byte by byte: as hashes have all their bytes, trailing zeros do no harm


def entropy(counts: ArrayLike, *, corrected: bool = False) -> float:
    """Of a histogram, in nats. `corrected` adds Miller and Madow's (seen classes - 1) / 2n: few draws look too uneven.

    >>> round(entropy([5, 5]), 6)
    0.693147
    """
    histogram = np.asarray(counts, dtype=np.float64)
    if histogram.ndim != 1 or (histogram.size and (not np.isfinite(histogram).all() or histogram.min() < 0)):
        raise BadInput("wrong-shape", "counts", f"counts of shape {histogram.shape}: expected one row of numbers >= 0.")
    seen = histogram[histogram > 0]
    total = seen.sum()
    if not total:
        return math.nan
    shares = seen / total
    plain = max(0.0, float(-(shares * np.log(shares)).sum()))
    return plain + (len(seen) - 1) / (2 * float(total)) if corrected else plain


def evenness(numbers: ArrayLike, classes: int, *, corrected: bool = False) -> float | None:
    """Entropy of class numbers over log(classes): 1: all classes occur equally often, 0: only one does. None without inputs.

    `classes` is how many the network has, not how many occur. The corrected value is cut at 1.
    """
    if classes < 2:
        raise BadInput("out-of-range", "classes", f"classes={classes}: evenness needs at least 2 classes.")
    row = np.asarray(numbers)
    if row.size == 0:
        return None
    if row.ndim != 1 or row.dtype.kind not in "iu" or row.min() < 0 or row.max() >= classes:
        raise BadInput(
            "wrong-shape", "numbers", f"class numbers of shape {row.shape}: expected one row of integers from 0 to {classes - 1}."
        )
    return min(1.0, entropy(np.bincount(row, minlength=classes), corrected=corrected) / math.log(classes))


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


def as_hashes(digests: list[bytes]) -> Hashes:
    return np.frombuffer(b"".join(digests), dtype=f"S{HASH}")


class Distinct:
    """All hashes below `capacity`, and from there on the `capacity` smallest (k minimum values, Bar-Yossef et al. 2002).

    Hashes lie evenly between 0 and 1: if the m-th smallest is at h, about (m - 1) / h different ones were seen, with a standard
    error of 1 / sqrt(m - 2) of that. The smallest of two halves are the smallest of the whole, so merging is exact.
    """

    def __init__(self, capacity: int, hashes: Hashes | None = None) -> None:
        self.capacity = capacity
        self.hashes: Hashes = np.empty(0, dtype=f"S{HASH}") if hashes is None else hashes[:capacity]  # ascending

    @property
    def estimated(self) -> bool:
        return len(self.hashes) >= self.capacity

    @property
    def error(self) -> float:
        """Standard error of an estimate, relative to it."""
        return 1 / math.sqrt(max(1, self.capacity - 2)) if self.estimated else 0.0

    def add(self, hashes: Hashes) -> None:
        new = np.unique(hashes)
        places, new = self._new(new)
        if len(new):
            self.hashes = np.insert(self.hashes, places, new)[: self.capacity]

    def _new(self, hashes: Hashes) -> tuple[NDArray[np.int64], Hashes]:
        """Those that are not here yet and would be kept, and where they belong."""
        places = np.searchsorted(self.hashes, hashes)
        if not len(self.hashes):
            return places, hashes
        here = self.hashes[np.minimum(places, len(self.hashes) - 1)] == hashes
        keep = ~here & (places < self.capacity)
        return places[keep], hashes[keep]

    def merge(self, other: Distinct) -> None:
        self.add(other.hashes)

    def count(self) -> int:
        """How many were seen: exact below the capacity, an estimate from there on."""
        return self._count(bytes(self.hashes[-1])) if self.estimated else len(self.hashes)

    def _count(self, largest: bytes) -> int:
        share = (int.from_bytes(largest.ljust(HASH, b"\0"), "big") + 1) / 2.0 ** (8 * HASH)
        return max(self.capacity, round((self.capacity - 1) / share))

    def gains(self, hashes: Hashes) -> NDArray[np.float64]:
        """By how much the count would rise with each of these alone."""
        unique, whose = np.unique(hashes, return_inverse=True)
        before, rises = self.count(), np.zeros(len(unique))
        for one in self._new(unique)[1]:
            rise = 1 if len(self.hashes) + 1 < self.capacity else self._full_with(one) - before
            rises[np.searchsorted(unique, one)] = rise
        return rises[whose]

    def _full_with(self, one: bytes) -> int:
        """The count with one more hash, which fills this or pushes the largest out."""
        rest = self.hashes[: self.capacity - 1]
        return self._count(max(one, bytes(rest[-1])) if len(rest) else one)
