"""`neurotest.attack`: attack seeds, run what came out again as it would be saved, and count."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neurotest import registry
from neurotest.data.objects import AnyData
from neurotest.devices import placed
from neurotest.errors import BadInput
from neurotest.generate.fuzz.seeds import choose_seeds
from neurotest.generate.gradient.attacks import Attack
from neurotest.generate.gradient.engine import Diversity, Engine
from neurotest.generate.suite import AttackResult, RandomControl, RegressionValues, shuffle
from neurotest.generate.work import Batches, old_method
from neurotest.jobs.life import other_setting, resumed
from neurotest.jobs.methods import with_options
from neurotest.jobs.opening import AnyTarget, open_data, open_target, stored_source
from neurotest.jobs.parts import Arrays
from neurotest.jobs.stored import stored_target
from neurotest.jobs.work import resume_job, run_job
from neurotest.mutate.unit import SAME, distances
from neurotest.public import public
from neurotest.runs.store import Run
from neurotest.scan import Progress
from neurotest.settings.generate import AttackSettings
from neurotest.target import Target


@public(AttackSettings, method=True)
def attack(
    target: AnyTarget | None = None,
    seeds: AnyData | None = None,
    attack: str | Attack | None = None,
    diversity: float | Diversity | None = None,
    *,
    out: str | Path | bool | None = None,
    resume: str | Path | None = None,
    progress: Progress | None = None,
    **settings: Any,
) -> AttackResult:
    """Move each seed away from its class along the target's gradient; what still fails as it is saved is a fault.

    attack: `pgd` (default) or another of `neurotest list attack`, with options (`pgd:eps=0.1,steps=40`, or eps=, steps=, kappa=
    here). diversity: lambda of the regulariser on `layers`, or a `Diversity`. Seeds the target gets wrong are set aside unless
    `keep_wrong`; unlabelled seeds are attacked away from their prediction. batch: 100 by default. out: where the run goes (None:
    ./neurotest-runs; False: nothing is written); files: how many faults become images. resume: an interrupted run to go on with;
    it keeps its settings.
    """
    regulariser, options = _diversity(diversity, settings), AttackSettings.of_part("method", settings)
    if resume is not None:

        def again(run: Run, config: dict[str, Any]) -> _Attack:
            old = None if config["regulariser"] is None else Diversity(**config["regulariser"])
            if diversity is not None and regulariser != old:
                raise other_setting(run, "diversity", regulariser, old)
            method = old_method(run, config, "attack", attack, options)
            network, source = stored_target(run, target), stored_source(run, config["seeds"], seeds)
            return _Attack.begin(network, source, method, old, resumed(AttackSettings, run, config, settings))

        return resume_job(resume, "attack", again, progress, out=out)
    if target is None or seeds is None:
        raise BadInput("missing", "target", "attack needs a target and seeds (or resume=RUN to go on with a run).")
    method: Attack = with_options("attack", attack or "pgd", options)
    return run_job(_Attack.begin(open_target(target), seeds, method, regulariser, AttackSettings.of(settings)), out, progress)


def _diversity(diversity: float | Diversity | None, settings: Mapping[str, Any]) -> Diversity | None:
    changes = {name: settings[name] for name in ("layers", "reduce", "attack_first", "direction") if settings.get(name)}
    if isinstance(diversity, Diversity):
        regulariser = dataclasses.replace(diversity, **changes)
    else:
        regulariser = Diversity(weight=diversity or 0.0, **changes)
    if changes and regulariser.weight == 0:
        raise BadInput(
            "conflict",
            "diversity",
            f"{', '.join(changes)}: options of the regulariser, whose weight is 0: pass a diversity above 0 too.",
        )
    return regulariser if regulariser.weight > 0 else None


@dataclass(eq=False, kw_only=True)
class _Attack(Batches[AttackResult]):
    """One attack on chosen seeds, batch by batch."""

    command = "attack"
    diversity: Diversity | None

    @classmethod
    def begin(
        cls, target: Target, seeds: AnyData, method: Attack, diversity: Diversity | None, settings: AttackSettings
    ) -> _Attack:
        if diversity is not None and not method.regularised:
            others = [name for name, entry in registry.entries("attack").items() if getattr(entry.make, "regularised", False)]
            raise BadInput(
                "unsuitable",
                "diversity",
                f"diversity={diversity.weight:g}: {method.name} cannot use the regulariser; use {' or '.join(others)}.",
            )
        source = open_data(target, seeds, limit=settings.limit)
        chosen = choose_seeds(target, source, keep_wrong=settings.keep_wrong, batch=settings.batch)
        if diversity is not None:
            target.survey().find(diversity.layers)  # a missing layer is refused before a run is made
        return cls(targets=[target], source=source, seeds=chosen, method=method, diversity=diversity, settings=settings)

    def config(self) -> dict[str, Any]:
        diversity = self.diversity
        return {
            **super().config(),
            "attack": repr(self.method),
            "diversity": None if diversity is None else repr(diversity),
            "regulariser": None if diversity is None else dataclasses.asdict(diversity),
        }

    def work(self, run: Run | None, progress: Progress | None) -> AttackResult:
        with Engine(self.target, self.diversity, levels=self.seeds.levels) as engine:
            if self.done:
                engine.restore(self.done[-1]["counts"])
            self.each(functools.partial(self._one, engine), lambda last: engine.refuse_flat(last=last), run, progress)
        return self._result(engine)

    def _result(self, engine: Engine) -> AttackResult:
        arrays = self.joined("x", "predicted", "random", "random_predicted", "distance")
        predictions, noise, distance = arrays["predicted"], arrays["random_predicted"], arrays["distance"]
        expected, changed = self.seeds.expected, distance[:, 2] > SAME
        return AttackResult(
            attack=self.method.name, diversity=None if self.diversity is None else repr(self.diversity),
            x=arrays["x"], seeds=self.seeds.x, positions=self.seeds.positions, expected=expected, predicted=predictions,
            fault=(predictions != expected) & changed, distance=distance,
            control=RandomControl(arrays["random"], noise, (noise != expected) & changed),
            unstable=sum(int(part["lost"]) for part in self.done), forwards=engine.forwards + len(self.source),
            backwards=engine.backwards, notes=self._notes(engine), names=self.seeds.names,
            quantities=self._quantities(), **self.about(),
        )  # fmt: skip

    def _quantities(self) -> RegressionValues | None:
        return None if self.seeds.bins is None else RegressionValues.of(self.seeds, self.joined("answers")["answers"])

    def _one(self, engine: Engine, rows: NDArray[np.int64]) -> Arrays:
        device = self.target.device
        seed = self.seeds.unit(self.seeds.x[rows], device)
        expected, positions = self.seeds.expected[rows], self.seeds.positions[rows].tolist()
        values = self.seeds.values
        aim = placed(expected if values is None else values[rows], device)
        moved = self.method.run(engine, seed, aim, positions=positions, random=self.seed)
        saved = self.seeds.stored(engine.quantise(moved, seed, self.method.radius))
        x = self.seeds.unit(saved, device)  # as it will be read back
        logits = engine.predict(x)
        predictions = self.seeds.counted(logits, rows)
        lost = 0
        if self.seeds.levels:
            lost = int(((self.seeds.counted(engine.predict(moved), rows) != expected) & (predictions == expected)).sum())
        control = self.seeds.stored(shuffle(seed, x, positions, self.seed))
        noise = self.seeds.counted(engine.predict(self.seeds.unit(control, device)), rows)
        return {
            "answers": self.seeds.answers(logits),
            "x": saved, "predicted": predictions, "random": control, "random_predicted": noise,
            "distance": distances(x, seed), "lost": np.array(lost), "counts": engine.counts(),
        }  # fmt: skip

    def _notes(self, engine: Engine) -> tuple[str, ...]:
        notes = []
        if engine.flat:
            notes.append(
                f"{engine.flat} of {len(self.seeds)} seeds have a gradient of exactly 0 at the start: the attack is blind there."
            )
        radius, levels = self.method.radius, self.seeds.levels
        if levels and radius is not None and 0 < radius * levels.steps < 1 - 1e-6:
            notes.append(f"eps={radius:g} is less than one step of {levels.words}: no saved input can differ from its seed.")
        return tuple(notes)
