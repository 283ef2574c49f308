"""All islands of a campaign, seen from whoever hands out their legs: rounds, what is made known to all, and one count of it.

The number of islands belongs to the campaign, not to the machine: their legs may be done by one worker or by many. Within a round
islands do not know of each other; outputs are counted in the order of the islands, and one that two of them made counts once.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neurotest.campaign.island import SUMMED, Common, FuzzerState, IslandState, Known, Leg, LegBatch, LegResult
from neurotest.coverage.criterion import Arrays
from neurotest.errors import BadInput
from neurotest.generate.fuzz.corpus import Entry
from neurotest.generate.fuzz.guides import GuideState
from neurotest.generate.fuzz.mutants import Mutant, Seen, Tally
from neurotest.generate.fuzz.seeds import Seeds
from neurotest.generate.fuzz.settings import Budget
from neurotest.mutate import chain as chains

USUAL = 8  # islands of a campaign that has workers
SHARE = 4  # a round is this part of the mutants so far: at first there is much to tell
SHORTEST_LEG = 16  # mutants of a leg
BATCHES = 2  # of a leg, at most
KNOWN = "known/"  # names of arrays in a snapshot
ISLAND = "island-{}/"


@dataclass(eq=False)
class Counted:
    """Counters over all islands, and contents of what was counted."""

    tally: Tally = field(default_factory=Tally)
    seen: Seen = field(default_factory=Seen)

    def add(self, counts: dict[str, float], tried: Any, outputs: Sequence[Mutant], island: int, of: int) -> list[Mutant]:
        """Count a batch; its outputs with their numbers in the campaign, without those that another island has made."""
        tally = self.tally
        for name in SUMMED:
            setattr(tally, name, getattr(tally, name) + counts[name])
        tally.tried.update(tried)
        kept = []
        for mutant in outputs:
            key = int(mutant.content, 16)
            if not self.seen.new([key])[0]:
                continue
            self.seen.add(key)
            number = dataclasses.replace(
                mutant, number=tally.outputs, batch=tally.batches, iteration=of * mutant.iteration + island
            )
            tally.add(number)
            kept.append(number)
        return kept


@dataclass(frozen=True)
class Round:
    """How far every leg of a round may go: so many forward passes, outputs and faults more."""

    forwards: int
    outputs: int | None = None
    faults: int | None = None

    def plain(self) -> list[int | None]:
        return [self.forwards, self.outputs, self.faults]


@dataclass(frozen=True, eq=False)
class RoundOutputs:
    """What a round added: outputs in order, which of them were recognised, and contents of the control's."""

    outputs: list[Mutant]
    recognised: list[bool]
    control: list[int]


class Islands:
    """States of all islands between two rounds; to those who watch it looks as a fuzzer does."""

    def __init__(self, common: Common, budget: Budget) -> None:
        self.common, self.budget = common, budget
        self.path: Path | None = None  # of its run
        self.workers = 1
        fuzzers = [common.fuzzer(island, budget) for island in range(common.islands)]
        self.states = [IslandState.of(fuzzer) for fuzzer in fuzzers]
        self.ended: list[str | None] = [None] * common.islands
        self.values: list[float | None] = [None] * common.islands
        self.known: Arrays = common.guide.arrays()
        seeds = [int(content, 16) for content in common.seeds.contents.tolist()]
        self.counted, self.control = Counted(seen=Seen(seeds)), Counted(seen=Seen(seeds)) if common.control else None
        self.rounds = 0

    @property
    def tally(self) -> Tally:
        return self.counted.tally

    @property
    def seeds(self) -> Seeds:
        return self.common.seeds

    @property
    def guide(self) -> GuideState:
        """What all islands learned together."""
        return self.common.guide

    @property
    def corpus(self) -> dict[int, Entry]:
        return {number: entry for state in self.states for number, entry in state.fuzzer.entries.items()}

    def value(self) -> float | None:
        """The guide's measure; of one whose islands learn by themselves, the highest."""
        values = [value for value in self.values if value is not None]
        return self.guide.value() if self.guide.shares else max(values, default=None)

    def details(self) -> dict[str, Any]:
        details = self.guide.details()
        return {**details, **({"parents": len(self.corpus)} if "parents" in details else {})}

    def about(self) -> dict[str, int]:
        return {"islands": self.common.islands, "rounds": self.rounds, "workers": self.workers}

    # -- rounds

    def spent(self, seconds: float) -> str | None:
        """What ends the campaign now, if anything does; `seconds` on the wall clock."""
        self.tally.check_valid()
        if all(self.ended):
            return next((reason for reason in self.ended if reason != "mutants"), "mutants")
        expected = None if self.budget.until_dry is None else self.guide.expected()
        if expected is not None and self.budget.until_dry is not None and expected < self.budget.until_dry:
            return "new goals"
        return self.budget.spent({**self.tally.counts(), "seconds": seconds})

    def next_round(self) -> Round:
        """A share of what was done so far, and of what is left of the budget."""
        common, tally, budget = self.common, self.tally, self.budget
        active = max(1, sum(reason is None for reason in self.ended))
        cost = max(1 + common.oracles.passes, tally.forwards / tally.tested if tally.tested else 0)
        most = BATCHES * common.settings.batch
        mutants = min(max(tally.tested // (SHARE * common.islands), SHORTEST_LEG), most)

        def left(limit: int | None, done: int) -> int | None:
            return None if limit is None else max(1, math.ceil((limit - done) / active))

        forwards = min(math.ceil(mutants * cost), left(budget.forwards, tally.forwards) or 2**62)
        return Round(forwards, left(budget.outputs, tally.outputs), left(budget.faults, tally.faults))

    def legs(self, limits: Round, deadline: float | None = None) -> list[Leg]:
        nothing = np.zeros(0, dtype=np.uint64)
        known = Known(self.known, self.counted.seen.numbers, nothing if self.control is None else self.control.seen.numbers)
        return [Leg(island, state, known, self._budget(island, limits), deadline) for island, state in enumerate(self.states)]

    def _budget(self, island: int, limits: Round) -> Budget:
        """Of one island, in its own counts. Iterations are shared once and for all."""
        done, of, total = self.states[island].fuzzer.plain["tally"], self.common.islands, self.budget.iterations
        return Budget(
            forwards=int(done["forwards"]) + limits.forwards,
            iterations=None if total is None else max(1, total // of + (island < total % of)),
            outputs=None if limits.outputs is None else int(done["outputs"]) + limits.outputs,
            faults=None if limits.faults is None else int(done["faults"]) + limits.faults,
        )

    def take(self, results: Sequence[LegResult]) -> RoundOutputs:
        """Count what the legs of a round gave, and let every island know."""
        self.rounds += 1
        outputs: list[Mutant] = []
        recognised: list[bool] = []
        control: list[int] = []
        for island, result in enumerate(results):
            for batch in result.batches:
                kept = self._count(batch, island)
                outputs += kept
                contents = {mutant.content for mutant in kept}
                pairs = zip(batch.outputs, batch.recognised, strict=False)
                recognised += [right for mutant, right in pairs if mutant.content in contents]
                control += self._count_control(batch, island)
        self._learn(results)
        return RoundOutputs(outputs, recognised, control)

    def _count(self, batch: LegBatch, island: int) -> list[Mutant]:
        counts = {**batch.counts, "seconds": batch.counts["seconds"] / self.workers}
        return self.counted.add(counts, batch.tried, batch.outputs, island, self.common.islands)

    def _count_control(self, batch: LegBatch, island: int) -> list[int]:
        if self.control is None:
            return []
        counts = {**batch.control_counts, "seconds": batch.control_counts["seconds"] / self.workers}
        kept = self.control.add(counts, batch.control_tried, batch.control_outputs, island, self.common.islands)
        return [int(mutant.content, 16) for mutant in kept]

    def _learn(self, results: Sequence[LegResult]) -> None:
        guide = self.guide
        guide.restore(self.known)
        for result in results:
            guide.learn(result.changes)
        self.known = guide.arrays()
        before = self.states
        self.states = [_whole(result.state, old) for result, old in zip(results, before, strict=True)]
        self.ended, self.values = [result.ended for result in results], [result.value for result in results]
        if guide.moves:
            new = [sorted(state.fuzzer.entries.keys() - old.fuzzer.entries.keys())
                   for state, old in zip(self.states, before, strict=True)]  # fmt: skip
            self._move(new)

    def _move(self, new: list[list[int]]) -> None:
        """Entries of this round go to islands that have fewer, until all have about as many; each has one island at a time."""
        sizes = [len(state.fuzzer.entries) for state in self.states]
        even = math.ceil(sum(sizes) / len(sizes))
        for island, numbers in enumerate(new):
            busy = {int(turn["entry"]) for turn in self.states[island].fuzzer.plain["turns"]}
            for number in reversed(numbers):
                poorest = int(np.argmin(sizes))
                if sizes[island] <= even or sizes[poorest] >= even:
                    break
                if number in busy:
                    continue
                self._give(number, self.states[island].fuzzer, self.states[poorest].fuzzer)
                self.ended[poorest] = None
                sizes[island], sizes[poorest] = sizes[island] - 1, sizes[poorest] + 1

    @staticmethod
    def _give(number: int, giver: FuzzerState, taker: FuzzerState) -> None:
        taker.entries[number] = giver.entries.pop(number)
        (pair,) = [pair for pair in giver.plain["uses"] if pair[0] == number]
        giver.plain["uses"].remove(pair)
        taker.plain["uses"].append(pair)
        taker.plain["tally"]["idle"] = 0  # there is something to do again

    # -- saving: entries are saved by the caller, those of the control as chains

    def plain(self) -> dict[str, Any]:
        return {
            "tally": self.tally.plain(), "first": self.tally.plain_first(), "rounds": self.rounds, "ended": self.ended,
            "values": self.values, "islands": [state.fuzzer.plain for state in self.states],
        }  # fmt: skip

    def control_plain(self) -> dict[str, Any] | None:
        if self.control is None:
            return None
        states = [state.control for state in self.states if state.control is not None]
        islands = [
            {**state.plain, "entries": [[e.number, e.root, chains.plain(e.chain)] for e in state.entries.values()]}
            for state in states
        ]
        return {"tally": self.control.tally.plain(), "first": self.control.tally.plain_first(), "islands": islands}

    def arrays(self) -> Arrays:
        own = {f"{ISLAND.format(i)}{name}": value for i, state in enumerate(self.states) for name, value in state.own.items()}
        return {**{f"{KNOWN}{name}": value for name, value in self.known.items()}, **own}

    def restore(
        self, plain: dict[str, Any], arrays: dict[str, NDArray[Any]], entries: dict[int, Entry], control: dict[str, Any] | None,
        contents: tuple[Sequence[int], Sequence[int]],
    ) -> None:  # fmt: skip
        """Take over what `plain`, `arrays` and `control_plain` gave, with all entries and the contents of all outputs."""
        islands, beside = plain["islands"], None if control is None else control["islands"]
        counts = {len(islands), len(self.states), len(self.states if beside is None else beside)}
        if len(counts) > 1 or (self.control is None) != (beside is None):
            raise BadInput("damaged", "snapshot", "the snapshot is of other islands: the run is damaged.")
        self.counted.tally = _tally(plain)
        self.counted.seen.update(contents[0])
        self.rounds, self.ended, self.values = int(plain["rounds"]), list(plain["ended"]), list(plain["values"])
        self.ended = [None if reason == "iterations" else reason for reason in self.ended]  # there may be more of them now
        if self.control is not None and control is not None:
            self.control.tally = _tally(control)
            self.control.seen.update(contents[1])
        self.known = _below(arrays, KNOWN)
        states = []
        for island, content in enumerate(islands):
            fuzzer = FuzzerState(content, {int(number): entries[int(number)] for number, _ in content["uses"]})
            other = None if beside is None else self._control(island, beside[island])
            states.append(IslandState(fuzzer, other, _below(arrays, ISLAND.format(island))))
        self.states = states
        self.guide.restore(self.known)

    def _control(self, island: int, plain: dict[str, Any]) -> FuzzerState:
        control = self.common.fuzzer(island, self.budget).control
        assert control is not None
        entries = control.entries(plain)
        return FuzzerState({name: value for name, value in plain.items() if name != "entries"}, entries)


def _whole(news: IslandState, before: IslandState) -> IslandState:
    control = None if news.control is None or before.control is None else news.control.whole(before.control)
    return IslandState(news.fuzzer.whole(before.fuzzer), control, news.own)


def _tally(plain: dict[str, Any]) -> Tally:
    tally = Tally.read(plain["tally"])
    tally.read_first(plain["first"])
    return tally


def _below(arrays: dict[str, NDArray[Any]], start: str) -> Arrays:
    return {name.removeprefix(start): value for name, value in arrays.items() if name.startswith(start)}
