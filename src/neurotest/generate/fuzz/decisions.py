"""What comes out of a batch, decided turn by turn as if its mutants had been run one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from neurotest.generate.fuzz.corpus import SPENT
from neurotest.generate.fuzz.mutants import Mutant
from neurotest.generate.fuzz.proposals import Proposed
from neurotest.generate.fuzz.turns import Turn
from neurotest.mutate import chain as chains
from neurotest.target import Trace

if TYPE_CHECKING:
    from neurotest.generate.fuzz.loop import Fuzzer


class Decisions:
    """One batch's: the oracles have spoken, the guide is asked as each turn comes."""

    def __init__(
        self, fuzzer: Fuzzer, proposed: Proposed, trace: Trace, verdicts: NDArray[np.int64], classes: NDArray[np.int64]
    ) -> None:
        self.fuzzer, self.proposed = fuzzer, proposed
        self.verdicts, self.classes = verdicts.tolist(), classes.tolist()
        self.judged = fuzzer.guide.judge(trace)
        self.here: set[int] = set()  # output: equal ones of the same batch are not output again
        self.counted: list[int] = []  # rows of turns that had not ended
        self.admitted: list[tuple[Turn, int, Mutant]] = []

    def decide(self, number: int) -> list[Mutant]:
        """What comes out of one turn's mutants."""
        fuzzer, turn, rows = self.fuzzer, self.fuzzer.turns[number], self.proposed.rows[number]
        if not rows:
            return []
        accepted = self._accept(turn, rows)
        stop = rows.index(accepted[-1]) + 1 if turn.accepted else len(rows)  # what was run after the turn had ended is not its
        turn.tested += stop
        turn.ran += stop
        self.counted += rows[:stop]
        found = []
        for row in rows:
            if row in accepted or (self.verdicts[row] >= 0 and fuzzer.settings.every_fault and self._new(row)):
                found.append(self._put_out(turn, row, row in accepted))
        return found

    def close(self) -> None:
        """The guide takes in what was kept, counters are brought up to date, new seeds enter the corpus."""
        tally, draws = self.fuzzer.tally, self.proposed.draws
        self.judged.close()
        tally.tested += len(self.counted)
        tally.rejected += sum(self.verdicts[row] >= 0 for row in self.counted)
        for kind, n in enumerate(np.bincount(draws.kind, minlength=len(draws.names)).tolist()):  # as faults are: all that ran
            if n:
                tally.tried[draws.names[kind]] += n
        self._admit()

    def _new(self, row: int) -> bool:
        return self.proposed.keys[row] not in self.here

    def _accept(self, turn: Turn, rows: list[int]) -> list[int]:
        """The first row that gains (or all that do), each judged after what was kept before it."""
        settings = self.fuzzer.settings
        chosen: list[int] = []
        start = 0
        while start < len(rows):
            row = self.judged.first([row for row in rows[start:] if self.classes[row] >= 0 and self._new(row)])
            if row is None:
                break
            chosen.append(row)
            self.here.add(self.proposed.keys[row])
            if settings.priority != "deephunter":
                turn.entry.uses += 1
            if settings.accept == "first":
                turn.accepted = True
                break
            start = rows.index(row) + 1
        return chosen

    def _put_out(self, turn: Turn, row: int, accepted: bool) -> Mutant:
        fuzzer, proposed, root = self.fuzzer, self.proposed, turn.entry.root
        chain = (*turn.entry.chain, chains.step(fuzzer.settings.mutations, proposed.draws, row))
        verdict, apart, known = self.verdicts[row], proposed.apart[row].tolist(), fuzzer.seeds.roots
        label = int(known.labels[root])
        mutant = Mutant(
            number=fuzzer.tally.outputs, batch=fuzzer.tally.batches, iteration=turn.iteration, root=root,
            content=proposed.contents[row], x=proposed.x[row].copy(),  # a view would keep the whole batch alive
            chain=chain, label=label, expected=label if label >= 0 else int(known.predicted[root]),
            predicted=self.classes[row], oracle=fuzzer.oracles.names[verdict] if verdict >= 0 else None,
            accepted=accepted, gain=float(self.judged.gains[row]), distance=(apart[0], apart[1], apart[2]),
        )  # fmt: skip
        self.here.add(proposed.keys[row])
        fuzzer.seen.add(proposed.keys[row])
        if proposed.draws.rule is not None:
            turn.entry.note(int(proposed.draws.rule[row]), SPENT)
        fuzzer.tally.add(mutant)
        if accepted and len(chain) < fuzzer.settings.max_depth and (not mutant.fault or fuzzer.settings.reuse_failures):
            self.admitted.append((turn, row, mutant))
        return mutant

    def _admit(self) -> None:
        """New seeds; after a mutation that is allowed once the reference image has gone through it, too."""
        fuzzer, draws = self.fuzzer, self.proposed.draws
        space, seeds = fuzzer.settings.mutations, fuzzer.seeds
        once = [bool(space.once[draws.kind[row]]) for _, row, _ in self.admitted]
        # of a seed that nothing was done to the mutant itself is the moved reference
        moving = [
            (turn, row) for (turn, row, _), first in zip(self.admitted, once, strict=True) if first and turn.entry.chain
        ]  # fmt: skip
        moved: Iterator[NDArray[np.generic]] = iter(())
        if moving:
            rows, entries = np.array([row for _, row in moving]), [turn.entry for turn, _ in moving]
            before, roots = (
                seeds.unit(np.stack(images)) for images in ([e.reference for e in entries], [seeds.x[e.root] for e in entries])
            )
            with torch.inference_mode():
                moved = iter(seeds.stored(space.apply(before, draws[rows], root=roots, eight_bit=seeds.eight_bit)))
        for (turn, _, mutant), first in zip(self.admitted, once, strict=True):
            reference = turn.entry.reference if not first else next(moved).copy() if turn.entry.chain else mutant.x
            fuzzer.corpus.add(mutant.root, mutant.x, reference, turn.entry.used or first, mutant.chain)
        fuzzer.corpus.trim({turn.entry.number for turn in fuzzer.turns})
