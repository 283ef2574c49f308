"""Turns of seeds: several run at once, so that one forward pass serves them all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from neurotest import rng
from neurotest.generate.fuzz.corpus import Entry
from neurotest.mutate.base import UNIFORMS

BLOCK, EARLY = 64, 49  # turns whose first numbers are drawn together, and how many each has: whose turn it is, and 16 draws
MOST_MISSES = 50  # draws in a row that give no valid mutant end a turn


class _Random(Protocol):
    """What a turn draws from: the next numbers of its stream, uniform in [0, 1)."""

    def random(self, size: Any = None) -> Any: ...


class _TurnStream:
    """One turn's numbers. Its first ones come out of a table for many turns: a generator of its own costs as much as a mutant."""

    def __init__(self, early: NDArray[np.float64], purpose: str, seed: int, iteration: int) -> None:
        self._early, self._used = early, 0
        self._rest: np.random.Generator | None = None
        self._key = (purpose, seed, iteration)

    def random(self, size: Any = None) -> Any:
        n = 1 if size is None else int(np.prod(size))
        numbers = self._early[self._used : self._used + n]
        self._used += len(numbers)
        if len(numbers) < n:
            if self._rest is None:
                purpose, seed, iteration = self._key
                self._rest = rng.stream(f"{purpose}.rest", seed, iteration)
            numbers = np.concatenate([numbers, self._rest.random(n - len(numbers))])
        return float(numbers[0]) if size is None else numbers.reshape(size)


class TurnStreams:
    """The streams of all turns: functions of purpose, seed and iteration."""

    def __init__(self, purpose: str, seed: int) -> None:
        self.purpose, self.seed = purpose, seed
        self._block, self._table = -1, np.empty((0, EARLY))

    def of(self, iteration: int) -> _TurnStream:
        block, row = divmod(iteration, BLOCK)
        if block != self._block:
            self._block, self._table = block, rng.stream(self.purpose, self.seed, block).random((BLOCK, EARLY))
        return _TurnStream(self._table[row], self.purpose, self.seed, iteration)


@dataclass(eq=False)
class Turn:
    """One iteration: the turn of one seed. Its draws come from a stream of its own, a function of seed and iteration."""

    iteration: int
    entry: Entry
    energy: int
    random: _Random = field(repr=False)
    tested: int = 0  # of its energy
    ran: int = 0  # and of those, run: the others had been output before
    drawn: int = 0
    misses: int = 0  # in a row
    accepted: bool = False
    _ahead: NDArray[np.float64] = field(init=False, repr=False)  # drawn, not yet used

    def __post_init__(self) -> None:
        self._ahead = np.empty((0, UNIFORMS))
        if self.drawn:  # resumed: go to where it was
            self.random.random((self.drawn, UNIFORMS))

    def peek(self, n: int) -> NDArray[np.float64]:
        """The next n rows of uniform numbers; drawn in portions of any size they are the same."""
        if (missing := n - len(self._ahead)) > 0:
            self._ahead = np.concatenate([self._ahead, self.random.random((missing, UNIFORMS))])
        return self._ahead[:n]

    @property
    def done(self) -> bool:
        return self.accepted or self.tested >= self.energy or self.misses >= MOST_MISSES

    def take(self, valid: Sequence[bool], most: int) -> list[int]:
        """Which of the rows are this turn's next mutants, at most so many; the rows after them are for the next call."""
        chosen: list[int] = []
        row, limit = 0, min(most, self.energy - self.tested)
        for row, good in enumerate(valid, start=1):
            if good:
                chosen.append(row - 1)
            self.misses = 0 if good else self.misses + 1
            if len(chosen) >= limit or self.misses >= MOST_MISSES:
                break
        self.drawn += row
        self._ahead = self._ahead[row:]
        return chosen

    def plain(self) -> dict[str, Any]:
        names = ("iteration", "energy", "tested", "ran", "drawn", "misses")
        return {"entry": self.entry.number, **{name: getattr(self, name) for name in names}}
