"""Which mutants of a batch are output, decided turn by turn as if they had been run one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from neurotest.generate.fuzz.corpus import OUTPUT
from neurotest.generate.fuzz.mutants import Mutant
from neurotest.generate.fuzz.proposals import Proposals
from neurotest.generate.fuzz.turns import Turn
from neurotest.mutate import chain as chains
from neurotest.target import Trace

if TYPE_CHECKING:
    from neurotest.generate.fuzz.loop import Fuzzer


class Decisions:
    """Of one batch, after the oracles have judged it; the guide judges turn by turn."""

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
