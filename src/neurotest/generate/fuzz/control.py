"""The control of a campaign: random at equal budget.

Another fuzzer with the same target, seeds, oracles and settings, but a guide that takes anything, a corpus and random streams
of its own. After each batch of the guided one it makes as many forward passes as that has made, or two mutants for each of
its mutants, whichever is less. Its faults are counted, not kept.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from neurotest.errors import BadInput
from neurotest.generate.fuzz.corpus import Entry
from neurotest.generate.fuzz.guides import Anything
from neurotest.generate.fuzz.mutants import Tally
from neurotest.generate.fuzz.settings import Budget
from neurotest.mutate import chain as chains
from neurotest.mutate.chain import Chain

if TYPE_CHECKING:
    from neurotest.generate.fuzz.loop import Fuzzer

PURPOSE = "fuzz.control"  # of its random streams
ENDLESS = Budget(forwards=2**62)
MOST = 2  # mutants for each of the guided one: beside a guide that runs the network itself it would cost many times as much
LARGE = 2  # times the guided fuzzer's batch, at most: a guide that runs the network itself gets far ahead
OFTEN = 64  # batches of its own per batch of the guided one, at most
AT_ONCE = 256  # images made again in one go


class Control:
    """Keeps level with a fuzzer, pass for pass."""

    def __init__(self, fuzzer: Fuzzer) -> None:
        kind = type(fuzzer)
        self.fuzzer = kind(
            fuzzer.target, fuzzer.seeds, Anything(), fuzzer.oracles, fuzzer.settings, ENDLESS, purpose=PURPOSE
        )  # fmt: skip

    @property
    def tally(self) -> Tally:
        return self.fuzzer.tally

    def level(self, guided: Tally) -> int:
        """The forward passes it should have made by now."""
        return min(guided.forwards, MOST * guided.tested * (1 + self.fuzzer.oracles.passes))

    def follow(self, forwards: int) -> list[int]:
        """As many mutants as it lags behind; the contents of what came out, as numbers."""
        fuzzer, began = self.fuzzer, time.perf_counter()
        most, small = LARGE * fuzzer.settings.batch, fuzzer.settings.batch // 4
        found: list[int] = []
        for attempt in range(OFTEN):  # a batch is not always filled
            room = (forwards - self.tally.forwards) // (1 + fuzzer.oracles.passes)
            if room <= 0 or (attempt and room < small):
                break
            found += [int(mutant.content, 16) for mutant in fuzzer.step(min(room, most))]
        self.tally.seconds += time.perf_counter() - began
        return found

    # -- saving it: images are made again from their chains

    def plain(self) -> dict[str, Any]:
        entries = [[entry.number, entry.root, chains.plain(entry.chain)] for entry in self.fuzzer.corpus.entries]
        return {**self.fuzzer.plain(), "entries": entries}

    def restore(self, plain: dict[str, Any], keys: list[int]) -> None:
        """Take over what `plain` gave, and the contents of all outputs up to then."""
        told = [(int(number), int(root), chains.read(chain)) for number, root, chain in plain["entries"]]
        seeds, space = self.fuzzer.seeds, self.fuzzer.settings.mutations
        if any(not 0 <= root < len(seeds) for _, root, _ in told):
            raise BadInput("the snapshot of the control names seeds that are not there: the run is damaged.")
        moves = [tuple(step for step in chain if space.find(step.operator).once) for _, _, chain in told]
        images = self._made([(root, chain) for _, root, chain in told])
        references = self._made([(root, chain) for (_, root, _), chain in zip(told, moves, strict=True)])
        entries = {
            number: Entry(number, root, x, reference, bool(move), chain)
            for (number, root, chain), move, x, reference in zip(told, moves, images, references, strict=True)
        }
        self.fuzzer.restore(plain, entries, keys)

    def _made(self, told: list[tuple[int, Chain]]) -> list[Any]:
        seeds = self.fuzzer.seeds
        found: list[Any] = []
        for start in range(0, len(told), AT_ONCE):
            part = told[start : start + AT_ONCE]
            roots = seeds.unit(np.ascontiguousarray(seeds.x[[root for root, _ in part]]))
            with torch.inference_mode():
                made = chains.replay(
                    self.fuzzer.settings.mutations, roots, [chain for _, chain in part], eight_bit=seeds.eight_bit
                )  # fmt: skip
            found += [x.copy() for x in seeds.stored(made)]
        return found
