"""`neurotest.attack`: attack seeds, run what came out again as it would be saved, and count."""

from __future__ import annotations

import dataclasses
import functools
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from neurotest.data.source import Source
from neurotest.data.spec import data
from neurotest.errors import BadInput
from neurotest.generate.fuzz.seeds import choose_seeds
from neurotest.generate.gradient.attacks import Attack
from neurotest.generate.gradient.diversity import Diversity
from neurotest.generate.gradient.engine import Engine
from neurotest.generate.noise import shuffle
from neurotest.generate.parts import Arrays, Parts, rebuilt, settings, stored_target
from neurotest.generate.suite import AttackResult, Control
from neurotest.generate.work import FILES, Batches, carry_out, check_sizes, go_on
from neurotest.mutate.distances import SAME, distances
from neurotest.oracles import court, predicted
from neurotest.runs.store import Run
from neurotest.scan import Progress
from neurotest.target import Target
from neurotest.target.load import load

BATCH = 100


def attack(
    target: Target | str | None = None,
    seeds: Source | str | None = None,
    attack: str | Attack = "pgd",
    diversity: float | Diversity = 0.0,
    *,
    layers: str | None = None,
    reduce: str | None = None,
    attack_first: bool = False,
    keep_wrong: bool = False,
    limit: int | None = None,
    batch: int = BATCH,
    seed: int = 0,
    files: int = FILES,
    out: str | Path | bool | None = None,
    resume: str | Path | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> AttackResult:
    """Move each seed away from its class along the target's gradient; what still fails as it is saved is a fault.

    attack: `pgd`, `bim`, `fgsm`, `cw`, `deepfool`, `jsma`, `autoattack`, with options (`pgd:eps=0.1,steps=40`, or eps=, steps=,
    kappa= here). diversity: lambda of the regulariser on `layers`, or a `Diversity`. Seeds the target gets wrong are set aside
    unless `keep_wrong`; unlabelled seeds are attacked away from what is predicted for them. out: where the run goes (None:
    ./neurotest-runs; False: nothing is written); files: how many faults become images. resume: an interrupted run to go on with.
    """
    if resume is not None:
        return go_on("attack", resume, lambda run, config: _again(run, config, target, seeds), progress)
    if target is None or seeds is None:
        raise BadInput("attack needs a target and seeds (or resume=RUN to go on with a run).")
    check_sizes(batch=batch, files=files)
    method: Attack = settings("attack", attack, options)
    wanted = _diversity(diversity, layers, reduce, attack_first)
    work = _Attack.begin(
        load(target), seeds, method, wanted, keep_wrong=keep_wrong, limit=limit, batch=batch, random=seed
    )  # fmt: skip
    return carry_out(work, out, files, progress)


def _again(run: Run, config: dict[str, Any], target: Target | str | None, seeds: Source | str | None) -> _Attack:
    return _Attack.begin(
        stored_target(run, config["target"], config["fingerprint"], target),
        seeds if seeds is not None else str(config["seeds"]),
        rebuilt("attack", config["method"]),
        None if config["regulariser"] is None else Diversity(**config["regulariser"]),
        keep_wrong=bool(config["keep_wrong"]), limit=config["limit"], batch=int(config["batch"]), random=int(config["seed"]),
    )  # fmt: skip


def _diversity(given: float | Diversity, layers: str | None, reduce: str | None, attack_first: bool) -> Diversity | None:
    said: dict[str, Any] = {"layers": layers, "reduce": reduce, "attack_first": attack_first or None}
    said = {name: value for name, value in said.items() if value is not None}
    made = dataclasses.replace(given, **said) if isinstance(given, Diversity) else Diversity(weight=given, **said)
    if said and made.weight == 0:
        raise BadInput(f"{', '.join(said)}: this is said of the regulariser, whose weight is 0: pass a diversity above 0 too.")
    return made if made.weight > 0 else None


@dataclass(eq=False, kw_only=True)
class _Attack(Batches[AttackResult]):
    """One attack on chosen seeds, batch by batch."""

    command = "attack"
    diversity: Diversity | None

    @classmethod
    def begin(
        cls, target: Target, seeds: Source | str, method: Attack, diversity: Diversity | None, *, keep_wrong: bool,
        limit: int | None, batch: int, random: int,
    ) -> _Attack:  # fmt: skip
        if diversity is not None and not method.regularised:
            raise BadInput(
                f"diversity={diversity.weight:g}: {method.name} has no place for the regulariser; use pgd, bim, fgsm or cw."
            )
        began = time.monotonic()
        source = data(seeds, shape=target.shape, limit=limit)
        oracle = "label" if source.labels is not None else "metamorphic"
        chosen = choose_seeds(target, source, court(target, oracle), keep_wrong=keep_wrong, batch=batch)
        if diversity is not None:
            target.survey().find(diversity.layers)  # a layer that is not there is told before a run is made
        return cls(
            targets=[target], source=source, seeds=chosen, method=method, diversity=diversity, keep_wrong=keep_wrong, limit=limit,
            batch=batch, random=random, began=began,
        )  # fmt: skip

    def config(self) -> dict[str, Any]:
        said: dict[str, Any] = {"attack": repr(self.method), "diversity": None, "regulariser": None}
        if self.diversity is not None:
            said |= {"diversity": repr(self.diversity), "regulariser": dataclasses.asdict(self.diversity)}
        return {**super().config(), **said}

    @property
    def expected(self) -> NDArray[np.int64]:
        roots = self.seeds.roots
        return np.where(roots.labels >= 0, roots.labels, roots.predicted)

    def run(self, parts: Parts | None, progress: Progress | None) -> AttackResult:
        with Engine(self.target, self.diversity, eight_bit=self.seeds.eight_bit) as engine:
            if self.done:
                engine.restore(self.done[-1]["counts"])
            self.each(functools.partial(self._one, engine), lambda last: engine.refuse_flat(last=last), parts, progress)
        return self._result(engine)

    def _result(self, engine: Engine) -> AttackResult:
        held = self.joined("x", "told", "random", "random_told", "distance")
        said, noise, distance = held["told"], held["random_told"], held["distance"]
        changed = distance[:, 2] > SAME
        return AttackResult(
            attack=self.method.name, diversity=None if self.diversity is None else repr(self.diversity),
            x=held["x"], seeds=self.seeds.x, positions=self.seeds.positions, expected=self.expected, predicted=said,
            fault=(said != self.expected) & changed, distance=distance,
            control=Control(held["random"], noise, (noise != self.expected) & changed),
            unstable=sum(int(part["lost"]) for part in self.done), forwards=engine.forwards + len(self.source),
            backwards=engine.backwards, notes=self._notes(engine), **self.about(),
        )  # fmt: skip

    def _one(self, engine: Engine, rows: NDArray[np.int64]) -> Arrays:
        device = self.target.device
        seed = self.seeds.unit(self.seeds.x[rows], device)
        expected = self.expected[rows]
        positions = self.seeds.positions[rows].tolist()
        moved = self.method.run(
            engine, seed, torch.from_numpy(expected).to(device), positions=positions, random=self.random
        )  # fmt: skip
        saved = self.seeds.stored(engine.settle(moved, seed, self.method.radius))
        again = self.seeds.unit(saved, device)  # as it will be read back
        said = predicted(engine.predict(again))
        lost = 0
        if self.seeds.eight_bit:
            lost = int(((predicted(engine.predict(moved)) != expected) & (said == expected)).sum())
        control = self.seeds.stored(shuffle(seed, again, positions, self.random))
        noise = predicted(engine.predict(self.seeds.unit(control, device)))
        return {
            "x": saved, "told": said, "random": control, "random_told": noise, "distance": distances(again, seed),
            "lost": np.array(lost), "counts": engine.counts(),
        }  # fmt: skip

    def _notes(self, engine: Engine) -> tuple[str, ...]:
        said = []
        if engine.flat:
            said.append(
                f"{engine.flat} of {len(self.seeds)} seeds have a gradient of exactly 0 at the start: the attack is blind there."
            )
        radius = self.method.radius
        if self.seeds.eight_bit and radius is not None and 0 < radius * 255 < 1 - 1e-6:
            said.append(f"eps={radius:g} is less than one step of 8-bit data (1/255): no saved image can differ from its seed.")
        return tuple(said)
