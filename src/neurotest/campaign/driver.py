"""The loop of a campaign: batch after batch into the run, until the budget is spent or somebody stops it."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Sized
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from neurotest.campaign.believed import Believed
from neurotest.campaign.clock import Clock
from neurotest.campaign.store import Store
from neurotest.errors import BadInput
from neurotest.generate.fuzz.guides import GuideState
from neurotest.generate.fuzz.loop import Fuzzer
from neurotest.generate.fuzz.mutants import Key, Mutant, Tally
from neurotest.generate.fuzz.seeds import Seeds
from neurotest.generate.fuzz.settings import Budget
from neurotest.runs.store import Run

PAUSE = 1.0  # seconds between snapshots, at least
SHARE = 20  # and so many times what one takes


class HasTally(Protocol):
    @property
    def tally(self) -> Tally: ...


class Watched(Protocol):
    """What is shown of a campaign while it runs: a fuzzer, or all islands of one."""

    path: Path | None

    @property
    def tally(self) -> Tally: ...
    @property
    def control(self) -> HasTally | None: ...
    @property
    def seeds(self) -> Seeds: ...
    @property
    def guide(self) -> GuideState: ...
    @property
    def corpus(self) -> Sized: ...
    @property
    def budget(self) -> Budget: ...
    def value(self) -> float | None: ...
    def about(self) -> dict[str, int]: ...


class Watcher(Protocol):
    """Called after every batch, or round of islands, with its outputs; `new` are the first faults of new families.

    Outputs of islands come without their images, but for the first faults of each family.
    """

    def __call__(self, fuzzer: Watched, outputs: list[Mutant], new: list[Mutant], /) -> None: ...


def progress(campaign: Watched) -> dict[str, Any]:
    """The counters of a campaign and of its control."""
    return {**campaign.tally.plain(), "control": campaign.control.tally.plain() if campaign.control else None}


@dataclass(eq=False)
class Writer(ABC):
    """Writes outputs of a campaign into its run. keep: images per family. disk: bytes of images, after that rows only."""

    store: Store | None
    keep: int = 5
    disk: float = 200e6
    watch: Watcher | None = None
    stop: Callable[[], bool] = lambda: False
    kept: Counter[Key] = field(default_factory=Counter)
    written: int = 0
    full: bool = False  # the limit of the disk was reached
    clock: Clock = field(default_factory=Clock)
    believed: Believed | None = None
    _saved: float = 0.0
    _cost: float = 0.0

    @property
    @abstractmethod
    def campaign(self) -> Watched: ...

    @abstractmethod
    def run(self) -> str:
        """Go on until something ends it: the name of the spent budget, or `interrupted`."""

    @abstractmethod
    def restore(self) -> None:
        """Back to the last snapshot."""

    @abstractmethod
    def save_state(self, store: Store, believed: list[list[int]] | None) -> None:
        """Write where the campaign stands."""

    def new_families(self, outputs: list[Mutant], before: Collection[Key]) -> list[Mutant]:
        """The first fault of each family that was not there before."""
        first: dict[Key, Mutant] = {}
        for mutant in outputs:
            if mutant.fault and mutant.family not in before:
                first.setdefault(mutant.family, mutant)
        return list(first.values())

    def write(self, store: Store, outputs: list[Mutant], control_contents: list[int]) -> None:
        """Images first, then the rows that name them and the counters, together."""
        names: dict[int, str] = {}
        for mutant in outputs:
            if mutant.fault and mutant.x.size and self.kept[mutant.family] < self.keep:
                if self.written >= self.disk:
                    self.full = True
                    break
                names[mutant.number], size = store.save(mutant, self.campaign.seeds.bounds)
                self.kept[mutant.family] += 1
                self.written += size
        with store.run.transaction():
            store.add(outputs, self.campaign.seeds, names)
            store.add_control(self.campaign.tally.batches, control_contents)
            if time.monotonic() - self._saved > max(PAUSE, SHARE * self._cost):
                self._snapshot()
            self._progress()

    def finish(self) -> None:
        """Write where it stands at the end."""
        if self.store is not None:
            with self.store.run.transaction():
                self._snapshot()
                self._progress()

    def _snapshot(self) -> None:
        assert self.store is not None
        began = time.monotonic()
        self.save_state(self.store, None if self.believed is None else self.believed.plain())
        self.store.run["believed valid"] = None if self.believed is None else self.believed.summary()
        self._saved = time.monotonic()
        self._cost = self._saved - began

    def _progress(self) -> None:
        assert self.store is not None
        self.store.run["progress"] = progress(self.campaign)
        self.store.run["written"] = self.written
        self.store.run["clock"] = self.clock.plain()

    def _written_before(self, store: Store, worked: float) -> None:
        """What earlier sessions wrote, and the seconds they took; runs of earlier versions tell only how long they `worked`."""
        stored = {name: store.run[name] for name in ("clock", "written") if name in store.run}
        self.clock.restore(stored.get("clock", {"total": worked}))
        self.kept = store.kept()
        self.written = int(stored.get("written", 0))


def unfit(run: Run, error: Exception) -> BadInput:
    return BadInput(
        "damaged", "snapshot", f"{run.path} cannot be resumed: its snapshot does not fit ({error!r}). Its faults are safe."
    )


@dataclass(eq=False, kw_only=True)
class Driver(Writer):
    """Runs a fuzzer and writes its outputs."""

    fuzzer: Fuzzer
    _batch_took: float = 0.0
    _repeated: float = 0.0  # seconds of batches that were repeated on resume

    def __post_init__(self) -> None:
        self.fuzzer.path = None if self.store is None else self.store.run.path

    @property
    def campaign(self) -> Watched:
        return self.fuzzer

    def run(self) -> str:
        """Go on until something ends it: the name of the spent budget, or `interrupted`."""
        self.clock.started(self._repeated)
        self._saved = time.monotonic()
        while (spent := self._spent()) is None:
            if self.stop():
                spent = "interrupted"
                break
            self._batch()
        self.finish()
        return spent

    def _spent(self) -> str | None:
        """The budget of the guided fuzzer; only seconds count for everything, because somebody waits for them.

        A batch that would not be over in time is not begun, but for the first.
        """
        tally = self.fuzzer.tally
        outside = self.clock.total() + self._batch_took - tally.seconds if tally.batches else -tally.seconds
        return self.fuzzer.spent(outside)

    def restore(self) -> None:
        """Back to the last snapshot, then again through the batches that were committed after it."""
        store, fuzzer = self.store, self.fuzzer
        assert store is not None
        run = store.run
        snapshot = store.read_snapshot(fuzzer.seeds)
        if snapshot is not None:
            try:
                batch = int(snapshot.plain["tally"]["batches"])
                fuzzer.restore(snapshot.plain, snapshot.entries, store.contents(batch))
                if self.believed is not None:
                    self.believed.restore(snapshot.plain.get("believed"))
                if fuzzer.control is not None:
                    fuzzer.control.restore(snapshot.control or {}, store.control(batch))
            except (KeyError, TypeError, ValueError) as error:
                raise unfit(run, error) from error
            if snapshot.arrays:
                fuzzer.guide.restore(snapshot.arrays)
        worked = sum(tally.seconds for tally in self._tallies)
        with fuzzer:
            self.catch_up(int(run["progress"]["batches"]))
        self._repeated = sum(tally.seconds for tally in self._tallies) - worked
        self._written_before(store, sum(tally.seconds for tally in self._tallies))

    @property
    def _tallies(self) -> list[Tally]:
        control = self.fuzzer.control
        return [self.fuzzer.tally, *([] if control is None else [control.tally])]

    def catch_up(self, batches: int) -> None:
        """Repeat what was committed after the last snapshot; its rows are there already."""
        while self.fuzzer.tally.batches < batches:
            self._step()

    def _step(self) -> tuple[list[Mutant], list[int]]:
        """A batch, and the control's after it: the outputs, and the contents of the control's."""
        fuzzer = self.fuzzer
        began = time.perf_counter()
        outputs = fuzzer.step()
        fuzzer.tally.seconds += time.perf_counter() - began
        if self.believed is not None:
            with self.clock.spending("validity"):
                self.believed.add(outputs)
        control = fuzzer.control
        return outputs, control.follow(control.level(fuzzer.tally)) if control else []

    def _batch(self) -> None:
        began, families = time.monotonic(), set(self.fuzzer.tally.families)
        outputs, control_contents = self._step()
        if self.store is not None:
            with self.clock.spending("saving"):
                self.write(self.store, outputs, control_contents)
        if self.watch is not None:
            self.watch(self.fuzzer, outputs, self.new_families(outputs, families))
        self._batch_took = time.monotonic() - began

    def save_state(self, store: Store, believed: list[list[int]] | None) -> None:
        fuzzer, control = self.fuzzer, self.fuzzer.control
        store.snapshot(
            {**fuzzer.plain(), "believed": believed},
            fuzzer.guide.arrays(),
            fuzzer.corpus.entries,
            control.plain() if control is not None else None,
        )
