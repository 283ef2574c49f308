"""The seeds in use: what each is, where it came from, and which gets the next turn."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neurotest.generate.fuzz.seeds import Seeds
from neurotest.generate.fuzz.settings import Settings
from neurotest.mutate.chain import Chain

P_MIN, GAMMA = 0.01, 5.0  # NeuraL-Coverage's priorities
UNTRIED, INVALID, OUTPUT = 0, 1, 2  # what a rule makes of an entry: not tried yet, nothing valid, a mutant that was output
LEAST_ENERGY, MOST_ENERGY = 8, 256  # mutants per turn under energy=potential


@dataclass(frozen=True)
class Shard:
    """Which seeds an island begins with: each `of`-th. New entries are numbered likewise, so no two islands share a number."""

    number: int = 0
    of: int = 1

    def rows(self, seeds: int) -> range:
        return range(self.number, seeds, self.of)


WHOLE = Shard()


@dataclass(eq=False)
class Entry:
    """One seed: its image, the reference its changes are measured against, and the chain that made it."""

    number: int
    root: int  # row of Seeds
    x: NDArray[np.generic]
    reference: NDArray[np.generic]
    used: bool  # its lineage has had the mutation that is allowed once
    chain: Chain
    uses: int = 0
    potential: float = 0.0
    rule_status: NDArray[np.int8] | None = None  # UNTRIED, INVALID or OUTPUT; only saves work

    def set_status(self, rule: int, status: int) -> None:
        """Remember what a rule makes of it (rules without a number have noise of their own)."""
        if rule >= 0 and self.rule_status is not None:
            self.rule_status[rule] = status

    @property
    def depth(self) -> int:
        return len(self.chain)


class Corpus:
    """Entries by number; when it is full, the one that has had most turns goes, the oldest of them first."""

    def __init__(self, seeds: Seeds, settings: Settings, shard: Shard = WHOLE) -> None:
        self.seeds, self.settings, self.shard = seeds, settings, shard
        self.entries: list[Entry] = []
        for root in shard.rows(len(seeds)):
            self.next = root
            self.add(root, np.asarray(seeds.x[root]), np.asarray(seeds.x[root]), False, ())
        self.next = len(seeds) + shard.number
        self.trim(set())

    def __len__(self) -> int:
        return len(self.entries)

    def add(self, root: int, x: Any, reference: Any, used: bool, chain: Chain) -> Entry:
        entry = Entry(self.next, root, x, reference, used, chain, potential=self.potential(x, reference))
        self.next += self.shard.of
        self.entries.append(entry)
        return entry

    def trim(self, kept: set[int]) -> None:
        """Bring it down to its capacity, sparing these numbers and the newest."""
        seeds = len(self.shard.rows(len(self.seeds)))
        over = len(self.entries) - max(self.settings.capacity, seeds)  # there is always room for the seeds
        if over <= 0:
            return
        order = np.argsort([-entry.uses for entry in self.entries[:-1]], kind="stable")
        dropped = set([int(i) for i in order if self.entries[int(i)].number not in kept][:over])
        self.entries = [entry for i, entry in enumerate(self.entries) if i not in dropped]

    def find(self, numbers: Iterable[int]) -> list[Entry]:
        """Entries by number, for planners: theirs do not come from other islands, so they stand in the order of their numbers."""
        return [self.entries[bisect_left(self.entries, number, key=attrgetter("number"))] for number in numbers]

    def drop(self, numbers: set[int]) -> None:
        if numbers:
            self.entries = [entry for entry in self.entries if entry.number not in numbers]

    def potential(self, x: NDArray[np.generic], reference: NDArray[np.generic]) -> float:
        """How much room for change is left: what validity allows in all, less what was changed."""
        if self.settings.energy == "constant":
            return 0.0
        levels = self.seeds.levels
        scale = levels.steps if levels else self.seeds.bounds[1] - self.seeds.bounds[0]
        change = np.abs(np.asarray(x, dtype=np.float64) - np.asarray(reference, dtype=np.float64)).sum() / scale
        nonzero = np.count_nonzero(np.asarray(reference) > (levels.lowest if levels else self.seeds.bounds[0]))
        return max(0.0, float(self.settings.validity.beta * nonzero - change))

    def weights(self) -> NDArray[np.float64]:
        """(n,) how likely each entry is to get the next turn, not normalised."""
        uses = np.array([entry.uses for entry in self.entries], dtype=float)
        match self.settings.priority:
            case "uses":
                return np.where(uses < (1 - P_MIN) * GAMMA, 1 - uses / GAMMA, P_MIN)
            case "deephunter":
                return np.maximum(0.8 - uses / 5, 0.3)
            case "recent":
                weights = np.full(len(uses), 1 / len(uses))
                weights[-5:] += 1
                return weights
        return np.ones(len(uses))

    def pick(self, uniforms: NDArray[np.float64]) -> list[Entry]:
        """One entry per uniform number, all from the corpus as it is now."""
        edges = np.cumsum(self.weights())
        rows = np.minimum(np.searchsorted(edges, uniforms * edges[-1], side="right"), len(self.entries) - 1)
        chosen = [self.entries[int(row)] for row in rows]
        if self.settings.priority == "deephunter":  # it counts every turn, not only those that gained
            for entry in chosen:
                entry.uses += 1
        return chosen

    def mark_gained(self, entry: Entry) -> None:
        """A mutant of it was kept."""
        if self.settings.priority != "deephunter":
            entry.uses += 1

    def mark_exhausted(self, entry: Entry) -> None:
        """A turn gave nothing new that is valid: from now on it gets as few turns as one that has often gained."""
        if self.settings.priority == "uses":
            entry.uses = max(entry.uses, int(GAMMA))

    def energy(self, entry: Entry) -> int:
        """How many mutants a turn of this entry may take."""
        if self.settings.energy == "constant":
            return self.settings.tries
        mean = float(np.mean([e.potential for e in self.entries])) or 1.0
        return int(np.clip(np.ceil(self.settings.tries * entry.potential / mean), LEAST_ENERGY, MOST_ENERGY))
