"""`neurotest.swarm`: swarms over seeds, group by group, keeping what fails; a killed one goes on with the next group.

Each finished group is one transaction: its faults, counters and controls. Whoever resumes runs the group that was under way
again from its start, which gives the same faults, because every draw is a function of the seed, the group and the round.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from neurotest import interrupts
from neurotest.campaign.groups import Group, GroupResult, Search, never, search
from neurotest.campaign.plan import SwarmPlan
from neurotest.campaign.store import Store
from neurotest.data.objects import AnyData
from neurotest.data.source import Source
from neurotest.errors import BadInput, Interrupted
from neurotest.executor import Serial, current
from neurotest.generate.fuzz.mutants import Mutant, Tally
from neurotest.generate.fuzz.seeds import Seeds, choose_seeds
from neurotest.generate.swarm import Fitness, Settings
from neurotest.generate.swarm.controls import SwarmControl
from neurotest.generate.swarm.engine import MEMORY, PHOTOGRAPH, Moment
from neurotest.generate.swarm.result import SwarmResult
from neurotest.jobs.opening import AnyTarget, digests, open_data, open_target, stored_source, stored_spec
from neurotest.jobs.stored import stored_target, target_config
from neurotest.jobs.work import Job, resume_job, run_job
from neurotest.oracles import build_oracles
from neurotest.public import public
from neurotest.runs import codec
from neurotest.runs.store import Run
from neurotest.scan import Progress, profile
from neurotest.settings.generate import SwarmSettings
from neurotest.target import Profile, Target

GROUP = 100  # seeds searched together, at most
UNLABELLED = (
    "{what} has no labels, and the fitness {fitness} needs them: give labelled seeds, or take what the target predicts as "
    "their label with --labels-from prediction (labels_from='prediction')."
)


@public(SwarmSettings)
def swarm(
    target: AnyTarget | None = None,
    seeds: AnyData | None = None,
    fitness: str | Fitness | None = None,
    *,
    out: str | Path | bool | None = None,
    resume: str | Path | None = None,
    progress: Progress | None = None,
    stop: Callable[[], bool] | None = None,
    **settings: Any,
) -> SwarmResult:
    """Look for faults in the ball around each seed with swarms led by hidden neurons.

    fitness: `excitability` (default), `sensitivity` or `margin`, with options. preset: `default`, `sensitivity-paper`,
    `sensitivity-code`, `excitability-paper`, `excitability-gradient`, of sound `excitability-sound-paper` and `-sound-gradient`.
    norm, radius, ...: how the swarm moves. train: data that says how far each neuron spreads, for sensitivity.
    labels_from: `data`, or `prediction` for unlabelled seeds.
    beside: controls to run on the same seeds, beyond the budget: `noise`, `pgd`, `margin` (default: all). out: where the run goes
    (None: ./neurotest-runs; False: nothing is written). stop: asked after every round; True ends it so that it can be resumed.
    resume: a run to go on with; it keeps its settings.
    """
    given = {"fitness": fitness, **settings}
    if given.get("beside") is not None:
        given["beside"] = tuple(given["beside"])
    if resume is not None:

        def stored_job(run: Run, config: dict[str, Any]) -> _SwarmJob:
            plan = SwarmPlan.read(run, config).repeated(run, given)
            return _SwarmJob.prepare(plan, stored_target(run, target), stored_source(run, config["seeds"], seeds), stop)

        return resume_job(resume, "swarm", stored_job, progress, extends=True, out=out)
    if target is None or seeds is None:
        raise BadInput("missing", "target", "swarm needs a target and seeds (or resume=RUN to go on with one).")
    return run_job(_SwarmJob.prepare(SwarmPlan.of(given), open_target(target), seeds, stop), out, progress)


@dataclass(eq=False, kw_only=True)
class _SwarmJob(Job[SwarmResult]):
    """Chosen seeds, a fitness and settings; counters of the groups that are finished."""

    command = "swarm"

    target: Target
    source: Source
    seeds: Seeds
    stop: Callable[[], bool]
    fitness: Fitness
    settings: Settings
    plan: SwarmPlan
    profile: Profile | None
    train: Source | None
    classes: tuple[str, ...] | None
    tally: Tally = field(default_factory=Tally)
    labels: int = 0
    spent: int = 0
    errors: int = 0
    done: int = 0  # seeds
    controls: dict[str, SwarmControl] = field(default_factory=dict)
    courses: list[list[Moment]] = field(default_factory=list)
    faults: list[Mutant] = field(default_factory=list)
    notes: dict[str, None] = field(default_factory=dict)

    @classmethod
    def prepare(cls, plan: SwarmPlan, target: Target, seeds: AnyData, stop: Callable[[], bool] | None) -> _SwarmJob:
        fitness, settings, source = plan.read_fitness(), plan.effective(), open_data(target, seeds, limit=plan.settings.limit)
        if source.labels is None and fitness.labels and plan.settings.labels_from == "data":
            raise BadInput("no-labels", "seeds", UNLABELLED.format(what=source.what, fitness=fitness.name))
        chosen = choose_seeds(
            target, source, build_oracles(target, plan.oracle(target, source)), keep_wrong=plan.settings.keep_wrong
        )
        settings.check_shape(tuple(chosen.x.shape[1:]))
        if chosen.levels and settings.norm == "linf" and settings.radius * chosen.levels.steps < 1 - 1e-6:
            raise BadInput(
                "out-of-range",
                "radius",
                f"radius={settings.radius:g}: less than one step of {chosen.levels.words}: no saved input could differ from its "
                "seed.",
            )
        spread = train = None
        if plan.settings.train is not None and getattr(fitness, "scale", None) == "std":
            train = open_data(target, plan.settings.train)
            spread = profile(target, train, layers=plan.settings.layers or fitness.layers, neuron=plan.settings.neuron)  # type: ignore[attr-defined]
        beside = [name for name in plan.settings.beside if not (name == "margin" and fitness.name == "margin")]
        return cls(
            target=target, source=source, seeds=chosen, fitness=fitness, settings=settings, plan=plan, profile=spread,
            classes=tuple(target.classes or source.classes or ()) or None, controls={name: SwarmControl() for name in beside},
            stop=stop or interrupts.requested, train=train,
        )  # fmt: skip

    def config(self) -> dict[str, Any]:
        return {
            **target_config(self.target), "seeds": stored_spec(self.source), "guide": f"swarm, {self.fitness.name}",
            "oracle": [self.plan.oracle(self.target, self.source)], "threads": torch.get_num_threads(),
            "options": self.plan.options, "plan": self.plan.config(), "digests": digests(seeds=self.source, train=self.train),
        }  # fmt: skip

    def fill(self, run: Run) -> None:
        Store(run).begin(self.seeds)
        run["classes"] = list(self.classes or ())
        run["progress"] = self.tally.plain()

    def kept(self, run: Run) -> str:
        return f"{self.tally.faults:,} faults of {self.done} seeds" if self.done else ""

    @property
    def expected(self) -> NDArray[np.int64]:
        roots = self.seeds.roots
        if self.seeds.bins is not None:
            return self.seeds.expected
        return np.where((roots.labels >= 0) & (self.plan.settings.labels_from == "data"), roots.labels, roots.predicted)

    @property
    def group(self) -> int:
        usual = max(1, min(GROUP, self.settings.batch // self.settings.particles))
        shape = self.seeds.x.shape[1:]
        if math.prod(shape) <= PHOTOGRAPH:
            return usual
        # Fitness keeps layers of every seed, and looks at those of all its particles.
        values = sum(math.prod(layer.shape) for layer in self.target.survey(shape).layers)
        return max(1, min(usual, MEMORY // (8 * values * (1 + self.settings.particles))))

    # -- searching

    def work(self, run: Run | None, progress: Progress | None) -> SwarmResult:
        executor = current()
        stop = self.stop if isinstance(executor, Serial) else never
        shared = Search(
            self.target, self.fitness, self.settings, self.plan.settings.layers, self.plan.settings.neuron, self.profile,
            tuple(self.controls), self.plan.oracle(self.target, self.source), stop,
        )  # fmt: skip
        began = time.perf_counter()
        for group, result in executor.run(search, shared, self._groups()):
            if result is None or (stop is never and self.stop()):
                raise Interrupted(f"interrupted after {self.tally.faults:,} faults; nothing was written.")
            faults = self._take(result)
            self.done += len(group.rows)
            self.tally.seconds += time.perf_counter() - began
            began = time.perf_counter()
            if run is not None:
                self._write(run, Store(run), faults)
            if progress is not None:
                progress(self.done, len(self.seeds))
        return self._result(run)

    def _groups(self) -> Iterator[Group]:
        """Those that are not finished."""
        expected = self.expected
        for start in range(self.done, len(self.seeds), self.group):
            rows = np.arange(start, min(start + self.group, len(self.seeds)))
            yield Group(start // self.group, rows, self.seeds.take(rows), expected[rows])

    def _take(self, result: GroupResult) -> list[Mutant]:
        """Count a group that is finished; its faults with their numbers in the run."""
        faults = [dataclasses.replace(fault, number=self.tally.outputs + fault.number) for fault in result.faults]
        self.notes.update(dict.fromkeys(result.notes))
        self.tally.unstable += result.unstable
        self._count(faults, result.forwards, result.course, result.spent)
        for name, control in result.controls.items():
            self.controls[name].add(control)
        return faults

    def _count(self, faults: list[Mutant], forwards: int, course: list[Moment], spent: int) -> None:
        self.tally.forwards += forwards
        self.tally.batches += 1
        self.tally.iterations += len(course)
        for fault in faults:
            self.tally.add(fault)
        self.faults += faults
        self.labels += len({(fault.root, fault.predicted) for fault in faults})
        self.spent += spent
        self.errors += sum(moment.wrong for moment in course)
        self.courses.append(course)

    # -- storing

    def _write(self, run: Run, store: Store, faults: list[Mutant]) -> None:
        names = {fault.number: store.save(fault, self.seeds.bounds)[0] for fault in faults}
        with run.transaction():
            store.add(faults, self.seeds, names)
            run["progress"] = self.tally.plain()
            run["swarm"] = {
                "done": self.done, "labels": self.labels, "spent": self.spent, "errors": self.errors, "notes": list(self.notes),
                "controls": {name: vars(control) for name, control in self.controls.items()},
                "courses": [[dataclasses.astuple(moment) for moment in course] for course in self.courses],
            }  # fmt: skip

    def restore(self, run: Run) -> None:
        """Back to the last finished group."""
        Store(run).reopen(self.seeds)
        run["classes"] = run["classes"] or list(self.classes or ())
        if "swarm" not in run:
            return
        try:
            state = run["swarm"]
            self.tally = Tally.read(run["progress"])
            self.done, self.labels, self.spent, self.errors = (int(state[k]) for k in ("done", "labels", "spent", "errors"))
            self.controls = {str(name): SwarmControl(**counts) for name, counts in state["controls"].items()}
            self.courses = [[Moment(*moment) for moment in course] for course in state["courses"]]
            self.notes = dict.fromkeys(str(note) for note in state["notes"])
        except (KeyError, TypeError, ValueError):
            raise BadInput(
                "damaged",
                "record",
                f"{run.path} cannot be resumed, its record is damaged. Its faults are safe; start a new swarm.",
            ) from None

    def _result(self, run: Run | None) -> SwarmResult:
        if run is None:
            images = [fault.x for fault in self.faults]
            pairs = [(self.seeds.positions[fault.root], fault.predicted) for fault in self.faults]
        else:
            stored = Store(run).faults()
            images = [codec.decode(fault.file) for fault in stored if fault.file]
            pairs = [(fault.root, fault.predicted) for fault in stored]
        roots, classes = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
        return SwarmResult(
            self.tally, self.fitness.name, self.settings.norm, self.settings.radius, len(self.seeds), self.seeds.set_aside,
            self.labels, self.spent / len(self.seeds), self.errors, self.classes, self.controls, join_courses(self.courses),
            np.stack(images) if images else self.seeds.x[:0], roots, classes, None if run is None else run.path,
            tuple(self.notes),
        )  # fmt: skip


def join_courses(courses: list[list[Moment]]) -> tuple[Moment, ...]:
    """The course over all groups: a group that was done earlier stays where it ended."""
    if not courses or not all(courses):
        return ()
    moments = []
    for i in range(max(map(len, courses))):
        groups = [course[min(i, len(course) - 1)] for course in courses]
        spent, fitness = (float(np.mean([getattr(m, name) for m in groups])) for name in ("evaluations", "fitness"))
        moments.append(Moment(spent, fitness, sum(m.failed for m in groups), sum(m.wrong for m in groups)))
    return tuple(moments)
