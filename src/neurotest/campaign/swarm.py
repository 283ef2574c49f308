"""`neurotest.swarm`: swarms over seeds, group by group, keeping what fails; a killed one goes on with the next group.

Each finished group is one transaction: its faults, counters and controls. Whoever resumes runs the group that was under way
again from its start, which gives the same faults, because every draw is a function of the seed, the group and the round.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from neurotest.campaign.store import Store
from neurotest.data.source import Source, content_ids
from neurotest.errors import BadInput, Interrupted, near
from neurotest.generate.fuzz.mutants import Mutant, Tally
from neurotest.generate.fuzz.seeds import Seeds, choose_seeds
from neurotest.generate.swarm import PRESETS, Ball, Fitness, Hit, Problem, Settings, Swarm, controls
from neurotest.generate.swarm.controls import Control
from neurotest.generate.swarm.engine import Moment
from neurotest.generate.swarm.result import SwarmResult
from neurotest.jobs.life import other_setting
from neurotest.jobs.methods import read_method, stored_method
from neurotest.jobs.opening import AnyTarget, open_data, open_target, stored_source, stored_spec
from neurotest.jobs.stored import stored_target, target_config
from neurotest.jobs.work import Job, carry_out, go_on
from neurotest.mutate.chain import FREE, Step
from neurotest.mutate.distances import distances
from neurotest.oracles import build_oracles, predicted
from neurotest.runs import codec
from neurotest.runs.store import Run
from neurotest.scan import Progress, profile
from neurotest.target import Profile, Target

GROUP = 100  # seeds that fly together, at most
UNLABELLED = (
    "{what} has no labels, and the fitness {fitness} needs them: give labelled seeds, or take what the target says of them as "
    "their label with --labels-from prediction (labels_from='prediction')."
)


def swarm(
    target: AnyTarget | None = None,
    seeds: Source | str | None = None,
    fitness: str | Fitness | None = None,
    *,
    preset: str | None = None,
    train: Source | str | None = None,
    layers: str | None = None,
    neuron: str | None = None,
    labels_from: str | None = None,
    keep_wrong: bool | None = None,
    limit: int | None = None,
    beside: Sequence[str] | None = None,
    out: str | Path | bool | None = None,
    resume: str | Path | None = None,
    progress: Progress | None = None,
    stop: Callable[[], bool] | None = None,
    **options: Any,
) -> SwarmResult:
    """Look for faults in the ball around each seed with swarms led by hidden neurons.

    fitness: `excitability` (default), `sensitivity` or `margin`, with options. preset: `default`, `sensitivity-paper`,
    `sensitivity-code`, `excitability-paper`. options: the fields of `Settings` (norm, radius, evaluations, ...). train:
    data that says how far each neuron spreads, for sensitivity. labels_from: `data`, or `prediction` for unlabelled seeds.
    beside: controls to run on the same seeds, beyond the budget: `noise`, `pgd`, `margin` (default: all). out: where the run goes
    (None: ./neurotest-runs; False: nothing is written). stop: asked after every round; True ends it so that it can be resumed.
    resume: a run to go on with; it keeps its settings.
    """
    settings: dict[str, Any] = {
        "fitness": fitness, "preset": preset, "train": train, "layers": layers, "neuron": neuron, "labels_from": labels_from,
        "keep_wrong": keep_wrong, "limit": limit, "beside": None if beside is None else tuple(beside),
        "options": {name: value for name, value in options.items() if value is not None},
    }  # fmt: skip
    settings = {name: value for name, value in settings.items() if value is not None}
    if resume is not None:

        def again(run: Run, config: dict[str, Any]) -> _Work:
            plan = _Plan.read(run, config).repeated(run, settings)
            return _Work.of(plan, stored_target(run, target), stored_source(run.path, config["seeds"], seeds), stop)

        return go_on(resume, "swarm", again, progress, extends=True)
    if target is None or seeds is None:
        raise BadInput("swarm needs a target and seeds (or resume=RUN to go on with one).")
    return carry_out(_Work.of(_Plan(**settings), open_target(target), seeds, stop), out, progress)


@dataclass(frozen=True, kw_only=True)
class _Plan:
    """The settings of a swarm; a run stores them and is resumed from them."""

    fitness: Any = None
    preset: str = "default"
    train: Any = None
    layers: str | None = None
    neuron: str = "channel"
    labels_from: str = "data"
    keep_wrong: bool = False
    limit: int | None = None
    beside: tuple[str, ...] = tuple(controls.NAMES)
    options: Mapping[str, Any] = field(default_factory=dict)

    def plain(self) -> dict[str, Any]:
        return {
            **vars(self),
            "fitness": stored_method(self.fitness),
            "train": stored_spec(self.train),
            "beside": list(self.beside),
        }

    def config(self, target: Target, source: Source) -> dict[str, Any]:
        return {
            **target_config(target), "seeds": stored_spec(source), "guide": f"swarm, {self.built.name}",
            "oracle": [self.oracle(source)], "threads": torch.get_num_threads(), "options": self.options, "plan": self.plain(),
        }  # fmt: skip

    @classmethod
    def read(cls, run: Run, config: Mapping[str, Any]) -> _Plan:
        try:
            return cls(**{**config["plan"], "beside": tuple(config["plan"]["beside"])})
        except (KeyError, TypeError):
            raise BadInput(f"{run.path}: its configuration is not that of a swarm: it is damaged.") from None

    def repeated(self, run: Run, settings: Mapping[str, Any]) -> _Plan:
        """This plan, after what is said again on resume was compared with it."""
        new = dataclasses.replace(self, **{**settings, "options": {**self.options, **settings.get("options", {})}})
        before, after = self.plain(), new.plain()
        for name in before:
            if before[name] != after[name] and not (name == "fitness" and self.built == new.built):
                raise other_setting(run, name, after[name], before[name])
        return new

    def oracle(self, source: Source) -> str:
        """A fault is another answer than the label or, where that is taken from the target, than the seed's."""
        return "label" if source.labels is not None and self.labels_from == "data" else "metamorphic"

    @property
    def built(self) -> Fitness:
        if self.preset not in PRESETS:
            raise BadInput(f"preset={self.preset!r}: no such preset of a swarm. {near(self.preset, PRESETS)}")
        fitness = self.fitness or PRESETS[self.preset].get("fitness", "excitability")
        built: Fitness = read_method("fitness", fitness) if isinstance(fitness, (str, Mapping)) else fitness
        return built

    @property
    def settings(self) -> Settings:
        fields = {f.name for f in dataclasses.fields(Settings)}
        options = {key: value for key, value in self.options.items() if value is not None}
        for name in options:
            if name not in fields:
                raise BadInput(f"swarm has no option {name!r}. {near(name, fields)}")
        preset = {key: value for key, value in PRESETS[self.preset].items() if key != "fitness"}
        if isinstance(options.get("inertia"), list):
            options["inertia"] = tuple(options["inertia"])
        return Settings(**{**preset, **options})


@dataclass(eq=False, kw_only=True)
class _Work(Job[SwarmResult]):
    """Chosen seeds, a fitness and settings; what was found so far."""

    command = "swarm"

    target: Target
    source: Source
    seeds: Seeds
    stop: Callable[[], bool]
    fitness: Fitness
    settings: Settings
    plan: _Plan
    profile: Profile | None
    classes: tuple[str, ...] | None
    tally: Tally = field(default_factory=Tally)
    labels: int = 0
    spent: int = 0
    errors: int = 0
    done: int = 0  # seeds
    controls: dict[str, Control] = field(default_factory=dict)
    courses: list[list[Moment]] = field(default_factory=list)
    found: list[Mutant] = field(default_factory=list)
    notes: dict[str, None] = field(default_factory=dict)

    @classmethod
    def of(cls, plan: _Plan, target: Target, seeds: Source | str, stop: Callable[[], bool] | None) -> _Work:
        fitness, settings, source = plan.built, plan.settings, open_data(target, seeds, limit=plan.limit)
        if plan.labels_from not in ("data", "prediction"):
            raise BadInput(f"labels_from={plan.labels_from!r}: expected data or prediction.")
        for name in plan.beside:
            if name not in controls.NAMES:
                raise BadInput(f"beside={name!r}: no such control. {near(name, controls.NAMES)}")
        if source.labels is None and fitness.labels and plan.labels_from == "data":
            raise BadInput(UNLABELLED.format(what=source.what, fitness=fitness.name))
        chosen = choose_seeds(target, source, build_oracles(target, plan.oracle(source)), keep_wrong=plan.keep_wrong)
        settings.check_shape(tuple(chosen.x.shape[1:]))
        spread = None
        if plan.train is not None and getattr(fitness, "scale", None) == "std":
            train = open_data(target, plan.train)
            spread = profile(target, train, layers=plan.layers or "pre_activation", neuron=plan.neuron)
        classes = tuple(target.classes or source.classes or ()) or None
        beside = [name for name in plan.beside if not (name == "margin" and fitness.name == "margin")]
        work = cls(
            target=target, source=source, seeds=chosen, fitness=fitness, settings=settings, plan=plan, profile=spread,
            classes=classes, controls={name: Control() for name in beside}, stop=stop or (lambda: False),
        )  # fmt: skip
        work._check_radius()
        return work

    def config(self) -> dict[str, Any]:
        return self.plan.config(self.target, self.source)

    def fill(self, run: Run) -> None:
        Store(run).begin(self.seeds)
        run["classes"] = list(self.classes or ())
        run["progress"] = self.tally.plain()

    def kept(self, run: Run) -> str:
        return f"{self.tally.faults:,} faults of {self.done} seeds" if self.done else ""

    def _check_radius(self) -> None:
        if self.seeds.eight_bit and self.settings.norm == "linf" and self.settings.radius * 255 < 1 - 1e-6:
            raise BadInput(
                f"radius={self.settings.radius:g}: less than one step of 8-bit data (1/255, 0.0039): no saved image could differ "
                "from its seed."
            )

    @property
    def expected(self) -> NDArray[np.int64]:
        roots = self.seeds.roots
        return np.where((roots.labels >= 0) & (self.plan.labels_from == "data"), roots.labels, roots.predicted)

    @property
    def group(self) -> int:
        return max(1, min(GROUP, self.settings.batch // self.settings.particles))

    # -- searching

    def work(self, run: Run | None, progress: Progress | None) -> SwarmResult:
        while self.done < len(self.seeds):
            began = time.perf_counter()
            rows = np.arange(self.done, min(self.done + self.group, len(self.seeds)))
            new = self._search(rows)
            if new is None:
                raise Interrupted(f"interrupted after {self.tally.faults:,} faults; nothing was written.")
            self.done += len(rows)
            self.tally.seconds += time.perf_counter() - began
            if run is not None:
                self._write(run, Store(run), new)
            if progress is not None:
                progress(self.done, len(self.seeds))
        return self._result(run)

    def _search(self, rows: NDArray[np.int64]) -> list[Mutant] | None:
        """One group; None if it was stopped on the way."""
        number = int(rows[0]) // self.group
        u = self.seeds.unit(self.seeds.x[rows], self.target.device)
        y = torch.from_numpy(self.expected[rows]).to(self.target.device)
        ball = Ball(self.settings.norm, self.settings.radius, self.seeds.eight_bit)
        problem = Problem(self.target, u, y, ball, self.plan.layers, self.plan.neuron, self.profile, self.settings.seed)
        measure = self.fitness.begin(problem)
        search = Swarm(measure, self.settings, number, self.stop)
        trajectory = search.run()
        if search.stopped:
            return None
        self.notes.update(dict.fromkeys(measure.notes))
        new = self._mutants(trajectory.hits, rows, u, number)
        self._count(new, measure.forwards, trajectory.history, int(trajectory.spent.sum()))
        self._beside(problem, number)
        return new

    def _mutants(self, hits: list[Hit], rows: NDArray[np.int64], u: torch.Tensor, group: int) -> list[Mutant]:
        """Faults as they are saved, run again from there; what no longer fails is dropped."""
        if not hits:
            return []
        saved = self.seeds.stored(torch.stack([hit.x for hit in hits]))
        again = self.seeds.unit(saved, self.target.device)
        with torch.inference_mode():
            said = predicted(self.target.logits(self.target.prepare(np.array(saved))))
        away = distances(again, u[[hit.row for hit in hits]])
        contents = content_ids(saved)
        found: list[Mutant] = []
        for i, hit in enumerate(hits):
            root = int(rows[hit.row])
            if said[i] == self.expected[root]:
                self.tally.unstable += 1
                continue
            label = int(self.seeds.roots.labels[root])
            found.append(
                Mutant(
                    number=self.tally.outputs + len(found), batch=group, iteration=hit.iteration, root=root,
                    content=str(contents[i]), x=saved[i], chain=(Step(FREE + self.fitness.name, ()),), label=label,
                    expected=int(self.expected[root]), predicted=int(said[i]), oracle="nonfinite" if said[i] < 0 else "label",
                    accepted=True, gain=hit.fitness, distance=(float(away[i, 0]), float(away[i, 1]), float(away[i, 2])),
                )
            )  # fmt: skip
        return found

    def _count(self, new: list[Mutant], forwards: int, course: list[Moment], spent: int) -> None:
        self.tally.forwards += forwards
        self.tally.batches += 1
        self.tally.iterations += len(course)
        for mutant in new:
            self.tally.add(mutant)
        self.found += new
        self.labels += len({(m.root, m.predicted) for m in new})
        self.spent += spent
        self.errors += sum(moment.wrong for moment in course)
        self.courses.append(course)

    def _beside(self, problem: Problem, number: int) -> None:
        said = self.settings
        if "noise" in self.controls:
            tries = said.evaluations or said.particles * (said.iterations or 1)
            self.controls["noise"].add(
                controls.noise(
                    self.target,
                    problem.seeds,
                    problem.y,
                    problem.ball,
                    tries,
                    random=said.seed + 1000 * number,
                    labels=said.labels,
                )
            )
        if "pgd" in self.controls:
            self.controls["pgd"].add(
                controls.pgd(self.target, problem.seeds, problem.y, problem.ball, random=said.seed + 1000 * number)
            )
        if "margin" in self.controls:
            self.controls["margin"].add(controls.margin(problem, dataclasses.replace(said, enough=None), number))

    # -- keeping

    def _write(self, run: Run, store: Store, new: list[Mutant]) -> None:
        named = {mutant.number: store.save(mutant, self.seeds.bounds)[0] for mutant in new}
        with run.transaction():
            store.add(new, self.seeds, named)
            run["progress"] = self.tally.plain()
            run["swarm"] = {
                "done": self.done, "labels": self.labels, "spent": self.spent, "errors": self.errors, "notes": list(self.notes),
                "controls": {name: vars(one) for name, one in self.controls.items()},
                "courses": [[dataclasses.astuple(m) for m in course] for course in self.courses],
            }  # fmt: skip

    def restore(self, run: Run) -> None:
        """Back to the last finished group."""
        Store(run).check_seeds(self.seeds)
        Store(run).sweep()
        if "swarm" not in run:
            return
        try:
            held = run["swarm"]
            self.tally = Tally.read(run["progress"])
            self.done, self.labels = int(held["done"]), int(held["labels"])
            self.spent, self.errors = int(held["spent"]), int(held["errors"])
            self.controls = {str(name): Control(**one) for name, one in held["controls"].items()}
            self.courses = [[Moment(*one) for one in course] for course in held["courses"]]
            self.notes = dict.fromkeys(str(note) for note in held["notes"])
        except (KeyError, TypeError, ValueError):
            raise BadInput(
                f"{run.path} cannot be resumed, its record is damaged. Its faults are safe; start a new swarm."
            ) from None

    def _result(self, run: Run | None) -> SwarmResult:
        if run is None:
            x = np.stack([m.x for m in self.found]) if self.found else self.seeds.x[:0]
            rows = np.array([self.seeds.positions[m.root] for m in self.found], dtype=np.int64)
            said = np.array([m.predicted for m in self.found], dtype=np.int64)
        else:
            faults = Store(run).faults()
            x = np.stack([codec.decode(f.file) for f in faults if f.file]) if faults else self.seeds.x[:0]
            rows = np.array([f.root for f in faults], dtype=np.int64)
            said = np.array([f.predicted for f in faults], dtype=np.int64)
        return SwarmResult(
            self.tally, self.fitness.name, self.settings.norm, self.settings.radius, len(self.seeds), self.seeds.set_aside,
            self.labels, self.spent / len(self.seeds), self.errors, self.classes, self.controls, joined(self.courses), x, rows,
            said, None if run is None else run.path, tuple(self.notes),
        )  # fmt: skip


def joined(courses: list[list[Moment]]) -> tuple[Moment, ...]:
    """The course over all groups: a group that was done earlier stays where it ended."""
    if not courses or not all(courses):
        return ()
    longest = max(map(len, courses))
    found = []
    for i in range(longest):
        now = [course[min(i, len(course) - 1)] for course in courses]
        spent, fitness = (float(np.mean([getattr(m, name) for m in now])) for name in ("evaluations", "fitness"))
        found.append(Moment(spent, fitness, sum(m.failed for m in now), sum(m.wrong for m in now)))
    return tuple(found)
