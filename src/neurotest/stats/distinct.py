"""How many different things were seen, in bounded memory: counted while few, then estimated from the smallest hashes."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

HASH = 16  # bytes of a hash
Hashes = NDArray[np.bytes_]  # of type S16, compared byte by byte: as hashes have all their bytes, trailing zeros do no harm


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
