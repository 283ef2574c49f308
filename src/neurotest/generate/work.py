"""The frame of generators that make a suite of chosen seeds: the run comes first, finished parts stay, `--resume` goes on."""

from __future__ import annotations

import dataclasses
import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from neurotest.data.source import Source, content_ids
from neurotest.errors import BadInput, Interrupted
from neurotest.generate.fuzz.seeds import Seeds
from neurotest.generate.parts import Arrays, Parts, described, unfinished
from neurotest.generate.record import record
from neurotest.generate.suite import AttackResult
from neurotest.runs.store import Run
from neurotest.scan import Progress
from neurotest.target import Target

FILES = 500  # faults that become images
Result = TypeVar("Result", bound=AttackResult)


@dataclass(eq=False, kw_only=True)
class Work(ABC, Generic[Result]):
    """One method on chosen seeds."""

    command: ClassVar[str]
    targets: list[Target]
    source: Source
    seeds: Seeds
    method: Any
    keep_wrong: bool
    limit: int | None
    random: int
    began: float

    @abstractmethod
    def run(self, parts: Parts | None, progress: Progress | None) -> Result:
        """Do what is left, telling `parts` of every finished piece."""

    @abstractmethod
    def stopped(self, done: int) -> str:
        """How far an interrupted run came."""

    @property
    def target(self) -> Target:
        return self.targets[0]

    def config(self) -> dict[str, Any]:
        """What a run stores so that it can be resumed."""
        return {
            "target": self.target.spec, "fingerprint": self.target.fingerprint, "seeds": self.source.spec,
            "contents": str(content_ids(self.seeds.x.reshape(1, -1))[0]), "method": described(self.method),
            "keep_wrong": self.keep_wrong, "limit": self.limit, "seed": self.random, "threads": torch.get_num_threads(),
        }  # fmt: skip

    def keep(self, run: Run) -> None:
        """What a finished run holds beside its suite."""

    def about(self) -> dict[str, Any]:
        """What every result says of its seeds."""
        return {
            "set_aside": self.seeds.set_aside, "seconds": time.monotonic() - self.began, "outputs_possible": self.seeds.classes,
            "classes": tuple(self.target.classes or self.source.classes or ()) or None,
        }  # fmt: skip


@dataclass(eq=False, kw_only=True)
class Batches(Work[Result]):
    """Work that goes through the seeds batch by batch."""

    batch: int
    done: list[Arrays] = field(default_factory=list)

    @property
    def count(self) -> int:
        return -(-len(self.seeds) // self.batch)

    def config(self) -> dict[str, Any]:
        return {**super().config(), "batch": self.batch}

    def stopped(self, done: int) -> str:
        return f"{done} of {self.count} batches"

    def each(
        self, one: Callable[[NDArray[np.int64]], Arrays], check: Callable[[bool], None], parts: Parts | None,
        progress: Progress | None,
    ) -> None:  # fmt: skip
        """`one` for the rows of every batch that is not done; `check(last)` may refuse what came out before it is kept."""
        for number in range(len(self.done), self.count):
            rows = np.arange(number * self.batch, min((number + 1) * self.batch, len(self.seeds)))
            part = one(rows)
            check(number + 1 == self.count)
            self.done.append(part)
            if parts is not None:
                parts.add(part)
            if progress is not None:
                progress(int(rows[-1]) + 1, len(self.seeds))

    def joined(self, *names: str) -> Arrays:
        return {name: np.concatenate([part[name] for part in self.done]) for name in names}


def check_sizes(*, batch: int = 1, files: int = FILES) -> None:
    if batch < 1:
        raise BadInput(f"batch={batch}: expected an integer >= 1.")
    if files < 0:
        raise BadInput(f"files={files}: expected an integer >= 0 (how many faults become images).")


def carry_out(work: Work[Result], out: str | Path | bool | None, files: int, progress: Progress | None) -> Result:
    """Do it in a run at `out` (None: where runs go; False: in memory)."""
    if out is False:
        return work.run(None, progress)
    # The run is made first: an --out that cannot be used is told before the work, not after it.
    run = Run.create(None if out in (None, True) else Path(str(out)), work.command, {**work.config(), "files": files})
    return _finish(run, work, files, progress)


def go_on(
    command: str, path: str | Path, again: Callable[[Run, dict[str, Any]], Work[Result]], progress: Progress | None
) -> Result:
    """Finish an interrupted run; `again` makes its work from its configuration."""
    run = Run.open(path, write=True)
    try:
        config = unfinished(run, command)
        work = again(run, config)
        if work.config()["contents"] != config["contents"]:
            raise BadInput(f"the seeds are not those {run.path} was started with: resume it with the same data.")
        if isinstance(work, Batches):
            work.done = list(Parts(run))
        files = int(config["files"])
    except BaseException as error:
        run.close()
        if isinstance(error, (KeyError, TypeError)):
            raise BadInput(f"{path} has a configuration that does not fit: it is damaged or older than this version.") from None
        raise
    return _finish(run, work, files, progress)


def _finish(run: Run, work: Work[Result], files: int, progress: Progress | None) -> Result:
    with run:
        parts = Parts(run)
        try:
            found = dataclasses.replace(work.run(parts, progress), run=run.path)
        except KeyboardInterrupt:
            raise Interrupted(
                f"interrupted after {work.stopped(len(parts))}, all of them saved. "
                f"Go on with: neurotest {work.command} --resume {run.path}"
            ) from None
        except BaseException:
            if not len(parts):
                shutil.rmtree(run.path, ignore_errors=True)  # nothing is in it yet
            raise
        work.keep(run)
        record(run, work.target, found, files)
        parts.clear()
    return found
