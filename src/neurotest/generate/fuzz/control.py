"""The control of a campaign: random at equal budget.

Another fuzzer with the same target, seeds, oracles and settings, but a guide that keeps everything, and a corpus and random
streams of its own. After each batch of the guided fuzzer it catches up in forward passes, with at most two mutants for each of
the guided one's. Its faults are counted, not kept.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from neurotest.errors import BadInput
from neurotest.generate.fuzz.corpus import Entry
from neurotest.generate.fuzz.guides import KeepAll
from neurotest.generate.fuzz.mutants import Mutant, Tally
from neurotest.generate.fuzz.settings import Budget
from neurotest.mutate import chain as chains
from neurotest.mutate.chain import Chain

if TYPE_CHECKING:
    from neurotest.generate.fuzz.loop import Fuzzer

PURPOSE = "fuzz.control"  # of its random streams
ENDLESS = Budget(forwards=2**62)
# A guide that runs the network itself makes many more passes than mutants: these keep the control from costing as much.
MOST_MUTANTS = 2  # for each of the guided fuzzer's
MOST_BATCH = 2  # times the guided fuzzer's batch
MOST_BATCHES = 64  # per batch of the guided fuzzer
REPLAYED_AT_ONCE = 256  # images replayed together


class Control:
    """Makes as many forward passes as the fuzzer it belongs to."""

    def __init__(self, fuzzer: Fuzzer) -> None:
        kind, settings = type(fuzzer), fuzzer.settings
        self.fuzzer = kind(
            fuzzer.target, fuzzer.seeds, KeepAll(), fuzzer.oracles, settings, ENDLESS, purpose=PURPOSE, shard=fuzzer.corpus.shard
        )

    @property
    def tally(self) -> Tally:
        return self.fuzzer.tally

    def level(self, guided: Tally) -> int:
        """The forward passes it should have made by now."""
        return min(guided.forwards, MOST_MUTANTS * guided.tested * (1 + self.fuzzer.oracles.passes))

    def follow(self, forwards: int) -> list[int]:
        """Catch up to so many forward passes; the contents of its outputs, as numbers."""
        return [int(mutant.content, 16) for mutant in self.catch_up(forwards)]

    def catch_up(self, forwards: int) -> list[Mutant]:
        """The same; its outputs."""
        fuzzer, began = self.fuzzer, time.perf_counter()
        most, small = MOST_BATCH * fuzzer.settings.batch, fuzzer.settings.batch // 4
        outputs: list[Mutant] = []
        for attempt in range(MOST_BATCHES):  # a batch is not always filled
            room = (forwards - self.tally.forwards) // (1 + fuzzer.oracles.passes)
            if room <= 0 or (attempt and room < small):
                break
            outputs += fuzzer.advance(min(room, most))
        self.tally.seconds += time.perf_counter() - began
        return outputs

    # -- saving: images are replayed from their chains

    def plain(self) -> dict[str, Any]:
        entries = [[entry.number, entry.root, chains.plain(entry.chain)] for entry in self.fuzzer.corpus.entries]
        return {**self.fuzzer.plain(), "entries": entries}

    def restore(self, plain: dict[str, Any], keys: list[int]) -> None:
        """Take over what `plain` gave, and the contents of all outputs up to then."""
        self.fuzzer.restore(plain, self.entries(plain), keys)

    def entries(self, plain: dict[str, Any]) -> dict[int, Entry]:
        """The entries that `plain` gave, made again."""
        lineages = [(int(number), int(root), chains.read(chain)) for number, root, chain in plain["entries"]]
        seeds, space = self.fuzzer.seeds, self.fuzzer.settings.mutations
        if any(not 0 <= root < len(seeds) for _, root, _ in lineages):
            raise BadInput(
                "damaged", "control", "the snapshot of the control names seeds that are not there: the run is damaged."
            )
        once = [tuple(step for step in chain if space.find(step.operator).once) for _, _, chain in lineages]
        images = self._replay([(root, chain) for _, root, chain in lineages])
        references = self._replay([(root, chain) for (_, root, _), chain in zip(lineages, once, strict=True)])
        return {
            number: Entry(number, root, x, reference, bool(steps), chain)
            for (number, root, chain), steps, x, reference in zip(lineages, once, images, references, strict=True)
        }

    def _replay(self, lineages: list[tuple[int, Chain]]) -> list[Any]:
        seeds, mutations = self.fuzzer.seeds, self.fuzzer.settings.mutations
        images: list[Any] = []
        for start in range(0, len(lineages), REPLAYED_AT_ONCE):
            part = lineages[start : start + REPLAYED_AT_ONCE]
            roots = seeds.unit(np.ascontiguousarray(seeds.x[[root for root, _ in part]]))
            with torch.inference_mode():
                x = chains.replay(mutations, roots, [chain for _, chain in part], levels=seeds.levels)
            images += [image.copy() for image in seeds.stored(x)]
        return images
