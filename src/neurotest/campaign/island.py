"""One island of a campaign, by whichever worker there is.

A campaign in islands has several fuzzers, each with its own share of the seeds and its own random streams. They work in rounds:
every island does a leg, then what the guides learned is made known to all. A leg is a function of the state that its island had
when it began and of what was known then, so it does not matter who does it, nor whether somebody began it in vain.
"""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from neurotest import rng
from neurotest.coverage.criterion import Arrays
from neurotest.generate.fuzz.corpus import Entry, Shard
from neurotest.generate.fuzz.guides import GuideState
from neurotest.generate.fuzz.loop import Fuzzer
from neurotest.generate.fuzz.mutants import MOST_BARREN, Key, Mutant, Seen, Tally
from neurotest.generate.fuzz.seeds import Seeds
from neurotest.generate.fuzz.settings import Budget, Settings
from neurotest.oracles import Oracles
from neurotest.target import Target

NOTHING: NDArray[np.generic] = np.empty(0, dtype=np.uint8)  # in place of an image that nobody needs
# Counted by the fuzzer of an island; everything else is counted when outputs of all islands come together.
SUMMED = ("batches", "iterations", "forwards", "tested", "drawn", "valid", "rounds", "unstable", "rejected", "seconds")
FEW = 8  # mutants that are no batch: a leg ends sooner
FINAL = ("mutants", "iterations")  # what an island may run out of


def never() -> bool:
    return False


class Judge(Protocol):
    def recognised(self, outputs: Sequence[Mutant]) -> list[bool]:
        """Which outputs are still given their class."""


@dataclass(frozen=True, eq=False)
class Common:
    """What all islands have in common. keep: images per family. stop: asked after every batch, where legs are done in the
    user's own process."""

    target: Target
    seeds: Seeds
    guide: GuideState
    oracles: Oracles
    settings: Settings
    islands: int
    control: bool
    keep: int
    judge: Judge | None = None
    stop: Callable[[], bool] = field(default=never)

    def fuzzer(self, island: int, budget: Budget) -> Fuzzer:
        """The fuzzer of an island as it begins."""
        seed = int(rng.stream("fuzz.island", self.settings.seed, island, self.islands).integers(2**62))
        settings = dataclasses.replace(self.settings, seed=seed, capacity=max(1, self.settings.capacity // self.islands))
        self.guide.islands = self.islands
        fuzzer = Fuzzer(self.target, self.seeds, self.guide, self.oracles, settings, budget, shard=Shard(island, self.islands))
        return fuzzer.controlled() if self.control else fuzzer


@dataclass(frozen=True, eq=False)
class FuzzerState:
    """Where a fuzzer stands between two legs: what its `plain` gives, and its entries by number."""

    plain: dict[str, Any]
    entries: dict[int, Entry]

    @classmethod
    def of(cls, fuzzer: Fuzzer) -> FuzzerState:
        plain = {**fuzzer.plain(), "first": None}  # what came first is counted over all islands
        return cls(plain, {entry.number: entry for entry in fuzzer.corpus.entries})

    def restore(self, fuzzer: Fuzzer, seen: NDArray[np.uint64]) -> None:
        fuzzer.restore(self.plain, self.entries, ())
        fuzzer.seen = Seen.of(seen)

    def news(self, before: FuzzerState) -> FuzzerState:
        """Without the images that are known from before; of those, what their rules made."""
        entries = {
            number: entry if number not in before.entries else dataclasses.replace(entry, x=NOTHING, reference=NOTHING)
            for number, entry in self.entries.items()
        }
        return FuzzerState(self.plain, entries)

    def whole(self, before: FuzzerState) -> FuzzerState:
        """The inverse of `news`."""
        entries = {}
        for number, entry in self.entries.items():
            if number in before.entries:
                old = before.entries[number]
                entry = dataclasses.replace(entry, x=old.x, reference=old.reference)
            entries[number] = entry
        return FuzzerState(self.plain, entries)


@dataclass(frozen=True, eq=False)
class IslandState:
    """own: what the guide knows for this island alone."""

    fuzzer: FuzzerState
    control: FuzzerState | None
    own: Arrays

    @classmethod
    def of(cls, fuzzer: Fuzzer) -> IslandState:
        control = None if fuzzer.control is None else FuzzerState.of(fuzzer.control.fuzzer)
        return cls(FuzzerState.of(fuzzer), control, fuzzer.guide.island_arrays())


@dataclass(frozen=True, eq=False)
class Known:
    """What all islands know when a round begins: the guide's arrays, and contents of all outputs, of the control's, too."""

    guide: Mapping[str, NDArray[Any]]
    seen: NDArray[np.uint64]
    control_seen: NDArray[np.uint64]


@dataclass(frozen=True, eq=False)
class Leg:
    """budget: of this island, in its own counts. deadline: of `time.time`."""

    island: int
    state: IslandState
    known: Known
    budget: Budget
    deadline: float | None = None


@dataclass(frozen=True, eq=False)
class LegBatch:
    """What one batch added to the counters, and its outputs; the same of the control. recognised: by the judge."""

    counts: dict[str, float]
    tried: Counter[str]
    outputs: list[Mutant]
    recognised: list[bool]
    control_counts: dict[str, float]
    control_tried: Counter[str]
    control_outputs: list[Mutant]


@dataclass(frozen=True, eq=False)
class LegResult:
    """state: without images that are known already. changes: what the guide learned. ended: why the island cannot go on."""

    state: IslandState
    changes: Arrays
    batches: list[LegBatch]
    value: float | None
    ended: str | None


def run_leg(common: Common, leg: Leg) -> LegResult | None:
    """One leg; None if it was stopped on the way."""
    fuzzer = common.fuzzer(leg.island, leg.budget)
    leg.state.fuzzer.restore(fuzzer, leg.known.seen)
    if fuzzer.control is not None and leg.state.control is not None:
        leg.state.control.restore(fuzzer.control.fuzzer, leg.known.control_seen)
    guide = common.guide
    guide.restore({**leg.known.guide, **leg.state.own})
    guide.begin_leg()
    batches: list[LegBatch] = []
    images: Counter[Key] = Counter()
    took = 0.0
    with fuzzer:
        while (ended := _ended(fuzzer)) is None:
            if common.stop():
                return None
            began, room = time.time(), _room(fuzzer)
            if (batches and room < FEW) or (leg.deadline is not None and began + took > leg.deadline):
                break
            batches.append(_batch(common, fuzzer, images, max(room, FEW)))
            took = time.time() - began
    state = IslandState.of(fuzzer)
    before = leg.state
    control = None if state.control is None or before.control is None else state.control.news(before.control)
    news = IslandState(state.fuzzer.news(before.fuzzer), control, state.own)
    return LegResult(news, guide.changes(), batches, guide.value(), ended if ended in FINAL else None)


def _ended(fuzzer: Fuzzer) -> str | None:
    if not fuzzer.tally.tested and fuzzer.tally.iterations >= MOST_BARREN:
        return "mutants"
    return fuzzer.spent()


def _room(fuzzer: Fuzzer) -> int:
    """Mutants that the passes left to the leg are enough for, by what one took so far: faults are run twice, guides run more."""
    tally, cost = fuzzer.tally, float(1 + fuzzer.oracles.passes)
    if tally.tested:
        cost = max(cost, tally.forwards / tally.tested)
    assert fuzzer.budget.forwards is not None
    return min(fuzzer.settings.batch, int((fuzzer.budget.forwards - tally.forwards) / cost))


def _batch(common: Common, fuzzer: Fuzzer, images: Counter[Key], most: int) -> LegBatch:
    before, control = _Counted(fuzzer.tally), fuzzer.control
    began = time.perf_counter()
    outputs = fuzzer.advance(most)
    fuzzer.tally.seconds += time.perf_counter() - began
    recognised = [] if common.judge is None else common.judge.recognised(outputs)
    counts, tried = before.since()
    beside: tuple[dict[str, float], Counter[str], list[Mutant]] = ({}, Counter(), [])
    if control is not None:
        control_before = _Counted(control.tally)
        control_outputs = [_light(mutant) for mutant in control.catch_up(control.level(fuzzer.tally))]
        beside = (*control_before.since(), control_outputs)
    return LegBatch(counts, tried, [_needed(mutant, images, common.keep) for mutant in outputs], recognised, *beside)


class _Counted:
    """Counters at some moment."""

    def __init__(self, tally: Tally) -> None:
        self.tally, self.counts, self.tried = tally, tally.counts(), Counter(tally.tried)

    def since(self) -> tuple[dict[str, float], Counter[str]]:
        """What was added since then."""
        now = self.tally.counts()
        return {name: now[name] - self.counts[name] for name in SUMMED}, self.tally.tried - self.tried


def _light(mutant: Mutant) -> Mutant:
    return dataclasses.replace(mutant, x=NOTHING)


def _needed(mutant: Mutant, images: Counter[Key], keep: int) -> Mutant:
    """With its image only if that may be written: the first faults of each family."""
    images[mutant.family] += mutant.fault
    return mutant if mutant.fault and images[mutant.family] <= keep else _light(mutant)
