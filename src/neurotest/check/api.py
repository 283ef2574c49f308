"""`neurotest.check`: every check in turn, each within its share of the time; finished ones are parts of the run."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from neurotest import interrupts, registry
from neurotest.check.base import Check, CheckContext, CheckItem, CheckResult, Clock, inputs_in_time, measured_pace
from neurotest.data.objects import AnyData
from neurotest.data.source import Source, content_ids
from neurotest.errors import BadInput, Remark, near, shell
from neurotest.jobs.life import resumed
from neurotest.jobs.opening import AnyTarget, digests, open_data, open_target, stored_source, stored_spec
from neurotest.jobs.parts import Parts
from neurotest.jobs.stored import described, stored_target, target_config
from neurotest.jobs.work import Job, resume_job, run_job
from neurotest.public import public
from neurotest.runs.rows import InputRow
from neurotest.runs.store import Run
from neurotest.scan import Progress
from neurotest.settings.analyse import CheckSettings
from neurotest.target import Target

WORKING_SHARE = 0.95  # of the time, for checks; loading the network and writing the page take the rest


@public(CheckSettings)
def check(
    target: AnyTarget | None = None,
    data: AnyData | None = None,
    *,
    train: AnyData | None = None,
    out: str | Path | bool | None = False,
    resume: str | Path | None = None,
    progress: Progress | None = None,
    **settings: Any,
) -> CheckResult:
    """Everything that can be said about a network in a few minutes: a verdict, and findings with their evidence.

    target: a Target, an nn.Module, or text such as `py:model.py:build`. data: inputs it was not trained on, labelled if possible.
    train: training data, for what compares with it. time: seconds, or text such as `5m` (the default). only, skip: checks
    by name (`neurotest list check`). out: a run is written there (None: a new one in ./neurotest-runs; False: none).
    resume: an interrupted run to go on with; finished checks stay.
    """
    if resume is not None:

        def again(run: Run, config: dict[str, Any]) -> _Check:
            chosen = resumed(CheckSettings, run, config, settings)
            network, source = stored_target(run, target), stored_source(run, config["data"], data, "data")
            training = None if config["train"] is None else stored_source(run, config["train"], train, "training data")
            return _Check.prepare(network, source, training, chosen, inputs=int(config["inputs"]))

        return resume_job(resume, "check", again, progress, out=None if out is False else out)
    if target is None or data is None:
        raise BadInput("missing", "target", "check needs a target and data (or resume=RUN to go on with a run).")
    return run_job(_Check.prepare(open_target(target), data, train, CheckSettings.of(settings)), out, progress)


def _chosen(only: Sequence[str] | None, skip: Sequence[str] | None) -> list[Check]:
    """Those that are wanted, in their order."""
    known = {name: entry.make() for name, entry in registry.entries("check").items()}
    for name in [*(only or ()), *(skip or ())]:
        if name not in known:
            raise BadInput("unknown-name", "examination", f"unknown check {name!r}. {near(name, known)}")
    chosen = [one for name, one in known.items() if (not only or name in only) and name not in (skip or ())]
    if not chosen:
        raise BadInput("empty", "only", "only, skip: no check is left; `neurotest list check` names them.")
    return sorted(chosen, key=lambda one: one.order)


def takes_all_of(settings: Mapping[str, Any]) -> float | None:
    """Seconds until the checks end, if one of them goes on until the time is over."""
    chosen = CheckSettings.of(settings)
    return WORKING_SHARE * float(chosen.time) if any(one.fills for one in _chosen(chosen.only, chosen.skip)) else None


@dataclass(eq=False)
class _Check(Job[CheckResult]):
    command = "check"

    context: CheckContext
    settings: CheckSettings
    chosen: list[Check]
    of: int
    train: Source | None
    data: Source
    done: list[CheckItem] = field(default_factory=list)

    @classmethod
    def prepare(
        cls, target: Target, data: AnyData, train: AnyData | None, settings: CheckSettings, inputs: int | None = None
    ) -> _Check:
        """inputs: how many are looked at, where a run knows that already."""
        chosen = _chosen(settings.only, settings.skip)
        source = open_data(target, data, limit=settings.limit)
        training = None if train is None else open_data(target, train)
        pace = measured_pace(target, source, settings.batch)
        fitting = inputs or inputs_in_time(pace, float(settings.time))
        spread = np.unique(np.linspace(0, len(source) - 1, min(fitting, len(source))).astype(np.int64))
        part = source if len(spread) == len(source) else source.take(spread)
        context = CheckContext(target, part, training, settings.seed, settings.batch, _words(target, source), pace, spread)
        return cls(context, settings, chosen, len(source), training, source)

    def config(self) -> dict[str, Any]:
        data, train = stored_spec(self.data), stored_spec(self.train)
        seen = digests(data=self.data, train=self.train)
        about = {"data": data, "train": train, "inputs": len(self.context.source), "digests": seen}
        return {**target_config(self.context.target), **self.settings.stored(), **about}

    def restore(self, run: Run) -> None:
        self.done = [CheckItem.read(part) for part in Parts(run)]

    def kept(self, run: Run) -> str:
        return f"{len(Parts(run))} of {len(self.chosen)} checks" if len(Parts(run)) else ""

    def work(self, run: Run | None, progress: Progress | None) -> CheckResult:
        self.context.words = _words(self.context.target, self.data, run)
        names = {one.name for one in self.done}
        left = [one for one in self.chosen if one.name not in names]
        spent = sum(one.seconds for one in self.done)
        for number, check in enumerate(left):
            interrupts.check()
            rest = max(1.0, WORKING_SHARE * float(self.settings.time) - spent)
            clock = Clock.start(rest * check.share / sum(one.share for one in left[number:]))
            self._tick(progress)
            examined = dataclasses.replace(self._examine(check, clock), seconds=clock.spent)
            spent += examined.seconds
            self.done.append(examined)
            if run is not None:
                Parts(run).add(examined.arrays())
        self._tick(progress)
        order = [one.name for one in self.chosen]
        context = self.context
        examined_all = tuple(sorted(self.done, key=lambda one: order.index(one.name)))
        return CheckResult(context.target.spec, self.data.spec, len(context.source), self.of, examined_all, spent, self._notes())

    def _tick(self, progress: Progress | None) -> None:
        def tick() -> None:
            interrupts.check()
            if progress is not None:
                progress(len(self.done), len(self.chosen))

        self.context.tick = tick
        tick()

    def _examine(self, check: Check, clock: Clock) -> CheckItem:
        """A check that does not fit says why, and does not stop the others."""
        if check.labels and self.context.source.labels is None:
            return CheckItem(check.name, "needs labels, and the data have none", skipped=True)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", Remark)  # said once, when the data were opened
                return check.examine(self.context, clock)
        except BadInput as error:
            return CheckItem(check.name, str(error), skipped=True)

    def _notes(self) -> tuple[str, ...]:
        used = len(self.context.source)
        if used == self.of:
            return ()
        return (f"{used:,} of {self.of:,} inputs were looked at, spread evenly, to keep to the time; more with --time.",)

    def record(self, run: Run, result: CheckResult) -> None:
        """The images, numbered in the order of the findings."""
        position = count()
        with run.transaction():
            run.clear_inputs()
            for number, finding in enumerate(result.findings):
                for place, image in enumerate(finding.images):
                    about = {"finding": number, "place": place, "caption": image.caption}
                    row = InputRow(next(position), str(content_ids(image.x[None])[0]), extra=about)
                    run.add_inputs([row])
                    run.save_input(row.position, image.x, "shown", self.context.target.bounds)


def _words(target: Target, source: Source, run: Run | None = None) -> str:
    """Target, data and what describes the target, as they stand on a command line."""
    return shell(target.spec, source.spec or "DATA", *described(target_config(target), None if run is None else run.path))
