"""The loop: mutate many seeds at once, run them in one pass, and decide as if they had come one after the other.

Within a turn the first mutant that gains is accepted, in the order they were drawn; a mutant is judged by a guide that has
seen everything accepted before it. So the size of a chunk changes speed, not results. Parents are chosen from the corpus as it
was when the batch began.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from neurotest.errors import BadInput
from neurotest.generate.fuzz.control import Control
from neurotest.generate.fuzz.corpus import WHOLE, Corpus, Entry, Shard
from neurotest.generate.fuzz.decisions import Decisions
from neurotest.generate.fuzz.guides import BatchContext, GuideState
from neurotest.generate.fuzz.memory import give_back
from neurotest.generate.fuzz.mutants import Mutant, Tally
from neurotest.generate.fuzz.proposals import Proposals
from neurotest.generate.fuzz.schedule import PlanSchedule, Schedule, TurnSchedule
from neurotest.generate.fuzz.seeds import Seeds
from neurotest.generate.fuzz.seen import Seen
from neurotest.generate.fuzz.settings import Budget, Settings
from neurotest.generate.fuzz.turns import Turn
from neurotest.oracles import Oracles
from neurotest.target import Probe, Target

MOST_IDLE = 200  # batches in a row without anything new to run: the rules are exhausted
MOST_BARREN = 16  # turns without a single valid mutant at the start


def check_valid(tally: Tally) -> None:
    """Refuse mutations of which none is valid."""
    if not tally.tested and tally.iterations >= MOST_BARREN:
        raise BadInput(
            "empty",
            "validity",
            f"no valid mutant in {tally.drawn:,} draws: loosen validity (--validity valid:alpha=0.4,beta=0.8) or choose "
            "other --mutations.",
        )


class Fuzzer:
    """A campaign in memory: `step` does one batch and gives its outputs, `tally` counts, `plain` and `restore` save it."""

    def __init__(
        self, target: Target, seeds: Seeds, guide: GuideState, oracles: Oracles, settings: Settings, budget: Budget, *,
        purpose: str = "fuzz.turn", shard: Shard = WHOLE,
    ) -> None:  # fmt: skip
        self.target, self.seeds, self.guide, self.oracles = target, seeds, guide, oracles
        self.settings, self.budget = settings, budget
        self.control: Control | None = None
        self.path: Path | None = None  # of its run
        settings.mutations.check(tuple(seeds.x.shape[1:]))
        self.corpus = Corpus(seeds, settings, shard)
        self.tally = Tally()
        self.seen = Seen(int(content, 16) for content in seeds.contents.tolist())
        planner = guide.planner
        if budget.until_dry is not None and planner is None:
            raise BadInput(
                "unsuitable",
                "until_dry",
                "until_dry: this guide does not say what it expects: take --guide goals, or another budget.",
            )
        self.schedule: Schedule = TurnSchedule(self, purpose) if planner is None else PlanSchedule(self, planner)
        self._probe = Probe(target, *guide.wants)

    @property
    def turns(self) -> list[Turn]:
        return self.schedule.turns

    @property
    def opened(self) -> int:
        """Iterations that were begun."""
        return self.schedule.opened

    def __enter__(self) -> Fuzzer:
        self._probe.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._probe.__exit__(None, None, None)

    def controlled(self) -> Fuzzer:
        """With a control; whoever drives this fuzzer calls the control's `follow`."""
        self.control = Control(self)
        return self

    def value(self) -> float | None:
        """The guide's own measure of progress."""
        return self.guide.value()

    def details(self) -> dict[str, Any]:
        """What the guide says about itself."""
        return self.guide.details()

    def about(self) -> dict[str, int]:
        """What is shown of how it works: nothing."""
        return {}

    def run(self) -> Iterator[list[Mutant]]:
        """Batches until the budget is spent."""
        while self.spent() is None:
            yield self.step()

    def spent(self, seconds: float = 0.0) -> str | None:
        """What ends the campaign now, if anything does; `seconds` are spent outside it."""
        if self.tally.idle >= MOST_IDLE:
            return "mutants"
        dry, expected = self.budget.until_dry, None if self.budget.until_dry is None else self.guide.expected()
        if dry is not None and expected is not None and expected < dry:
            return "new goals"
        counts = self.tally.counts()
        return self.budget.spent({**counts, "seconds": counts["seconds"] + seconds})

    # -- one batch

    def step(self, batch: int | None = None) -> list[Mutant]:
        """One batch: at most one forward pass over `batch` mutants; the outputs."""
        outputs = self.advance(batch)
        check_valid(self.tally)
        return outputs

    def advance(self, batch: int | None = None) -> list[Mutant]:
        """The same where others see to it that there are valid mutants at all."""
        tally = self.tally
        tally.batches += 1
        proposals = self.schedule.propose(self.settings.batch if batch is None else batch)
        outputs: list[Mutant] = []
        if proposals is not None:
            tally.idle = 0 if len(proposals.x) else tally.idle + 1
            if len(proposals.x):
                outputs = self._judge(proposals)
        self.schedule.close()
        give_back(tally.batches)
        return outputs

    def _judge(self, proposals: Proposals) -> list[Mutant]:
        """Run the mutants, let the oracles reject and the guide choose."""
        tally = self.tally
        x = self.target.prepare(proposals.x)
        trace = self._probe(x)
        with torch.inference_mode():
            verdicts = self.oracles(x, trace.logits, self.seeds.roots[proposals.roots])
        tally.forwards += len(x) * (1 + self.oracles.passes)
        verdicts, unstable = self._confirm(proposals, verdicts)
        guide_forwards = self.guide.forwards
        parents = [turn.entry for turn, rows in zip(self.turns, proposals.rows, strict=True) for _ in rows]
        classes = self.seeds.counted(trace.logits, proposals.roots, self.oracles.tolerance)
        trace = self.guide.prepare(trace, BatchContext(x, self.seeds, proposals, parents, classes, verdicts))
        decisions = Decisions(self, proposals, trace, verdicts, classes)
        outputs: list[Mutant] = []
        most_outputs, most_faults = self.budget.outputs or np.inf, self.budget.faults or np.inf
        for number in range(len(self.turns)):
            outputs += decisions.decide(number)
            if tally.outputs >= most_outputs or tally.faults >= most_faults:
                break
        decisions.close()
        tally.unstable += unstable
        tally.forwards += self.guide.forwards - guide_forwards
        return outputs

    def _confirm(self, proposals: Proposals, verdicts: NDArray[np.int64]) -> tuple[NDArray[np.int64], int]:
        """Run rejected mutants once more from what would be saved, in a batch of their own: a fault must stay one."""
        suspects = np.flatnonzero(verdicts >= 0)
        if not len(suspects):
            return verdicts, 0
        x = self.target.prepare(np.ascontiguousarray(proposals.x[suspects]))
        with torch.inference_mode():
            again = self.oracles(x, self.target.logits(x), self.seeds.roots[proposals.roots[suspects]])
        self.tally.forwards += len(x) * (1 + self.oracles.passes)
        stable = again == verdicts[suspects]
        verdicts = verdicts.copy()
        verdicts[suspects[~stable]] = -1
        return verdicts, int(np.count_nonzero(~stable))

    # -- saving: entries are saved by the caller, because most of them do not change between snapshots

    def plain(self) -> dict[str, Any]:
        """Everything but images and the guide's arrays."""
        return {
            "tally": self.tally.plain(),
            "first": self.tally.plain_first(),
            **self.schedule.plain(),
            "next": self.corpus.next,
            "uses": [[entry.number, entry.uses] for entry in self.corpus.entries],
        }

    def restore(self, plain: dict[str, Any], entries: dict[int, Entry], seen: Iterable[int]) -> None:
        """Take over what `plain` gave, with the entries it names and the contents of all outputs up to then."""
        self.tally = Tally.read(plain["tally"])
        self.tally.read_first(plain.get("first"))
        self.corpus.next = int(plain["next"])
        self.corpus.entries = [entries[int(number)] for number, _ in plain["uses"]]
        for entry, (_, uses) in zip(self.corpus.entries, plain["uses"], strict=True):
            entry.uses = int(uses)
            entry.potential = self.corpus.potential(entry.x, entry.reference)
        self.seen.update(seen)
        self.schedule.restore(plain, entries)
