"""`neurotest.robustness`: how far inputs are from another class, estimated from below, and from above by what attacks find."""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from neurotest import rng
from neurotest.data.objects import AnyData
from neurotest.data.source import Source
from neurotest.devices import placed
from neurotest.errors import BadInput, near
from neurotest.evaluate.clever import Clever, CleverEstimate
from neurotest.evaluate.leads import Leads, nearest
from neurotest.generate.fuzz.seeds import Seeds, choose_seeds
from neurotest.generate.gradient.engine import ZERO_GRADIENT
from neurotest.generate.outcome import Outcome, class_name, interval
from neurotest.generate.work import old_method
from neurotest.jobs.life import resumed
from neurotest.jobs.methods import stored_method, with_options
from neurotest.jobs.opening import AnyTarget, digests, open_data, open_target, stored_source, stored_spec
from neurotest.jobs.parts import Arrays, Parts
from neurotest.jobs.stored import stored_target, target_config
from neurotest.jobs.work import Job, resume_job, run_job
from neurotest.mutate.unit import from_unit
from neurotest.public import public
from neurotest.runs.rows import InputRow
from neurotest.runs.store import Run
from neurotest.scan import Progress
from neurotest.settings.analyse import RobustnessSettings
from neurotest.stats.bootstrap import mean_interval
from neurotest.target import Target
from neurotest.target.speed import channels_last

BY = ("none", "random", "deepfool", "pgd", "cw")  # what an upper bound comes from, by number in the parts of a run
NOT_CERTIFIED = (
    "an estimate, not a certificate: the steepest gradient may be one that no random point met, and a network that hides its "
    "gradients looks more robust than it is."
)


@dataclass(frozen=True, eq=False)
class RobustnessResult(Outcome):
    """Per input the estimated distance to another class and the smallest change that was found, shares of the input range."""

    method: str
    norm: str
    radius: float
    towards: int | None
    positions: NDArray[np.int64] = field(repr=False)  # (n,) in the source
    own: NDArray[np.int64] = field(repr=False)  # (n,) class
    rival: NDArray[np.int64] = field(repr=False)  # (n,) the class that is estimated to be nearest
    score: NDArray[np.float64] = field(repr=False)  # (n,)
    upper: NDArray[np.float64] = field(repr=False)  # (n,), infinite where no attack succeeded
    by: tuple[str, ...] = field(repr=False)  # (n,)
    changed: NDArray[np.float64] = field(repr=False)  # (n,) share of random points of the ball with another class
    targeted: NDArray[np.float64] = field(repr=False)  # (n, classes), NaN where a class was not tried
    fitted: int
    fits: int
    attacked: bool
    set_aside: int
    forwards: int
    backwards: int
    seconds: float
    classes: tuple[str, ...] | None = None
    names: NDArray[np.object_] | None = field(default=None, repr=False)
    contents: NDArray[np.str_] | None = field(default=None, repr=False)
    run: Path | None = None
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.score)

    @property
    def contradicted(self) -> NDArray[np.bool_]:
        """(n,) where an attack found a smaller change than the estimate says there is."""
        return self.upper < self.score

    def to_dict(self) -> dict[str, Any]:
        reached = np.isfinite(self.upper)
        score = mean_interval(self.score)
        upper = mean_interval(self.upper[reached]) if reached.any() else None
        return {
            "inputs": len(self), "set_aside": self.set_aside, "method": self.method, "norm": self.norm, "radius": self.radius,
            "towards": None if self.towards is None else class_name(self.towards, self.classes),
            "score": score.value, "score_interval": [score.low, score.high], "score_median": float(np.median(self.score)),
            "least": float(self.score.min()),
            "upper": None if upper is None else upper.value, "upper_interval": None if upper is None else [upper.low, upper.high],
            "reached": int(reached.sum()), "contradicted": int(self.contradicted.sum()),
            "contradicted_interval": interval(int(self.contradicted.sum()), len(self)),
            "at_radius": int((self.score >= self.radius).sum()),
            "random": {"changed": float(self.changed.mean()), "inputs": int((self.changed > 0).sum())},
            "fits": self.fits, "fitted": self.fitted,
            "by": {name: self.by.count(name) for name in dict.fromkeys(self.by)},
            "forwards": self.forwards, "backwards": self.backwards, "seconds": round(self.seconds, 3),
            "run": None if self.run is None else str(self.run), "rows": self.table(), "notes": list(self.notes),
        }  # fmt: skip

    def table(self) -> list[dict[str, Any]]:
        """One row per input, the least robust first."""
        return [
            {
                "position": int(self.positions[i]), "file": None if self.names is None else str(self.names[i]),
                "class": class_name(int(self.own[i]), self.classes), "nearest": class_name(int(self.rival[i]), self.classes),
                "score": float(self.score[i]), "upper": _finite(self.upper[i]), "by": self.by[i],
                "contradicted": bool(self.contradicted[i]), "changed": float(self.changed[i]),
                "targeted": [_finite(value) for value in self.targeted[i].tolist()],
            }
            for i in np.argsort(self.score, kind="stable").tolist()
        ]  # fmt: skip

    def headline(self) -> str:
        about = self.to_dict()
        low, high = about["score_interval"]
        changes = "no attack was tried" if not self.attacked else "no attack succeeded"
        if about["upper"] is not None:
            changes = f"the smallest changes found that give another class have {about['upper']:.3g} on average"
        return (
            f"estimated {self.norm} distance to another class, mean of {len(self)} inputs: {about['score']:.3g} "
            f"({low:.3g} .. {high:.3g}); {changes}; {NOT_CERTIFIED}"
        )


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


@public(RobustnessSettings, method=True)
def robustness(
    target: AnyTarget | None = None,
    data: AnyData | None = None,
    method: str | Clever | None = None,
    *,
    out: str | Path | bool | None = None,
    resume: str | Path | None = None,
    progress: Progress | None = None,
    **settings: Any,
) -> RobustnessResult:
    """How far inputs are from another class: CLEVER's estimate, and beside it the smallest change that attacks find.

    method: `clever` (default) with options (`clever:norm=linf,radius=0.3`, or norm=, radius=, samples=, ... here); the preset
    `clever:paper` has the paper's settings. inputs: how many, drawn at random (20); those that are classified wrongly are set
    aside. towards: a class, by name or number: the distance to it instead of to any other. attacks: False leaves out the upper
    bound. batch: inputs after which the work is saved (10). out, resume: as in `attack`.
    """
    options = RobustnessSettings.of_part("method", settings)
    if resume is not None:

        def again(run: Run, config: dict[str, Any]) -> _Robustness:
            chosen = resumed(RobustnessSettings, run, config, settings)
            network, source = stored_target(run, target), stored_source(run, config["data"], data, "data")
            return _Robustness.begin(network, source, old_method(run, config, "robustness", method, options), chosen)

        return resume_job(resume, "robustness", again, progress, out=out)
    if target is None or data is None:
        raise BadInput("missing", "target", "robustness needs a target and data (or resume=RUN to go on with a run).")
    built: Clever = with_options("robustness", method or "clever", options)
    return run_job(_Robustness.begin(open_target(target), data, built, RobustnessSettings.of(settings)), out, progress)


@dataclass(eq=False, kw_only=True)
class _Robustness(Job[RobustnessResult]):
    """Inputs in groups, each kept when it is done."""

    command = "robustness"
    target: Target
    source: Source
    seeds: Seeds
    method: Clever
    settings: RobustnessSettings
    towards: int | None
    done: list[Arrays] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)

    @classmethod
    def begin(cls, target: Target, data: AnyData, method: Clever, settings: RobustnessSettings) -> _Robustness:
        method.check(target)
        source = open_data(target, data, limit=settings.limit)
        order = rng.stream("robustness.inputs", settings.seed).permutation(len(source))[: settings.inputs]
        seeds = choose_seeds(target, source.take(np.sort(order)))
        positions = np.sort(order)[seeds.positions]
        towards = _class(settings.towards, tuple(target.classes or source.classes or ()), seeds.classes)
        if towards is not None:
            others = np.flatnonzero(seeds.expected != towards)
            if not len(others):
                raise BadInput(
                    "conflict",
                    "towards",
                    f"towards={settings.towards!r}: every input is of that class already; name another one.",
                )
            seeds, positions = seeds.take(others), positions[others]
        seeds = dataclasses.replace(seeds, positions=positions)
        return cls(target=target, source=source, seeds=seeds, method=method, settings=settings, towards=towards)

    def config(self) -> dict[str, Any]:
        return {
            **target_config(self.target), "data": stored_spec(self.source), "method": stored_method(self.method),
            **self.settings.stored(), "threads": torch.get_num_threads(), "digests": digests(data=self.source),
        }  # fmt: skip

    @property
    def count(self) -> int:
        return -(-len(self.seeds) // self.settings.batch)

    def kept(self, run: Run) -> str:
        return f"{len(Parts(run))} of {self.count} groups of inputs" if len(Parts(run)) else ""

    def restore(self, run: Run) -> None:
        self.done = list(Parts(run))

    def work(self, run: Run | None, progress: Progress | None) -> RobustnessResult:
        size = self.settings.batch
        some = from_unit(self.seeds.unit(self.seeds.x[:1], self.target.device), self.target.bounds)
        with channels_last(self.target, some):
            for number in range(len(self.done), self.count):
                rows = np.arange(number * size, min((number + 1) * size, len(self.seeds)))
                part = self._group(rows, progress)
                self.done.append(part)
                if run is not None:
                    Parts(run).add(part)
                if progress is not None:
                    progress(int(rows[-1]) + 1, len(self.seeds))
        return self._result()

    def _group(self, rows: NDArray[np.int64], progress: Progress | None) -> Arrays:
        u = self.seeds.unit(self.seeds.x[rows], self.target.device)
        own, positions = self.seeds.expected[rows], self.seeds.positions[rows].tolist()
        leads, seed = Leads(self.target, vmap=self.method.vmap), self.settings.seed
        estimates: list[CleverEstimate] = []
        for i, position in enumerate(positions):
            estimates.append(self.method.estimate(leads, u[i], int(own[i]), position=position, seed=seed, towards=self.towards))
            if progress is not None and i + 1 < len(positions):
                progress(int(rows[i]) + 1, len(self.seeds))
        upper, by = (
            np.array([one.nearest for one in estimates]),
            ["random" if np.isfinite(e.nearest) else "none" for e in estimates],
        )
        passes = np.zeros(2, dtype=np.int64)
        if self.settings.attacks:
            values = self.seeds.values
            y = placed(own if values is None else values[rows], u.device)
            closest = nearest(leads, u, y, self.method.norm, positions=positions, seed=seed, towards=self.towards)
            by = [
                name if far < before else old
                for name, far, before, old in zip(closest.by, closest.distance, upper, by, strict=True)
            ]
            upper = np.minimum(upper, closest.distance)
            passes = np.array([closest.forwards, closest.backwards])
        targeted = np.full((len(rows), self.seeds.classes), np.nan)
        for i, one in enumerate(estimates):
            targeted[i, one.rivals] = one.scores
        return {
            "score": np.array([one.score for one in estimates]), "rival": np.array([one.rival for one in estimates]),
            "changed": np.array([one.changed for one in estimates]), "flat": np.array([one.flat for one in estimates]),
            "upper": upper, "by": np.array([BY.index(name) for name in by]), "targeted": targeted,
            "ends": np.array([sum(end.by in ("fit", "constant") for one in estimates for end in one.ends),
                              sum(len(one.ends) for one in estimates)]),
            "passes": passes + np.array([leads.forwards, leads.backwards]),
        }  # fmt: skip

    def _result(self) -> RobustnessResult:
        try:
            names = ("score", "rival", "changed", "flat", "upper", "by", "targeted")
            arrays = {name: np.concatenate([part[name] for part in self.done]) for name in names}
            fitted, fits, forwards, backwards = (
                int(n) for n in np.concatenate([sum(part[name] for part in self.done) for name in ("ends", "passes")])
            )
        except (KeyError, ValueError) as error:
            raise BadInput(
                "damaged", "parts", f"the parts of the run do not fit each other ({error}): it is damaged; start a new run."
            ) from error
        flat = arrays["flat"].astype(bool)
        if flat.all():
            raise BadInput("no-gradient", "zero", ZERO_GRADIENT)
        return RobustnessResult(
            method=repr(self.method), norm=self.method.norm, radius=self.method.reach, towards=self.towards,
            positions=self.seeds.positions, own=self.seeds.expected, rival=arrays["rival"], score=arrays["score"],
            upper=arrays["upper"], by=tuple(BY[int(n)] for n in arrays["by"]), changed=arrays["changed"],
            targeted=arrays["targeted"], fitted=fitted, fits=fits, attacked=self.settings.attacks,
            set_aside=self.seeds.set_aside,
            forwards=forwards, backwards=backwards, seconds=time.monotonic() - self.began,
            classes=tuple(self.target.classes or self.source.classes or ()) or None, names=self.seeds.names,
            contents=self.seeds.contents, notes=self._notes(int(flat.sum()), arrays["score"] > arrays["upper"]),
        )  # fmt: skip

    def _notes(self, flat: int, contradicted: NDArray[np.bool_]) -> tuple[str, ...]:
        notes = []
        if flat:
            notes.append(f"{flat} of {len(self.seeds)} inputs have no gradient anywhere in the ball: their scores say nothing.")
        if contradicted.any():
            notes.append(
                f"for {int(contradicted.sum())} of {len(self.seeds)} inputs a smaller change than estimated was found: the "
                "estimate is wrong there (gradients that no random point met, or hidden ones)."
            )
        return tuple(notes)

    def record(self, run: Run, result: RobustnessResult) -> None:
        contents = self.seeds.contents
        rows = (
            InputRow(
                position=int(result.positions[i]),
                content=str(contents[i]),
                label=int(result.own[i]),
                predicted=int(result.own[i]),
                extra={"score": float(result.score[i]), "upper": _finite(result.upper[i]), "nearest": int(result.rival[i])},
            )
            for i in range(len(result))
        )
        with run.transaction():
            run["classes"] = list(result.classes or ())
            run.clear_inputs()
            run.add_inputs(rows)


def _class(name: str | int | None, classes: tuple[str, ...], count: int) -> int | None:
    """A class by its name or number."""
    if name is None:
        return None
    if str(name) in classes:
        return classes.index(str(name))
    if str(name).isdecimal() and int(name) < count:
        return int(name)
    hint = near(str(name), classes) if classes else f"Classes are numbers from 0 to {count - 1}."
    raise BadInput("unknown-name", "towards", f"towards={name!r}: there is no such class. {hint}")
