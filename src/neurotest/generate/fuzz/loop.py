"""The loop: mutate many seeds at once, run them in one pass, and decide as if they had come one after the other.

Within a turn the first mutant that gains is accepted, in the order they were drawn; a mutant is judged by a guide that has
seen everything accepted before it. So the size of a chunk changes speed, not results. Parents are chosen from the corpus as it
was when the batch began.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from neurotest.errors import BadInput
from neurotest.generate.fuzz.control import Control
from neurotest.generate.fuzz.corpus import Corpus, Entry
from neurotest.generate.fuzz.decisions import Decisions
from neurotest.generate.fuzz.guides import BatchContext, GuideState
from neurotest.generate.fuzz.memory import give_back
from neurotest.generate.fuzz.mutants import Mutant, Tally
from neurotest.generate.fuzz.proposals import Proposals, Proposer
from neurotest.generate.fuzz.seeds import Seeds
from neurotest.generate.fuzz.seen import Seen
from neurotest.generate.fuzz.settings import Budget, Settings
from neurotest.generate.fuzz.turns import Turn, TurnStreams
from neurotest.oracles import Oracles, predicted
from neurotest.target import Probe, Target

RECENT_TURNS = 64  # finished turns that decide how large a chunk is
MOST_TURNS = 4  # times as many turns as a batch would hold if each gave a full chunk
MOST_IDLE = 200  # batches in a row without anything new to run: the rules are exhausted
MOST_BARREN = 16  # turns without a single valid mutant at the start


class Fuzzer:
    """A campaign in memory: `step` does one batch and gives its outputs, `tally` counts, `plain` and `restore` save it."""

    def __init__(
        self, target: Target, seeds: Seeds, guide: GuideState, oracles: Oracles, settings: Settings, budget: Budget, *,
        purpose: str = "fuzz.turn",
    ) -> None:  # fmt: skip
        self.target, self.seeds, self.guide, self.oracles = target, seeds, guide, oracles
        self.settings, self.budget = settings, budget
        self.control: Control | None = None
        settings.mutations.check(tuple(seeds.x.shape[1:]))
        self.corpus = Corpus(seeds, settings)
        self.tally = Tally()
        self.opened = 0  # iterations that were begun
        self.turns: list[Turn] = []
        self.lengths: deque[int] = deque(maxlen=RECENT_TURNS)
        self.seen = Seen(int(content, 16) for content in seeds.contents.tolist())
        self._streams = TurnStreams(purpose, settings.seed)
        self._proposer = Proposer(seeds, settings, target.device)
        self._probe = Probe(target, *([guide.want] if guide.want is not None else []))

    def __enter__(self) -> Fuzzer:
        self._probe.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._probe.__exit__(None, None, None)

    def controlled(self) -> Fuzzer:
        """With a control; whoever drives this fuzzer calls the control's `follow`."""
        self.control = Control(self)
        return self

    def run(self) -> Iterator[list[Mutant]]:
        """Batches until the budget is spent."""
        while self.spent() is None:
            yield self.step()

    def spent(self, seconds: float = 0.0) -> str | None:
        """What ends the campaign now, if anything does; `seconds` are spent outside it."""
        if self.tally.idle >= MOST_IDLE:
            return "mutants"
        counts = self.tally.counts()
        return self.budget.spent({**counts, "seconds": counts["seconds"] + seconds})

    # -- one batch

    def step(self, batch: int | None = None) -> list[Mutant]:
        """One batch: at most one forward pass over `batch` mutants; the outputs."""
        batch = self.settings.batch if batch is None else batch
        chunk = min(self._chunk(), batch)
        self._open(self._turns(chunk, batch))
        tally = self.tally
        tally.batches += 1
        outputs: list[Mutant] = []
        if self.turns:
            proposals = self._proposer.propose(self.turns, chunk, batch, tally, self.seen)
            tally.idle = 0 if len(proposals.x) else tally.idle + 1
            if len(proposals.x):
                outputs = self._judge(proposals)
        self._close()
        give_back(tally.batches)
        if not tally.tested and tally.iterations >= MOST_BARREN:
            raise BadInput(
                f"no valid mutant in {tally.drawn:,} draws: loosen validity (--validity valid:alpha=0.4,beta=0.8) or choose "
                "other --mutations."
            )
        return outputs

    def _chunk(self) -> int:
        """Mutants per turn and batch: about as many as turns took lately, so that few are run for nothing."""
        if not self.lengths:
            return min(self.guide.usual, self.settings.chunk)
        return int(np.clip(np.ceil(np.mean(self.lengths)), 1, self.settings.chunk))

    def _turns(self, chunk: int, batch: int) -> int:
        """Turns at once: about so many that their mutants fill a batch."""
        least = max(1, batch // chunk)
        per_turn = self.tally.valid / self.tally.rounds if self.tally.rounds else chunk
        return int(np.clip(batch / max(per_turn, 1e-9), least, MOST_TURNS * least))

    def _open(self, most: int) -> None:
        limit = self.budget.iterations
        new = max(0, most - len(self.turns))
        if limit is not None:
            new = min(new, limit - self.opened)
        if not new:
            return
        numbers = range(self.opened, self.opened + new)
        streams = [self._streams.of(i) for i in numbers]
        entries = self.corpus.pick(
            np.array([stream.random() for stream in streams])
        )  # the first draw of a turn chooses its entry
        for iteration, entry, stream in zip(numbers, entries, streams, strict=True):
            self.turns.append(Turn(iteration, entry, self.corpus.energy(entry), stream))
        self.opened += new

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
        trace = self.guide.prepare(trace, BatchContext(x, self.seeds, proposals.roots, parents))
        decisions = Decisions(self, proposals, trace, verdicts, predicted(trace.logits))
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

    def _close(self) -> None:
        for turn in [turn for turn in self.turns if turn.done]:
            self.tally.iterations += 1
            if not turn.ran:
                self.corpus.mark_exhausted(turn.entry)
            self.lengths.append(max(1, turn.ran))
        self.turns = [turn for turn in self.turns if not turn.done]

    # -- saving: entries are saved by the caller, because most of them do not change between snapshots

    def plain(self) -> dict[str, Any]:
        """Everything but images and the guide's arrays."""
        return {
            "tally": self.tally.plain(),
            "opened": self.opened,
            "lengths": list(self.lengths),
            "turns": [turn.plain() for turn in self.turns],
            "next": self.corpus.next,
            "uses": [[entry.number, entry.uses] for entry in self.corpus.entries],
        }

    def restore(self, plain: dict[str, Any], entries: dict[int, Entry], seen: Iterable[int]) -> None:
        """Take over what `plain` gave, with the entries it names and the contents of all outputs up to then."""
        self.tally = Tally.read(plain["tally"])
        self.opened, self.corpus.next = int(plain["opened"]), int(plain["next"])
        self.lengths = deque((int(n) for n in plain["lengths"]), maxlen=RECENT_TURNS)
        self.corpus.entries = [entries[int(number)] for number, _ in plain["uses"]]
        for entry, (_, uses) in zip(self.corpus.entries, plain["uses"], strict=True):
            entry.uses = int(uses)
            entry.potential = self.corpus.potential(entry.x, entry.reference)
        self.seen.update(seen)
        self.turns = []
        for turn in plain["turns" if "turns" in plain else "lanes"]:
            stream = self._streams.of(int(turn["iteration"]))
            stream.random()  # the draw that chose the entry
            self.turns.append(Turn(random=stream, **{**turn, "entry": entries[int(turn["entry"])]}))
