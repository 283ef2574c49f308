"""The loop of a campaign in islands: round after round by whichever workers there are, into the one run.

A round is one transaction. Whoever resumes goes back to the last snapshot and repeats the rounds since, which gives the same,
because a leg is a function of its island's state; how far each of them went stands in the run.
"""

from __future__ import annotations

import dataclasses
import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from neurotest.campaign.driver import Watched, Writer, unfit
from neurotest.campaign.island import Leg, LegResult, run_leg
from neurotest.campaign.islands import Islands, Round
from neurotest.campaign.store import Store
from neurotest.errors import BadInput
from neurotest.executor import Serial, current
from neurotest.generate.fuzz.mutants import Mutant

ROUNDS = "rounds"  # entry of the run: those since the last snapshot


class Legs(Iterator[Leg]):
    """Those that may be begun now; at the end of a round there are more."""

    def __init__(self) -> None:
        self._waiting: deque[Leg] = deque()

    def extend(self, legs: Iterable[Leg]) -> None:
        self._waiting.extend(legs)

    def __next__(self) -> Leg:
        if not self._waiting:
            raise StopIteration
        return self._waiting.popleft()


@dataclass(eq=False, kw_only=True)
class IslandDriver(Writer):
    """Runs all islands of a campaign and writes their outputs."""

    islands: Islands
    repeat: list[Round] = field(default_factory=list)  # rounds after the snapshot that was resumed: their rows are there
    _since: list[Round] = field(default_factory=list)  # the snapshot
    _limits: Round = field(default_factory=lambda: Round(1))

    def __post_init__(self) -> None:
        self.islands.path = None if self.store is None else self.store.run.path

    @property
    def campaign(self) -> Watched:
        return self.islands

    def run(self) -> str:
        executor, began = current(), time.monotonic()
        self.islands.workers = executor.workers
        common = self.islands.common
        if isinstance(executor, Serial):
            common = dataclasses.replace(common, stop=self.stop)
        legs = Legs()
        self._saved = began
        if not self.repeat:
            self.clock.started(0.0)
        spent = self._begin(legs)
        results: list[LegResult] = []
        for _, result in executor.run(run_leg, common, legs):  # without more legs it comes to its end by itself
            if result is None or self.stop():
                spent = "interrupted"
                break
            results.append(result)
            if len(results) == len(self.islands.states):
                self._round(results, began)
                results = []
                spent = self._begin(legs)
        if not self.repeat:  # otherwise the run is further than this
            self.finish()
        assert spent is not None
        return spent

    def _begin(self, legs: Legs) -> str | None:
        """The next round, or what ends the campaign."""
        islands, budget = self.islands, self.islands.budget
        if self.repeat:
            self._limits = self.repeat[0]
            legs.extend(islands.legs(self._limits))
            return None
        if (spent := islands.spent(self.clock.total())) is not None:
            return spent
        self._limits = islands.next_round()
        seconds = budget.seconds
        # The first round of all may take longer than there is time, so that there is one.
        deadline = None if seconds is None or not islands.rounds else time.time() + seconds - self.clock.total()
        legs.extend(islands.legs(self._limits, deadline))
        return None

    def _round(self, results: list[LegResult], began: float) -> None:
        """Count a finished round and write it."""
        families = set(self.islands.tally.families)
        news = self.islands.take(results)
        if self.believed is not None:
            self.believed.count(news.outputs, news.recognised)
        self._since.append(self._limits)
        if self.repeat:
            self.repeat.pop(0)
            if not self.repeat:
                self.clock.started(time.monotonic() - began)
            return
        if self.store is not None:
            with self.clock.spending("saving"):
                self.write(self.store, news.outputs, news.control)
        if self.watch is not None:
            self._show(news.outputs, families)

    def _show(self, outputs: list[Mutant], families: set[tuple[int, int, str]]) -> None:
        assert self.watch is not None
        self.watch(self.islands, outputs, self.new_families(outputs, families))

    # -- saving

    def save_state(self, store: Store, believed: list[list[int]] | None) -> None:
        islands = self.islands
        plain = {**islands.plain(), "believed": believed}
        store.snapshot(plain, islands.arrays(), islands.corpus.values(), islands.control_plain())
        self._since = []

    def _progress(self) -> None:
        super()._progress()
        assert self.store is not None
        self.store.run[ROUNDS] = [limits.plain() for limits in self._since]

    def restore(self) -> None:
        store, islands = self.store, self.islands
        assert store is not None
        run = store.run
        snapshot = store.read_snapshot(islands.seeds)
        try:
            if snapshot is not None:
                batch = int(snapshot.plain["tally"]["batches"])
                contents = (list(store.contents(batch)), store.control(batch))
                islands.restore(snapshot.plain, snapshot.arrays, snapshot.entries, snapshot.control, contents)
                if self.believed is not None:
                    self.believed.restore(snapshot.plain.get("believed"))
            if ROUNDS in run:
                self.repeat = [_round(*limits) for limits in run[ROUNDS]]
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            raise unfit(run, error) from error
        self._written_before(store, 0.0)


def _round(forwards: int, outputs: int | None, faults: int | None) -> Round:
    if not all(isinstance(limit, int) and limit >= 1 for limit in (forwards, outputs or 1, faults or 1)):
        raise BadInput("damaged", "rounds", "the run's rounds cannot be read: it is damaged.")
    return Round(forwards, outputs, faults)
