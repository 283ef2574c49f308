"""`neurotest.attack`: attack seeds, run what came out again as it would be saved, and count."""

from __future__ import annotations

import dataclasses
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from neurotest import registry, rng
from neurotest.data.source import Source
from neurotest.data.spec import data
from neurotest.errors import BadInput, near
from neurotest.generate.fuzz.seeds import Seeds, choose_seeds
from neurotest.generate.gradient.attacks import Attack
from neurotest.generate.gradient.diversity import Diversity
from neurotest.generate.gradient.engine import Engine
from neurotest.generate.gradient.record import record
from neurotest.generate.gradient.result import AttackResult, Control
from neurotest.oracles import court, predicted
from neurotest.runs.store import Run
from neurotest.scan import Progress
from neurotest.target import Target
from neurotest.target.load import load

BATCH = 100
FILES = 500
SAME = 1e-6  # smaller changes are rounding: such an output is its seed, and no fault


def attack(
    target: Target | str,
    seeds: Source | str,
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
    progress: Progress | None = None,
    **options: Any,
) -> AttackResult:
    """Move each seed away from its class along the target's gradient; what still fails as it is saved is a fault.

    attack: `pgd`, `bim`, `fgsm`, `cw`, with options (`pgd:eps=0.1,steps=40`, or eps=, steps=, kappa= here). diversity: lambda of
    the regulariser on `layers`, or a `Diversity`. Seeds the target gets wrong are set aside unless `keep_wrong`; unlabelled seeds
    are attacked away from what is predicted for them. out: where the run goes (None: ./neurotest-runs; False: nothing is
    written); files: how many faults become images.
    """
    target = load(target)
    if batch < 1:
        raise BadInput(f"batch={batch}: expected an integer >= 1.")
    if files < 0:
        raise BadInput(f"files={files}: expected an integer >= 0 (how many faults become images).")
    method = _with(registry.build("attack", attack), options)
    wanted = _diversity(diversity, layers, reduce, attack_first)
    source = data(seeds, shape=target.shape, limit=limit)
    oracle = "label" if source.labels is not None else "metamorphic"
    began = time.monotonic()
    chosen = choose_seeds(target, source, court(target, oracle), keep_wrong=keep_wrong, batch=batch)
    if wanted is not None:
        target.survey().find(wanted.layers)  # a layer that is not there is told before a run is made
    config = {
        "target": target.spec, "fingerprint": target.fingerprint, "seeds": source.spec, "attack": repr(method),
        "diversity": None if wanted is None else repr(wanted), "keep_wrong": keep_wrong, "limit": limit, "batch": batch,
        "seed": seed, "threads": torch.get_num_threads(),
    }  # fmt: skip
    classes = tuple(target.classes or source.classes or ()) or None
    work = _Work(target, chosen, method, wanted, batch, seed, began, classes)
    if out is False:
        return work.run(len(source), progress)
    # The run is made first: an --out that cannot be used is told before the work, not after it.
    with Run.create(None if out in (None, True) else Path(str(out)), "attack", config) as run:
        try:
            found = work.run(len(source), progress)
        except BaseException:
            shutil.rmtree(run.path, ignore_errors=True)  # nothing is in it yet
            raise
        found = dataclasses.replace(found, run=run.path)
        record(run, target, found, files)
    return found


def _with(method: Any, options: dict[str, Any]) -> Attack:
    """The attack with what was said beside its name."""
    if not dataclasses.is_dataclass(method) or isinstance(method, type) or not hasattr(method, "run"):
        raise BadInput(f"attack={method!r}: expected a name (`neurotest list attack`) or an attack such as PGD(eps=0.1).")
    said = {name: value for name, value in options.items() if value is not None}
    known = [f.name for f in dataclasses.fields(method) if f.init]
    for name in said:
        if name not in known:
            raise BadInput(f"{method.name} has no option {name!r}. {near(name, known)}")  # type: ignore[attr-defined]
    made: Attack = dataclasses.replace(method, **said)  # type: ignore[assignment]
    return made


def _diversity(given: float | Diversity, layers: str | None, reduce: str | None, attack_first: bool) -> Diversity | None:
    said: dict[str, Any] = {"layers": layers, "reduce": reduce, "attack_first": attack_first or None}
    said = {name: value for name, value in said.items() if value is not None}
    made = dataclasses.replace(given, **said) if isinstance(given, Diversity) else Diversity(weight=given, **said)
    if said and made.weight == 0:
        raise BadInput(f"{', '.join(said)}: this is said of the regulariser, whose weight is 0: pass a diversity above 0 too.")
    return made if made.weight > 0 else None


@dataclass(eq=False)
class _Work:
    """One attack on chosen seeds, batch by batch."""

    target: Target
    seeds: Seeds
    attack: Attack
    diversity: Diversity | None
    batch: int
    random: int
    began: float
    classes: tuple[str, ...] | None
    x: list[NDArray[np.generic]] = field(default_factory=list)
    told: list[NDArray[np.int64]] = field(default_factory=list)
    random_x: list[NDArray[np.generic]] = field(default_factory=list)
    noise: list[NDArray[np.int64]] = field(default_factory=list)
    far: list[NDArray[np.float64]] = field(default_factory=list)
    lost: int = 0

    @property
    def expected(self) -> NDArray[np.int64]:
        roots = self.seeds.roots
        return np.where(roots.labels >= 0, roots.labels, roots.predicted)

    def run(self, scanned: int, progress: Progress | None) -> AttackResult:
        engine = Engine(self.target, self.diversity, eight_bit=self.seeds.eight_bit)
        with engine:
            for rows in self._batches():
                self._one(engine, rows)
                engine.refuse_flat(last=int(rows[-1]) + 1 == len(self.seeds))
                if progress is not None:
                    progress(int(rows[-1]) + 1, len(self.seeds))
        said, shuffled, distance = np.concatenate(self.told), np.concatenate(self.noise), np.concatenate(self.far)
        changed = distance[:, 2] > SAME
        seeds = self.seeds
        return AttackResult(
            attack=self.attack.name, diversity=None if self.diversity is None else repr(self.diversity),
            x=np.concatenate(self.x), seeds=seeds.x, positions=seeds.positions, expected=self.expected, predicted=said,
            fault=(said != self.expected) & changed, distance=distance,
            control=Control(np.concatenate(self.random_x), shuffled, (shuffled != self.expected) & changed),
            unstable=self.lost, set_aside=seeds.set_aside,
            forwards=engine.forwards + scanned, backwards=engine.backwards, seconds=time.monotonic() - self.began,
            outputs_possible=seeds.classes, classes=self.classes, notes=self._notes(engine),
        )  # fmt: skip

    def _batches(self) -> Iterator[NDArray[np.int64]]:
        for start in range(0, len(self.seeds), self.batch):
            yield np.arange(start, min(start + self.batch, len(self.seeds)))

    def _one(self, engine: Engine, rows: NDArray[np.int64]) -> None:
        seed = self.seeds.unit(self.seeds.x[rows], self.target.device)
        y = torch.from_numpy(self.expected[rows]).to(self.target.device)
        positions = self.seeds.positions[rows].tolist()
        moved = self.attack.run(engine, seed, y, positions=positions, random=self.random)
        settled = engine.settle(moved, seed, self.attack.radius)
        saved = self.seeds.stored(settled)
        again = self.seeds.unit(saved, self.target.device)  # as it will be read back
        said = predicted(engine.predict(again))
        if self.seeds.eight_bit:
            self.lost += int(((predicted(engine.predict(moved)) != self.expected[rows]) & (said == self.expected[rows])).sum())
        shuffled = self.seeds.stored(shuffle(seed, again, positions, self.random))
        self.x.append(saved)
        self.random_x.append(shuffled)
        self.told.append(said)
        self.noise.append(predicted(engine.predict(self.seeds.unit(shuffled, self.target.device))))
        self.far.append(distances(again, seed))

    def _notes(self, engine: Engine) -> tuple[str, ...]:
        said = []
        if engine.flat:
            said.append(
                f"{engine.flat} of {len(self.seeds)} seeds have a gradient of exactly 0 at the start: the attack is blind there."
            )
        radius = self.attack.radius
        if self.seeds.eight_bit and radius is not None and 0 < radius * 255 < 1 - 1e-6:
            said.append(f"eps={radius:g} is less than one step of 8-bit data (1/255): no saved image can differ from its seed.")
        return tuple(said)


def distances(x: Tensor, seed: Tensor) -> NDArray[np.float64]:
    """L0 (share of values that differ), L2 and Linf of each pair in [0, 1]: (n, 3)."""
    away = (x - seed).flatten(1).abs().double()
    found = torch.stack([(away > 1e-7).double().mean(1), away.square().sum(1).sqrt(), away.amax(1)], dim=1)
    return np.asarray(found.cpu().numpy())


def shuffle(seed: Tensor, x: Tensor, positions: list[int], random: int) -> Tensor:
    """The control: the same changes at random places with random signs, turned round where they would leave [0, 1]."""
    size = (x - seed).flatten(1).abs()
    out = torch.empty_like(size)
    base = seed.flatten(1)
    for i, position in enumerate(positions):
        generator = rng.torch_stream("attack.control", random, position)
        places = torch.randperm(size.shape[1], generator=generator).to(size.device)
        sign = (torch.randint(0, 2, (size.shape[1],), generator=generator) * 2 - 1).to(size)
        change = size[i, places] * sign
        outside = (base[i] + change < 0) | (base[i] + change > 1)
        out[i] = base[i] + torch.where(outside, -change, change)
    return out.clamp(0, 1).view_as(seed)
