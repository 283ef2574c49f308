"""Turns of seeds, several at once to share a forward pass, and the mutants of a batch: drawn, applied and checked."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from neurotest import rng
from neurotest.data.source import content_ids
from neurotest.generate.fuzz.corpus import INVALID, OUTPUT, UNTRIED, Entry
from neurotest.generate.fuzz.mutants import Seen, Tally
from neurotest.generate.fuzz.seeds import Seeds
from neurotest.generate.fuzz.settings import Settings
from neurotest.mutate.base import UNIFORMS, Draws
from neurotest.mutate.unit import changed, distances

BLOCK_TURNS = 64  # turns whose first numbers are drawn together
EARLY_NUMBERS = 49  # of a turn: whose turn it is, and 16 draws
MOST_MISSES = 50  # draws in a row that give no valid mutant end a turn
PIECE = 1 << 22  # values of mutants that are made at once: some copies of them are needed meanwhile
Rows = NDArray[np.int64]
Flags = NDArray[np.bool_]
LOOK, LOOK_FARTHER = 2, 8  # draws per mutant that is needed; more after a miss, because few mutants of such a seed are valid


@functools.lru_cache(maxsize=8)
def _first_numbers(purpose: str, seed: int, block: int) -> NDArray[np.float64]:
    return rng.stream(purpose, seed, block).random((BLOCK_TURNS, EARLY_NUMBERS))


class TurnStream:
    """A turn's numbers, uniform in [0, 1): a function of purpose, seed and iteration.

    The first ones come out of a table for many turns: a generator of its own costs as much as a mutant.
    """

    def __init__(self, purpose: str, seed: int, iteration: int) -> None:
        block, row = divmod(iteration, BLOCK_TURNS)
        self._early, self._used = _first_numbers(purpose, seed, block)[row], 0
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


@dataclass(eq=False)
class Turn:
    """One iteration: the turn of one seed. Its draws come from a stream of its own, a function of seed and iteration."""

    iteration: int
    entry: Entry
    energy: int
    random: TurnStream | None = field(repr=False)  # None: a planned turn, which draws nothing
    tested: int = 0  # of its energy
    ran: int = 0  # and of those, run: the others had been output before
    drawn: int = 0
    misses: int = 0  # in a row
    accepted: bool = False
    _ahead: NDArray[np.float64] = field(init=False, repr=False)  # drawn, not yet used

    def __post_init__(self) -> None:
        self._ahead = np.empty((0, UNIFORMS))
        if self.drawn and self.random is not None:  # resumed: go to where it was
            self.random.random((self.drawn, UNIFORMS))

    def peek(self, n: int) -> NDArray[np.float64]:
        """The next n rows of uniform numbers; drawn in portions of any size they are the same."""
        assert self.random is not None
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


@dataclass(frozen=True, eq=False)
class Proposals:
    """The valid mutants of a batch; `rows[turn]` are places in it, in the order they were drawn."""

    x: NDArray[np.generic]  # (m, *shape) as it would be saved
    owner: NDArray[np.int64]  # (m,) which turn
    roots: NDArray[np.int64]  # (m,) rows of Seeds
    draws: Draws
    rows: list[list[int]]
    seeds: Seeds
    device: torch.device | str
    contents: list[str]
    keys: list[int]  # the contents as numbers

    @functools.cached_property
    def distances(self) -> NDArray[np.float64]:
        """(m, 3) L0, L2 and Linf to the seed."""
        seeds = self.seeds
        parts = [
            distances(seeds.unit(self.x[part], self.device), seeds.unit(seeds.x[self.roots[part]], self.device))
            for part in _pieces(self.x)
        ]
        return np.concatenate(parts) if parts else np.zeros((0, 3))


@dataclass(frozen=True, eq=False)
class _Lookahead:
    """The draws of a batch, turn after turn."""

    draws: Draws
    rule: NDArray[np.int64]  # (n,)
    owner: NDArray[np.int64]  # (n,) which turn
    number: NDArray[np.int64]  # (n,) of the entry
    status: NDArray[np.int8]  # (n,) of the rule, in the entry
    needed: NDArray[np.bool_]  # (n,) false after as many surely valid mutants as a turn may have
    windows: list[int]  # rows per turn


@dataclass(frozen=True, eq=False)
class _Mutants:
    """As they would be saved."""

    x: NDArray[np.generic]  # (m, *shape)
    valid: NDArray[np.bool_]  # (m,) which changed something and are within validity
    contents: list[str]
    keys: list[int]


class Proposer:
    """Draws, applies and checks mutations. Rules that can give nothing new of a seed are remembered in its entry."""

    def __init__(self, seeds: Seeds, settings: Settings, device: torch.device | str) -> None:
        self.seeds, self.settings, self.device = seeds, settings, device
        validity = settings.validity
        once, exempt = not validity.check_once, validity.style_exempt
        self._unchecked = np.array([(f.once and once) or (f.exempt and exempt) for f in settings.mutations.families])

    def propose(self, turns: list[Turn], chunk: int, most: int, tally: Tally, seen: Seen) -> Proposals:
        """At most `chunk` mutants for each turn, and at most so many in all.

        A mutant that was output before counts as a try of its turn, but is not run again.
        """
        lookahead = self._look_ahead(turns, chunk)
        status, rule = lookahead.status, lookahead.rule
        new = np.flatnonzero((status == UNTRIED) & lookahead.needed)
        once, place = _distinct(lookahead.number[new], rule[new])
        mutants = self._make([turns[i].entry for i in lookahead.owner[new[once]]], lookahead.draws[new[once]])
        valid, old = mutants.valid, ~np.array(seen.new(mutants.keys), dtype=bool)
        good, repeated = status == OUTPUT, status == OUTPUT
        good[new], repeated[new] = valid[place], (valid & old)[place]
        for row in new[once][~valid | old].tolist():
            turns[lookahead.owner[row]].entry.set_status(int(rule[row]), OUTPUT if repeated[row] else INVALID)
        chosen = self._take(turns, lookahead, good, repeated, chunk, most, tally)
        for i in lookahead.owner[chosen[repeated[chosen]]].tolist():
            turns[i].tested += 1
        fresh = chosen[~repeated[chosen]]
        tally.valid += len(fresh)
        owners = lookahead.owner[fresh]
        edges = np.searchsorted(owners, np.arange(len(turns) + 1)).tolist()
        roots = np.array([turn.entry.root for turn in turns], dtype=np.int64)[owners]
        rows = [list(range(a, b)) for a, b in pairwise(edges)]
        return self._proposals(mutants, place[np.searchsorted(new, fresh)], owners, roots, lookahead.draws[fresh], rows)

    def make_planned(self, entries: list[Entry], draws: Draws, tally: Tally, seen: Seen) -> tuple[Proposals, NDArray[np.bool_]]:
        """The mutants of a plan that are valid and were not output before, each once, and which of the plan are valid."""
        mutants = self._make(entries, draws)
        first = np.zeros(len(entries), dtype=bool)
        first[np.unique(np.array(mutants.keys, dtype=np.uint64), return_index=True)[1]] = True
        rows = np.flatnonzero(mutants.valid & first & np.array(seen.new(mutants.keys), dtype=bool))
        tally.drawn, tally.valid = tally.drawn + len(entries), tally.valid + len(rows)
        roots = np.array([entry.root for entry in entries], dtype=np.int64)[rows]
        return self._proposals(mutants, rows, rows, roots, draws[rows], [[i] for i in range(len(rows))]), mutants.valid

    def _proposals(
        self, mutants: _Mutants, index: Rows, owner: Rows, roots: Rows, draws: Draws, rows: list[list[int]]
    ) -> Proposals:
        contents, keys = ([column[i] for i in index] for column in (mutants.contents, mutants.keys))
        return Proposals(mutants.x[index], owner, roots, draws, rows, self.seeds, self.device, contents, keys)

    def _look_ahead(self, turns: list[Turn], chunk: int) -> _Lookahead:
        space = self.settings.mutations
        windows = [chunk * (LOOK_FARTHER if turn.misses else LOOK) for turn in turns]
        owner = np.repeat(np.arange(len(turns)), windows)
        uniforms = np.concatenate([turn.peek(window) for turn, window in zip(turns, windows, strict=True)])
        draws = space.draw_from(uniforms, np.array([turn.entry.used for turn in turns])[owner])
        assert draws.rule is not None
        sure = self._unchecked[draws.kind] & ~space.idle[draws.rule]  # valid without a check
        before = np.cumsum(sure) - sure
        before -= np.repeat(before[np.cumsum(windows) - windows], windows)
        status = np.stack([self._statuses(turn.entry) for turn in turns])[owner, draws.rule]
        number = np.array([turn.entry.number for turn in turns])[owner]
        return _Lookahead(draws, draws.rule, owner, number, status, before < chunk, windows)

    def _statuses(self, entry: Entry) -> NDArray[np.int8]:
        if entry.rule_status is None:
            entry.rule_status = self.settings.mutations.idle.astype(np.int8)  # a rule that changes nothing is INVALID
        return entry.rule_status

    def _make(self, entries: list[Entry], draws: Draws) -> _Mutants:
        dtype = self.seeds.x.dtype if self.seeds.levels else np.float32
        stored = np.empty((len(entries), *self.seeds.x.shape[1:]), dtype)
        valid = np.zeros(len(entries), dtype=bool)
        with torch.inference_mode():
            for part in _pieces(stored):
                stored[part], valid[part] = self._make_piece(entries[part], draws[part])
        contents: list[str] = content_ids(stored).tolist()
        return _Mutants(stored, valid, contents, [int(content, 16) for content in contents])

    def _make_piece(self, entries: list[Entry], draws: Draws) -> tuple[NDArray[np.generic], NDArray[np.bool_]]:
        seeds, settings, device = self.seeds, self.settings, self.device
        parents = np.stack([entry.x for entry in entries])
        roots = seeds.unit(seeds.x[[entry.root for entry in entries]], device) if settings.mutations.needs_root else None
        before = seeds.unit(parents, device)
        x = settings.mutations.apply(before, draws, root=roots, levels=seeds.levels)
        stored = seeds.stored(x)
        if seeds.levels:
            valid = (stored != parents).reshape(len(parents), -1).any(1)
        else:
            valid = changed(x, before).flatten(1).any(1).cpu().numpy()
        checked = np.flatnonzero(~self._unchecked[draws.kind])
        if len(checked):
            references = seeds.unit(np.stack([entries[i].reference for i in checked]), device)
            valid[checked] &= settings.validity.check(x[torch.from_numpy(checked).to(device)], references).cpu().numpy()
        return stored, valid

    def _take(
        self, turns: list[Turn], lookahead: _Lookahead, valid: Flags, repeated: Flags, chunk: int, room: int, tally: Tally
    ) -> Rows:
        """Which rows the turns take, older turns first, until `room` mutants are to be run."""
        rows: list[int] = []
        start = 0
        for turn, window in zip(turns, lookahead.windows, strict=True):
            if room <= 0:
                break
            before, end = turn.drawn, start + int(np.count_nonzero(lookahead.needed[start : start + window]))
            chosen = [start + row for row in turn.take(valid[start:end].tolist(), min(chunk, room))]
            room -= sum(not repeated[row] for row in chosen)
            rows += chosen
            tally.drawn += turn.drawn - before
            tally.rounds += 1
            start += window
        return np.array(rows, dtype=np.int64)


def _pieces(x: NDArray[np.generic]) -> Iterator[slice]:
    """Parts of a batch of at most PIECE values each."""
    step = max(1, PIECE // max(1, math.prod(x.shape[1:])))
    for start in range(0, len(x), step):
        yield slice(start, start + step)


def _distinct(number: NDArray[np.int64], rule: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The first of every (entry, rule), and which of those each row is; rules without a number are all different."""
    pairs = np.where(rule >= 0, number * (1 << 20) + rule, -1 - np.arange(len(rule)))
    _, first, place = np.unique(pairs, return_index=True, return_inverse=True)
    return first, place
