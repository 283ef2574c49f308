"""Which images were output already, in eight bytes each: a campaign may output millions."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

RECENT = 8192  # numbers kept in a set before they are sorted in


class Seen:
    """A set of 64-bit numbers that only grows."""

    def __init__(self, keys: Iterable[int] = ()) -> None:
        self._sorted: NDArray[np.uint64] = np.empty(0, dtype=np.uint64)
        self._recent: set[int] = set()
        self.update(keys)

    @classmethod
    def holding(cls, numbers: NDArray[np.uint64]) -> Seen:
        """Of what `numbers` of another gave."""
        seen = cls()
        seen._sorted = numbers
        return seen

    @property
    def numbers(self) -> NDArray[np.uint64]:
        """All of them, in order."""
        if self._recent:
            self._merge()
        return self._sorted

    def __len__(self) -> int:
        return len(self._sorted) + len(self._recent)

    def add(self, key: int) -> None:
        """A number that is not in it yet."""
        self._recent.add(key)
        if len(self._recent) >= RECENT:
            self._merge()

    def update(self, keys: Iterable[int]) -> None:
        self._recent.update(keys)
        self._merge()

    def _merge(self) -> None:
        recent = np.sort(np.fromiter(self._recent, dtype=np.uint64, count=len(self._recent)))
        joined = np.sort(np.concatenate([self._sorted, recent]), kind="stable")  # two sorted runs: merged in one go
        self._sorted = joined[np.r_[True, joined[1:] != joined[:-1]]] if len(joined) else joined
        self._recent = set()

    def new(self, keys: list[int]) -> list[bool]:
        """Which of these are not in it."""
        numbers = np.array(keys, dtype=np.uint64)
        place = np.minimum(np.searchsorted(self._sorted, numbers), max(0, len(self._sorted) - 1))
        old = self._sorted[place] == numbers if len(self._sorted) else np.zeros(len(keys), dtype=bool)
        return [not stored and key not in self._recent for stored, key in zip(old.tolist(), keys, strict=True)]
