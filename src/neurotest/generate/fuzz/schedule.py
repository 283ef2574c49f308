"""Where the mutants of a batch come from: seeds take turns and draw them at random, or the guide plans parents and rules."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np

from neurotest.generate.fuzz.corpus import Entry
from neurotest.generate.fuzz.guides import Planner
from neurotest.generate.fuzz.proposals import Proposals, Proposer, Turn, TurnStream

if TYPE_CHECKING:
    from neurotest.generate.fuzz.loop import Fuzzer

RECENT_TURNS = 64  # finished turns that decide how large a chunk is
MOST_TURNS = 4  # times as many turns as a batch would hold if each gave a full chunk


class _Schedule(ABC):
    """Opens the turns of a batch and makes their mutants; after the batch was judged it closes those that are done."""

    def __init__(self, fuzzer: Fuzzer) -> None:
        self.fuzzer = fuzzer
        self.opened = 0  # iterations that were begun
        self.turns: list[Turn] = []
        self.proposer = Proposer(fuzzer.seeds, fuzzer.settings, fuzzer.target.device)

    @abstractmethod
    def propose(self, batch: int) -> Proposals | None:
        """The mutants of the next batch, at most so many; None without any turn."""

    @abstractmethod
    def close(self) -> None:
        """The batch is over: turns that are done end."""

    def plain(self) -> dict[str, Any]:
        return {"opened": self.opened, "turns": [turn.plain() for turn in self.turns]}

    def restore(self, plain: dict[str, Any], entries: dict[int, Entry]) -> None:
        self.opened = int(plain["opened"])

    def _room(self, most: int) -> int:
        """How many iterations may be begun."""
        limit = self.fuzzer.budget.iterations
        return most if limit is None else min(most, limit - self.opened)


class TurnSchedule(_Schedule):
    """Seeds of the corpus take turns, several at once; each draws its mutations from a stream of its own."""

    def __init__(self, fuzzer: Fuzzer, purpose: str) -> None:
        super().__init__(fuzzer)
        self.lengths: deque[int] = deque(maxlen=RECENT_TURNS)
        self.purpose = purpose

    def _stream(self, iteration: int) -> TurnStream:
        return TurnStream(self.purpose, self.fuzzer.settings.seed, iteration)

    def propose(self, batch: int) -> Proposals | None:
        fuzzer, chunk = self.fuzzer, min(self.chunk(), batch)
        self._open(self._most(chunk, batch))
        return self.proposer.propose(self.turns, chunk, batch, fuzzer.tally, fuzzer.seen) if self.turns else None

    def chunk(self) -> int:
        """Mutants per turn and batch: about as many as turns took lately, so that few are run for nothing."""
        if not self.lengths:
            return min(self.fuzzer.guide.usual, self.fuzzer.settings.chunk)
        return int(np.clip(np.ceil(np.mean(self.lengths)), 1, self.fuzzer.settings.chunk))

    def _most(self, chunk: int, batch: int) -> int:
        """Turns at once: about so many that their mutants fill a batch."""
        least, tally = max(1, batch // chunk), self.fuzzer.tally
        per_turn = tally.valid / tally.rounds if tally.rounds else chunk
        return int(np.clip(batch / max(per_turn, 1e-9), least, MOST_TURNS * least))

    def _open(self, most: int) -> None:
        new = self._room(max(0, most - len(self.turns)))
        if not new:
            return
        numbers, corpus = range(self.opened, self.opened + new), self.fuzzer.corpus
        streams = [self._stream(i) for i in numbers]
        entries = corpus.pick(np.array([stream.random() for stream in streams]))  # the first draw of a turn chooses its entry
        for iteration, entry, stream in zip(numbers, entries, streams, strict=True):
            self.turns.append(Turn(iteration, entry, corpus.energy(entry), stream))
        self.opened += new

    def close(self) -> None:
        for turn in [turn for turn in self.turns if turn.done]:
            self.fuzzer.tally.iterations += 1
            if not turn.ran:
                self.fuzzer.corpus.mark_exhausted(turn.entry)
            self.lengths.append(max(1, turn.ran))
        self.turns = [turn for turn in self.turns if not turn.done]

    def plain(self) -> dict[str, Any]:
        return {**super().plain(), "lengths": list(self.lengths)}

    def restore(self, plain: dict[str, Any], entries: dict[int, Entry]) -> None:
        super().restore(plain, entries)
        self.lengths = deque((int(n) for n in plain["lengths"]), maxlen=RECENT_TURNS)
        self.turns = []
        for turn in plain["turns" if "turns" in plain else "lanes"]:
            stream = self._stream(int(turn["iteration"]))
            stream.random()  # the draw that chose the entry
            self.turns.append(Turn(random=stream, **{**turn, "entry": entries[int(turn["entry"])]}))


class PlanSchedule(_Schedule):
    """The guide says which entries get which mutations; every mutant is a turn of its own, over when it was run."""

    def __init__(self, fuzzer: Fuzzer, planner: Planner) -> None:
        super().__init__(fuzzer)
        self.planner = planner
        planner.begin(fuzzer.target, fuzzer.seeds, fuzzer.settings)

    def propose(self, batch: int) -> Proposals | None:
        fuzzer = self.fuzzer
        room = self._room(batch)
        if not room:
            return None
        plan = self.planner.plan(fuzzer.corpus, room, fuzzer.tally.batches)
        proposals, valid = self.proposer.make_planned(plan.entries, plan.draws, fuzzer.tally, fuzzer.seen)
        self.planner.checked(valid)
        chosen = [plan.entries[int(i)] for i in proposals.owner]
        self.turns = [Turn(self.opened + i, entry, 1, None) for i, entry in enumerate(chosen)]
        self.opened += len(chosen)
        return proposals

    def close(self) -> None:
        self.fuzzer.tally.iterations += sum(turn.done for turn in self.turns)
        self.turns = []
        self.fuzzer.corpus.drop(self.planner.retired())
