"""Turns of seeds that are under way: several at once, so that one forward pass serves them all."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neurotest.generate.fuzz.corpus import Entry
from neurotest.mutate.rules import UNIFORMS

FRUITLESS = 50  # draws in a row that give no valid mutant end a turn


@dataclass(eq=False)
class Lane:
    """One iteration: the turn of one seed. Its draws come from a stream of its own, a function of seed and iteration."""

    iteration: int
    entry: Entry
    energy: int
    random: np.random.Generator = field(repr=False)
    tested: int = 0
    drawn: int = 0
    misses: int = 0  # in a row
    accepted: bool = False
    _ahead: NDArray[np.float64] = field(init=False, repr=False)  # drawn, not yet used

    def __post_init__(self) -> None:
        self._ahead = np.empty((0, UNIFORMS))
        if self.drawn:  # resumed: go to where it was
            self.random.random((self.drawn, UNIFORMS))

    def look(self, n: int) -> NDArray[np.float64]:
        """The next n rows of uniform numbers; asked for in portions of any size they are the same."""
        if (lacking := n - len(self._ahead)) > 0:
            self._ahead = np.concatenate([self._ahead, self.random.random((lacking, UNIFORMS))])
        return self._ahead[:n]

    @property
    def done(self) -> bool:
        return self.accepted or self.tested >= self.energy or self.misses >= FRUITLESS

    def take(self, valid: NDArray[np.bool_], most: int) -> list[int]:
        """Which of the rows are this turn's next mutants, at most so many; what comes after them is looked at again later."""
        chosen: list[int] = []
        row = 0
        for row, good in enumerate(valid, start=1):
            if good:
                chosen.append(row - 1)
            self.misses = 0 if good else self.misses + 1
            if len(chosen) >= min(most, self.energy - self.tested) or self.misses >= FRUITLESS:
                break
        self.drawn += row
        self._ahead = self._ahead[row:]
        return chosen

    def plain(self) -> dict[str, Any]:
        names = ("iteration", "energy", "tested", "drawn", "misses")
        return {"entry": self.entry.number, **{name: getattr(self, name) for name in names}}
