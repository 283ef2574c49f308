"""A repair as a job, and its result: accuracies before and after, compared with controls, and the new network.

One training follows the other. Each is kept when it is finished, the one that runs after every epoch.
"""

from __future__ import annotations

import copy
import json
import time
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from neurotest import interrupts
from neurotest.data.objects import AnyData
from neurotest.data.source import Source, content_ids
from neurotest.errors import BadInput
from neurotest.generate.gradient.attacks import Attack
from neurotest.generate.outcome import Outcome
from neurotest.jobs.methods import stored_method
from neurotest.jobs.opening import digests, stored_spec
from neurotest.jobs.parts import Arrays, Parts
from neurotest.jobs.stored import target_config
from neurotest.jobs.targets import WEIGHTS, weights_of, with_weights
from neurotest.jobs.work import Job
from neurotest.repair.evaluation import Judge, flips, rows
from neurotest.repair.plan import RepairPlan
from neurotest.repair.protocol import Protocol, control
from neurotest.repair.retrain import Repaired
from neurotest.runs.folder import RunFile, declare
from neurotest.runs.rows import InputRow
from neurotest.runs.store import Run
from neurotest.scan import Progress
from neurotest.settings.analyse import RepairSettings
from neurotest.target import Target
from neurotest.train import TrainingStep

WORDS = {
    "clean": "holdout as it is", "mutated": "holdout, mutated as in training", "unseen-operators": "holdout, unseen operators",
    "faults-seen": "held-out faults, families seen", "faults-unseen": "held-out faults, families unseen",
    "faults-operators": "held-out faults, operators unseen", "shift": "natural shift",
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class RepairResult(Outcome):
    """sets: numbers by set. controls: the same for every control, with the protocol's gain over it. repaired: the new network."""

    target: str
    protocol: str
    repeats: int
    sets: dict[str, dict[str, Any]]
    controls: dict[str, dict[str, dict[str, Any]]]
    absent: dict[str, str]  # controls that could not be run, and why
    fixed: dict[str, list[int]]
    broken: dict[str, list[int]]
    accepted: bool  # False: refused by no_regression
    plan: dict[str, Any]
    trained: list[dict[str, Any]]
    seconds: float
    notes: tuple[str, ...] = ()
    weights: Path | None = None
    run: Path | None = None
    repaired: Target | None = field(default=None, repr=False)

    def headline(self) -> str:
        clean, hard = self.sets["clean"], self.sets.get("mutated") or self.sets["clean"]
        text = (
            f"{self.protocol}: clean accuracy {clean['before']:.1%} -> {clean['after']:.1%}, mutated {hard['before']:.1%} -> "
            f"{hard['after']:.1%}; on the holdout {clean['fixed']} fixed, {clean['broken']} broken"
        )
        return text if self.accepted else f"refused, the weights break more than they fix. {text}"

    def table(self) -> list[dict[str, Any]]:
        """One row per set: before, after, and each control's accuracy."""
        rows = []
        for name, numbers in self.sets.items():
            beside = {control: by_set[name]["after"] for control, by_set in self.controls.items()}
            rows.append({"set": WORDS.get(name, name), **numbers, **beside})
        return rows

    def to_dict(self) -> dict[str, Any]:
        about = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "repaired"}
        paths = {name: None if about[name] is None else str(about[name]) for name in ("weights", "run")}
        return {**about, **paths, "seconds": round(self.seconds, 1), "notes": list(self.notes)}


PROTOCOL_ARM = "repair"  # the training of the protocol itself, compared with those of its controls
CHECKPOINTS = "checkpoints"  # a folder of the run
declare(rf"{CHECKPOINTS}/[0-9]{{3,}}\.pt", CHECKPOINTS)
PROGRESS_STEPS = 1000  # of progress, for every training


class Inputs(NamedTuple):
    """What a repair was given."""

    run: str | Path | None
    train: AnyData | None = None
    holdout: AnyData | None = None
    shift: AnyData | None = None
    pool: AnyData | None = None


class _Arm(NamedTuple):
    """One training: the protocol or a control, and which repetition."""

    name: str
    repeat: int


@dataclass(eq=False, kw_only=True)
class Repair(Job[RepairResult]):
    """One protocol with its controls on a plan."""

    command = "repair"

    plan: RepairPlan
    inputs: Inputs
    protocol: Protocol
    controls: tuple[str, ...]
    attacks: dict[str, Attack]
    settings: RepairSettings
    done: list[Arrays] = field(default_factory=list)
    module: torch.nn.Module | None = None  # of the first repetition
    began: float = field(default_factory=time.monotonic)

    @property
    def arms(self) -> list[_Arm]:
        """The protocol first: whoever stops early has the weights."""
        return [_Arm(name, repeat) for name in (PROTOCOL_ARM, *self.controls) for repeat in range(self.settings.repeats)]

    @cached_property
    def judge(self) -> Judge:
        return Judge(self.plan, self.attacks)

    def config(self) -> dict[str, Any]:
        train, holdout, shift = (one if isinstance(one, Source) else None for one in self.inputs[1:4])
        learn = self.plan.learn.inputs
        return {
            **target_config(self.plan.target), "run": str(Path(str(self.inputs.run)).resolve()),
            "train": stored_spec(train), "holdout": stored_spec(holdout), "shift": stored_spec(shift),
            "pool": stored_spec(self.inputs.pool), "method": stored_method(self.protocol), **self.settings.stored(),
            "threads": torch.get_num_threads(),
            "digests": digests(train=train, holdout=holdout, shift=shift, faults=learn),
        }  # fmt: skip

    def kept(self, run: Run) -> str:
        finished = len(Parts(run))
        begun = self._checkpoint(run, finished).exists()
        return f"{finished} of {len(self.arms)} trainings{' and some epochs' if begun else ''}" if finished or begun else ""

    def restore(self, run: Run) -> None:
        self.done = list(Parts(run))
        if self.done:
            network = self.plan.target.holding(copy.deepcopy(self.plan.target.module))
            self.module = with_weights(network, run.file(WEIGHTS).read()).module

    def work(self, run: Run | None, progress: Progress | None) -> RepairResult:
        arms = self.arms
        for number in range(len(self.done), len(arms)):
            interrupts.check()
            part = self._one(arms[number], run, number, progress)
            self.done.append(part)
            if run is not None:
                Parts(run).add(part)
                self._checkpoint(run, number).remove()
        return self._result(run)

    def _one(self, arm: _Arm, run: Run | None, number: int, progress: Progress | None) -> Arrays:
        """Train one network and say what it predicts; a control that does not fit says why."""

        def report(step: TrainingStep) -> None:
            interrupts.check()
            if progress is not None:
                progress(round(PROGRESS_STEPS * (number + step.done)), PROGRESS_STEPS * len(self.arms))

        checkpoint = None if run is None else self._checkpoint(run, number)
        seed = self.settings.seed + arm.repeat
        try:
            if arm.name == PROTOCOL_ARM:
                repaired = self.protocol.repair(self.plan, seed, checkpoint=checkpoint, report=report)
            else:
                repaired = control(arm.name, self.protocol, self.plan, seed, checkpoint=checkpoint, report=report)
        except BadInput as error:
            if arm.name == PROTOCOL_ARM:
                raise
            return {"about": np.array(json.dumps({"absent": str(error)}))}
        if arm == _Arm(PROTOCOL_ARM, 0):
            self.module = repaired.module
            if run is not None:
                run.file(WEIGHTS).write(weights_of(repaired.module))
        return self._judged(arm, repaired)

    def _judged(self, arm: _Arm, repaired: Repaired) -> Arrays:
        answers = self.judge.predict(self.plan.target.holding(repaired.module))
        about = {"arm": arm.name, "repeat": arm.repeat, **repaired.about}
        return {**{f"set {name}": values for name, values in answers.items()}, "about": np.array(json.dumps(about))}

    def _checkpoint(self, run: Run, number: int) -> RunFile:
        return run.file(f"{CHECKPOINTS}/{number:03d}.pt")

    def _result(self, run: Run | None) -> RepairResult:
        arms: dict[str, list[Arrays]] = {name: [] for name in (PROTOCOL_ARM, *self.controls)}
        absent: dict[str, str] = {}
        trained = []
        for arm, part in zip(self.arms, self.done, strict=True):
            about = json.loads(str(part["about"]))
            if "absent" in about:
                absent[arm.name] = about["absent"]
                continue
            trained.append(about)
            arms[arm.name].append({key[4:]: value for key, value in part.items() if key.startswith("set ")})
        old, labels = self.judge.old(), self.judge.labels
        numbers = rows(arms, old, labels)
        changed = {
            name: flips(old[name], arms[PROTOCOL_ARM][0][name], truth) for name, truth in labels.items() if name in self.plan.sets
        }
        clean = numbers["sets"]["clean"]
        accepted = not (self.settings.no_regression and clean["broken"] > clean["fixed"])
        if run is not None and not accepted:
            run.file(WEIGHTS).remove()
        assert self.module is not None
        network = self.plan.target.holding(self.module)
        return RepairResult(
            target=self.plan.target.spec, protocol=str(stored_method(self.protocol)), repeats=self.settings.repeats,
            **numbers, absent=absent, fixed={name: pair[0] for name, pair in changed.items()},
            broken={name: pair[1] for name, pair in changed.items()}, accepted=accepted, plan=self.plan.about(),
            trained=trained, seconds=time.monotonic() - self.began, notes=self._notes(numbers, accepted),
            weights=None if run is None or not accepted else run.file(WEIGHTS).path, repaired=network if accepted else None,
        )  # fmt: skip

    def _notes(self, numbers: dict[str, Any], accepted: bool) -> tuple[str, ...]:
        notes = list(self.plan.notes)
        clean = numbers["sets"]["clean"]
        if not accepted:
            notes.append(
                f"The new weights break {clean['broken']} inputs of the holdout and fix {clean['fixed']}: refused, none written."
            )
        beside = numbers["controls"].get("mutated", {}).get("mutated")
        if beside is not None and beside["gain_interval"][0] <= 0:
            notes.append(
                "On the mutated holdout the repair is not clearly better than training on mutated training images alone, "
                "which needs neither a campaign nor new labels."
            )
        if self.settings.repeats < 3:
            notes.append(
                f"Repeats: {self.settings.repeats}. How much the result depends on random numbers is not known; 3 are usual."
            )
        return tuple(notes)

    def record(self, run: Run, result: RepairResult) -> None:
        """Pictures of what was fixed and of what broke, and the class names."""
        target: Target = self.plan.target
        with run.transaction():
            run["classes"] = list(target.classes or self.plan.sets["clean"].classes or ())
            run.clear_inputs()
            position = 0
            for role, flipped in (("fixed", result.fixed), ("broken", result.broken)):
                for name, index in self._shown(flipped):
                    x = self.plan.sets[name].read(np.array([index]))
                    label, before, after = self._answers(name, index)
                    extra = {"set": name, "index": index, "role": role, "after": after}
                    run.add_inputs([InputRow(position, str(content_ids(x)[0]), label, before, extra)])
                    run.save_input(position, x[0], role, target.bounds)
                    position += 1
        for number in range(len(self.arms)):
            self._checkpoint(run, number).remove()
        run.folder.remove_folder(CHECKPOINTS)

    def _shown(self, flipped: dict[str, list[int]]) -> list[tuple[str, int]]:
        """As many as are stored, from every set in turn."""
        turns = [[(name, rows[i]) for name, rows in flipped.items() if i < len(rows)] for i in range(self.settings.files)]
        return [one for turn in turns for one in turn][: self.settings.files]

    def _answers(self, name: str, index: int) -> tuple[int, int, int]:
        source = self.plan.sets[name]
        assert source.labels is not None
        return int(source.labels[index]), int(self.plan.old[name][index]), int(self.done[0][f"set {name}"][index])
