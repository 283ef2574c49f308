"""The loop: mutate many seeds at once, run them in one pass, and decide as if they had come one after the other.

Within a turn the first mutant that gains is accepted, in the order they were drawn; a mutant is judged by a guide that has
seen everything accepted before it. So the size of a chunk changes speed, not results. Parents are chosen from the corpus as it
was when the batch began.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from neurotest.errors import BadInput
from neurotest.generate.fuzz.control import Control
from neurotest.generate.fuzz.corpus import OUTPUT, WHOLE, Corpus, Entry, Shard
from neurotest.generate.fuzz.guides import BatchContext, GuideState
from neurotest.generate.fuzz.mutants import Mutant, Seen, Tally
from neurotest.generate.fuzz.proposals import Proposals, Turn
from neurotest.generate.fuzz.schedule import PlanSchedule, TurnSchedule
from neurotest.generate.fuzz.seeds import Seeds
from neurotest.generate.fuzz.settings import Budget, Settings
from neurotest.mutate import chain as chains
from neurotest.oracles import Oracles
from neurotest.target import Probe, Target, Trace

MOST_IDLE = 200  # batches in a row without anything new to run: the rules are exhausted
TRIM_EVERY = 32  # batches


def _trim_memory() -> None:
    """Return freed memory to the system: batches of changing sizes leave holes that glibc keeps otherwise."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)


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
        self.schedule: TurnSchedule | PlanSchedule = (
            TurnSchedule(self, purpose) if planner is None else PlanSchedule(self, planner)
        )
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
        self.tally.check_valid()
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
        if tally.batches % TRIM_EVERY == 0:
            _trim_memory()
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
        decisions = _Decisions(self, proposals, trace, verdicts, classes)
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


class _Decisions:
    """Which mutants of a batch are output, turn by turn, as if they had been run one after the other."""

    def __init__(
        self, fuzzer: Fuzzer, proposals: Proposals, trace: Trace, verdicts: NDArray[np.int64], classes: NDArray[np.int64]
    ) -> None:
        self.fuzzer, self.proposals = fuzzer, proposals
        self.verdicts, self.classes = verdicts.tolist(), classes.tolist()
        self.answers = fuzzer.seeds.answers(trace.logits).tolist() if trace.quantity else None
        self.guide_batch = fuzzer.guide.start_batch(trace)
        self.output_keys: set[int] = set()  # equal mutants of the same batch are not output again
        self.tested_rows: list[int] = []  # without those run after their turn had ended
        self.admitted: list[tuple[Turn, int, Mutant]] = []

    def decide(self, number: int) -> list[Mutant]:
        """The outputs of one turn."""
        fuzzer, turn, rows = self.fuzzer, self.fuzzer.turns[number], self.proposals.rows[number]
        if not rows:
            return []
        accepted = self._accept(turn, rows)
        stop = rows.index(accepted[-1]) + 1 if turn.accepted else len(rows)
        turn.tested += stop
        turn.ran += stop
        self.tested_rows += rows[:stop]
        outputs = []
        for row in rows:
            if row in accepted or (self.verdicts[row] >= 0 and fuzzer.settings.every_fault and self._is_new(row)):
                outputs.append(self._output(turn, row, row in accepted))
        return outputs

    def close(self) -> None:
        """Update the guide and the counters, and add new seeds to the corpus."""
        tally, draws = self.fuzzer.tally, self.proposals.draws
        self.guide_batch.close()
        tally.tested += len(self.tested_rows)
        tally.rejected += sum(self.verdicts[row] >= 0 for row in self.tested_rows)
        for kind, n in enumerate(np.bincount(draws.kind, minlength=len(draws.names)).tolist()):  # of all that ran
            if n:
                tally.tried[draws.names[kind]] += n
        self._admit()

    def _is_new(self, row: int) -> bool:
        return self.proposals.keys[row] not in self.output_keys

    def _accept(self, turn: Turn, rows: list[int]) -> list[int]:
        """The first row that gains (or all that do), each judged after what was kept before it."""
        chosen: list[int] = []
        start = 0
        while start < len(rows):
            row = self.guide_batch.keep_first([row for row in rows[start:] if self.classes[row] >= 0 and self._is_new(row)])
            if row is None:
                break
            chosen.append(row)
            self.output_keys.add(self.proposals.keys[row])
            self.fuzzer.corpus.mark_gained(turn.entry)
            if self.fuzzer.settings.accept == "first":
                turn.accepted = True
                break
            start = rows.index(row) + 1
        return chosen

    def _output(self, turn: Turn, row: int, accepted: bool) -> Mutant:
        fuzzer, proposals, root = self.fuzzer, self.proposals, turn.entry.root
        chain = (*turn.entry.chain, chains.step(fuzzer.settings.mutations, proposals.draws, row))
        verdict, (l0, l2, linf) = self.verdicts[row], proposals.distances[row].tolist()
        mutant = Mutant(
            number=fuzzer.tally.outputs, batch=fuzzer.tally.batches, iteration=turn.iteration, root=root,
            content=proposals.contents[row], x=proposals.x[row].copy(),  # a view would keep the whole batch alive
            chain=chain, label=int(fuzzer.seeds.roots.labels[root]), expected=int(fuzzer.seeds.expected[root]),
            predicted=self.classes[row], oracle=fuzzer.oracles.names[verdict] if verdict >= 0 else None,
            accepted=accepted, gain=float(self.guide_batch.gains[row]), distance=(l0, l2, linf),
            answer=None if self.answers is None else float(self.answers[row]),
        )  # fmt: skip
        self.output_keys.add(proposals.keys[row])
        fuzzer.seen.add(proposals.keys[row])
        if proposals.draws.rule is not None:
            turn.entry.set_status(int(proposals.draws.rule[row]), OUTPUT)
        fuzzer.tally.add(mutant)
        if accepted and len(chain) < fuzzer.settings.max_depth and (not mutant.fault or fuzzer.settings.reuse_failures):
            self.admitted.append((turn, row, mutant))
        return mutant

    def _admit(self) -> None:
        """Add new seeds; a mutation that is allowed once is applied to the reference image, too."""
        fuzzer, draws = self.fuzzer, self.proposals.draws
        space, seeds = fuzzer.settings.mutations, fuzzer.seeds
        once = [bool(space.once[draws.kind[row]]) for _, row, _ in self.admitted]
        # Of an unchanged seed the mutant itself is the new reference.
        changed = [
            (turn.entry, row) for (turn, row, _), first in zip(self.admitted, once, strict=True) if first and turn.entry.chain
        ]
        references: Iterator[NDArray[np.generic]] = iter(())
        if changed:
            rows, entries = np.array([row for _, row in changed]), [entry for entry, _ in changed]
            before = seeds.unit(np.stack([entry.reference for entry in entries]))
            roots = seeds.unit(np.stack([seeds.x[entry.root] for entry in entries]))
            with torch.inference_mode():
                references = iter(seeds.stored(space.apply(before, draws[rows], root=roots, levels=seeds.levels)))
        planner = fuzzer.guide.planner
        for (turn, row, mutant), first in zip(self.admitted, once, strict=True):
            reference = turn.entry.reference if not first else next(references).copy() if turn.entry.chain else mutant.x
            entry = fuzzer.corpus.add(mutant.root, mutant.x, reference, turn.entry.used or first, mutant.chain)
            if planner is not None:
                planner.admitted(row, entry)
        fuzzer.corpus.trim({turn.entry.number for turn in fuzzer.turns})
