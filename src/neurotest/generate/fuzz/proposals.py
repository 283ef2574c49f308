"""The mutants of a batch: drawn, made and checked for every turn that is under way."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from neurotest.data.source import content_ids
from neurotest.generate.fuzz.corpus import REFUSED, SPENT, UNKNOWN, Entry
from neurotest.generate.fuzz.mutants import Tally
from neurotest.generate.fuzz.seeds import Seeds
from neurotest.generate.fuzz.seen import Seen
from neurotest.generate.fuzz.settings import Settings
from neurotest.generate.fuzz.turns import Turn
from neurotest.mutate.base import Draws
from neurotest.mutate.distances import changed, distances

AHEAD, FARTHER = 2, 8  # draws looked at per mutant that is wanted; after a miss more, because such a seed refuses most


@dataclass(frozen=True, eq=False)
class Proposed:
    """The valid mutants of a batch; `rows[turn]` are places in it, in the order they were drawn."""

    x: NDArray[np.generic]  # (m, *shape) as it would be saved
    unit: Tensor  # (m, *shape) in [0, 1]
    owner: NDArray[np.int64]  # (m,) which turn
    roots: NDArray[np.int64]  # (m,) rows of Seeds
    draws: Draws
    rows: list[list[int]]
    seeds: Seeds
    contents: list[str]
    keys: list[int]  # the contents as numbers

    @cached_property
    def apart(self) -> NDArray[np.float64]:
        """(m, 3) how far from the seed."""
        return distances(self.unit, self.seeds.unit(self.seeds.x[self.roots], self.unit.device))


@dataclass(frozen=True, eq=False)
class _Ahead:
    """The draws a batch looks at, turn after turn."""

    draws: Draws
    rule: NDArray[np.int64]  # (n,)
    owner: NDArray[np.int64]  # (n,) which turn
    number: NDArray[np.int64]  # (n,) of the entry
    known: NDArray[np.int8]  # (n,) what is known of the rule
    reached: NDArray[np.bool_]  # (n,) not after as many sure mutants as a turn may have
    windows: list[int]  # rows per turn


class Proposer:
    """Draws, makes and checks. What a rule gives of a seed is remembered with it where nothing new can come of it."""

    def __init__(self, seeds: Seeds, settings: Settings, device: torch.device | str) -> None:
        self.seeds, self.settings, self.device = seeds, settings, device
        validity = settings.validity
        self._unchecked = np.array(
            [
                (f.once and not validity.check_once) or (f.exempt and validity.style_exempt)
                for f in settings.mutations.families
            ]
        )  # fmt: skip

    def propose(self, turns: list[Turn], chunk: int, most: int, tally: Tally, seen: Seen) -> Proposed:
        """At most `chunk` mutants for each turn, and at most so many in all.

        What was output before counts as a try of its turn, but is not run again: nothing could come of it.
        """
        ahead = self._look(turns, chunk)
        known, rule = ahead.known, ahead.rule
        made = np.flatnonzero((known == UNKNOWN) & ahead.reached)
        once, place = _unequal(ahead.number[made], rule[made])
        x, stored, valid = self._make([turns[i].entry for i in ahead.owner[made[once]]], ahead.draws[made[once]])
        contents: list[str] = content_ids(stored).tolist()
        keys = [int(content, 16) for content in contents]
        old = ~np.array(seen.new(keys), dtype=bool)
        good, spent = known == SPENT, known == SPENT
        good[made], spent[made] = valid[place], (valid & old)[place]
        for row in made[once][~valid | old].tolist():
            turns[ahead.owner[row]].entry.note(int(rule[row]), SPENT if spent[row] else REFUSED)
        taken = self._take(turns, ahead, good, spent, chunk, most, tally)
        for gone in ahead.owner[taken[spent[taken]]].tolist():
            turns[gone].tested += 1
        fresh = taken[~spent[taken]]
        tally.valid += len(fresh)
        index, owners = place[np.searchsorted(made, fresh)], ahead.owner[fresh]
        edges = np.searchsorted(owners, np.arange(len(turns) + 1)).tolist()
        return Proposed(
            x=stored[index], unit=x[torch.from_numpy(index).to(x.device)], owner=owners,
            roots=np.array([turn.entry.root for turn in turns], dtype=np.int64)[owners], draws=ahead.draws[fresh],
            rows=[list(range(a, b)) for a, b in pairwise(edges)], seeds=self.seeds,
            contents=[contents[i] for i in index], keys=[keys[i] for i in index],
        )  # fmt: skip

    def _look(self, turns: list[Turn], chunk: int) -> _Ahead:
        space = self.settings.mutations
        windows = [chunk * (FARTHER if turn.misses else AHEAD) for turn in turns]
        owner = np.repeat(np.arange(len(turns)), windows)
        uniforms = np.concatenate([turn.look(window) for turn, window in zip(turns, windows, strict=True)])
        draws = space.draw_from(uniforms, np.array([turn.entry.used for turn in turns])[owner])
        assert draws.rule is not None
        sure = self._unchecked[draws.kind] & ~space.idle[draws.rule]  # valid without a look
        before = np.cumsum(sure) - sure
        before -= np.repeat(before[np.cumsum(windows) - windows], windows)
        known = np.stack([self._known(turn.entry) for turn in turns])[owner, draws.rule]
        number = np.array([turn.entry.number for turn in turns])[owner]
        return _Ahead(draws, draws.rule, owner, number, known, before < chunk, windows)

    def _known(self, entry: Entry) -> NDArray[np.int8]:
        if entry.known is None:
            entry.known = self.settings.mutations.idle.astype(np.int8)  # what changes nothing is REFUSED
        return entry.known

    def _make(self, entries: list[Entry], draws: Draws) -> tuple[Tensor, NDArray[np.generic], NDArray[np.bool_]]:
        """The mutants (m, *shape) in [0, 1] and as they would be saved, and which of them changed something and are valid."""
        seeds, settings, device = self.seeds, self.settings, self.device
        if not entries:
            none = np.empty((0, *seeds.x.shape[1:]), dtype=seeds.x.dtype)
            return seeds.unit(none, device), none, np.zeros(0, dtype=bool)
        parents = np.stack([entry.x for entry in entries])
        roots = seeds.unit(seeds.x[[entry.root for entry in entries]], device) if settings.mutations.needs_root else None
        checked = np.flatnonzero(~self._unchecked[draws.kind])
        with torch.inference_mode():
            before = seeds.unit(parents, device)
            made = settings.mutations.apply(before, draws, root=roots, eight_bit=seeds.eight_bit)
            stored = seeds.stored(made)
            if seeds.eight_bit:
                valid = (stored != parents).reshape(len(parents), -1).any(1)
            else:
                valid = changed(made, before).flatten(1).any(1).cpu().numpy()
            if len(checked):
                references = seeds.unit(np.stack([entries[i].reference for i in checked]), device)
                valid[checked] &= settings.validity.check(made[torch.from_numpy(checked).to(device)], references).cpu().numpy()
        return made, stored, valid

    def _take(
        self, turns: list[Turn], ahead: _Ahead, good: NDArray[np.bool_], spent: NDArray[np.bool_], chunk: int, room: int,
        tally: Tally,
    ) -> NDArray[np.int64]:  # fmt: skip
        """Which rows the turns take, older turns first, until so many are to be run."""
        places: list[int] = []
        start = 0
        for turn, window in zip(turns, ahead.windows, strict=True):
            if room <= 0:
                break
            before, end = turn.drawn, start + int(np.count_nonzero(ahead.reached[start : start + window]))
            taken = [start + row for row in turn.take(good[start:end].tolist(), min(chunk, room))]
            room -= sum(not spent[row] for row in taken)
            places += taken
            tally.drawn += turn.drawn - before
            tally.rounds += 1
            start += window
        return np.array(places, dtype=np.int64)


def _unequal(number: NDArray[np.int64], rule: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The first of every (entry, rule), and which of those each row is; rules without a number are all different."""
    pairs = np.where(rule >= 0, number * (1 << 20) + rule, -1 - np.arange(len(rule)))
    _, first, place = np.unique(pairs, return_index=True, return_inverse=True)
    return first, place
