"""A job: work that keeps its finished pieces in a run and can be resumed."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from neurotest.errors import BadInput
from neurotest.jobs.life import Out, begin, filled, finish, in_place, safe_point, same_sources, unfinished
from neurotest.jobs.parts import Parts
from neurotest.jobs.stored import guarded
from neurotest.runs.store import Run
from neurotest.scan import Progress

Result = TypeVar("Result", bound=Any)


class Job(ABC, Generic[Result]):
    """One method with its target and data. A job is made from the user's words or from a run's configuration."""

    command: ClassVar[str]
    extends: ClassVar[bool] = False  # whether a finished run may go on, with a larger budget

    @abstractmethod
    def config(self) -> dict[str, Any]:
        """What a run stores so that the job can be made again."""

    @abstractmethod
    def work(self, run: Run | None, progress: Progress | None) -> Result:
        """Do what is left, keeping every finished piece in the run."""

    @abstractmethod
    def kept(self, run: Run) -> str:
        """How much the run holds, in words; empty for nothing."""

    def fill(self, run: Run) -> None:
        """What a new run holds before the work."""

    def restore(self, run: Run) -> None:
        """Back to where the run stands; data that are not the run's are refused here."""

    def record(self, run: Run, result: Result) -> None:
        """What a finished run holds beside its summary."""


def run_job(job: Job[Result], out: Out, progress: Progress | None = None) -> Result:
    """Do a job in a new run at `out` (None: where runs go; False: in memory)."""
    if out is False:
        return job.work(None, progress)
    return _finished(begin(job.command, out, job.config(), job.fill), job, progress, new=True)


def resume_job(
    path: str | Path,
    command: str,
    again: Callable[[Run, dict[str, Any]], Job[Result]],
    progress: Progress | None = None,
    *,
    extends: bool = False,
    out: Out = None,
) -> Result:
    """Finish an interrupted run; `again` makes its job from its configuration. extends: finished runs may go on, too.

    out: a place that was named all the same; refused.
    """
    in_place(out)
    run = Run.open(path, write=True)
    with ExitStack() as guard:
        try:
            guard.enter_context(guarded(run))
            job = _again(run, command, again, extends)
        except BaseException as error:
            blamed = run.blamed(error)
            run.close()
            if isinstance(error, (KeyError, TypeError)):
                raise BadInput(
                    "damaged",
                    "config",
                    f"{path} has a configuration that does not fit: it is damaged or older than this version.",
                ) from error
            if blamed is not None:
                raise blamed from error
            raise
        return _finished(run, job, progress, new=False)


def _again(run: Run, command: str, again: Callable[[Run, dict[str, Any]], Job[Result]], extends: bool) -> Job[Result]:
    """The job of a run, where the run stands."""
    config = unfinished(run, command, again=extends)
    job = again(run, config)
    same_sources(run, config, job.config())
    if run.is_filled:
        job.restore(run)
    else:
        filled(run, job.fill)
    if run["state"] == "done":
        run.reopen()
    return job


def _finished(run: Run, job: Job[Result], progress: Progress | None, *, new: bool) -> Result:
    with safe_point(run, lambda: job.kept(run), new=new):
        result: Result = dataclasses.replace(job.work(run, progress), run=run.path)
        job.record(run, result)
        parts = Parts(run)
        with run.transaction(durable=True):
            parts.forget()
            finish(run, result)
        parts.clear()
    return result
