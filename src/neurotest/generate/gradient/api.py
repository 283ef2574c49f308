"""`neurotest.attack`: attack seeds, run what came out again as it would be saved, and count."""

from __future__ import annotations

import dataclasses
import shutil
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from neurotest import registry, rng
from neurotest.data.source import Source, content_ids
from neurotest.data.spec import data
from neurotest.errors import BadInput, Interrupted, near
from neurotest.generate.fuzz.seeds import Seeds, choose_seeds
from neurotest.generate.gradient.attacks import Attack
from neurotest.generate.gradient.diversity import Diversity
from neurotest.generate.gradient.engine import Engine
from neurotest.generate.gradient.record import record
from neurotest.generate.gradient.result import AttackResult, Control
from neurotest.generate.parts import Arrays, Parts, described, rebuilt, stored_target, unfinished
from neurotest.oracles import court, predicted
from neurotest.runs.store import Run
from neurotest.scan import Progress
from neurotest.target import Target
from neurotest.target.load import load

BATCH = 100
FILES = 500
STOPPED = "interrupted after {done} of {all} batches, all of them saved. Go on with: neurotest attack --resume {path}"
SAME = 1e-6  # smaller changes are rounding: such an output is its seed, and no fault


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
        return _resume(resume, target, seeds, progress)
    if target is None or seeds is None:
        raise BadInput("attack needs a target and seeds (or resume=RUN to go on with a run).")
    target = load(target)
    if batch < 1:
        raise BadInput(f"batch={batch}: expected an integer >= 1.")
    if files < 0:
        raise BadInput(f"files={files}: expected an integer >= 0 (how many faults become images).")
    method: Attack = settings("attack", attack, options)
    wanted = _diversity(diversity, layers, reduce, attack_first)
    work = _Work.begin(target, seeds, method, wanted, keep_wrong, limit, batch, seed)
    if out is False:
        return work.run(None, progress)
    # The run is made first: an --out that cannot be used is told before the work, not after it.
    run = Run.create(None if out in (None, True) else Path(str(out)), "attack", {**work.config(), "files": files})
    return _finish(run, work, files, progress)


def _resume(path: str | Path, target: Target | str | None, seeds: Source | str | None, progress: Progress | None) -> AttackResult:
    run = Run.open(path, write=True)
    try:
        config = unfinished(run, "attack")
        loaded = stored_target(run, config["target"], config["fingerprint"], target)
        wanted = None if config["regulariser"] is None else Diversity(**config["regulariser"])
        work = _Work.begin(
            loaded, seeds if seeds is not None else str(config["seeds"]), rebuilt("attack", config["method"]), wanted,
            bool(config["keep_wrong"]), config["limit"], int(config["batch"]), int(config["seed"]),
        )  # fmt: skip
        if work.config()["contents"] != config["contents"]:
            raise BadInput(f"the seeds are not those {run.path} was started with: resume it with the same data.")
        work.done = list(Parts(run))
        files = int(config["files"])
    except BaseException as error:
        run.close()
        if isinstance(error, (KeyError, TypeError)):
            raise BadInput(f"{path} has a configuration that does not fit: it is damaged or older than this version.") from None
        raise
    return _finish(run, work, files, progress)


def _finish(run: Run, work: _Work, files: int, progress: Progress | None) -> AttackResult:
    with run:
        parts = Parts(run)
        try:
            found = dataclasses.replace(work.run(parts, progress), run=run.path)
        except KeyboardInterrupt:
            raise Interrupted(STOPPED.format(done=len(parts), all=work.batches, path=run.path)) from None
        except BaseException:
            if not len(parts):
                shutil.rmtree(run.path, ignore_errors=True)  # nothing is in it yet
            raise
        record(run, work.target, found, files)
        parts.clear()
    return found


def settings(kind: str, method: Any, options: dict[str, Any]) -> Any:
    """The method of a kind, with what was said beside its name."""
    made = registry.build(kind, method)
    if not dataclasses.is_dataclass(made) or isinstance(made, type) or not hasattr(made, "name"):
        raise BadInput(f"{kind}={made!r}: expected a name (`neurotest list {kind}`) or its settings as an object.")
    said = {name: value for name, value in options.items() if value is not None}
    known = [f.name for f in dataclasses.fields(made) if f.init]
    for name in said:
        if name not in known:
            raise BadInput(f"{made.name} has no option {name!r}. {near(name, known)}")
    return dataclasses.replace(made, **said)


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
    source: Source
    seeds: Seeds
    attack: Attack
    diversity: Diversity | None
    keep_wrong: bool
    limit: int | None
    batch: int
    random: int
    began: float
    done: list[Arrays] = field(default_factory=list)

    @classmethod
    def begin(
        cls, target: Target, seeds: Source | str, attack: Attack, diversity: Diversity | None, keep_wrong: bool,
        limit: int | None, batch: int, random: int,
    ) -> _Work:  # fmt: skip
        if diversity is not None and not attack.regularised:
            raise BadInput(
                f"diversity={diversity.weight:g}: {attack.name} has no place for the regulariser; use pgd, bim, fgsm or cw."
            )
        began = time.monotonic()
        source = data(seeds, shape=target.shape, limit=limit)
        oracle = "label" if source.labels is not None else "metamorphic"
        chosen = choose_seeds(target, source, court(target, oracle), keep_wrong=keep_wrong, batch=batch)
        if diversity is not None:
            target.survey().find(diversity.layers)  # a layer that is not there is told before a run is made
        return cls(target, source, chosen, attack, diversity, keep_wrong, limit, batch, random, began)

    @property
    def batches(self) -> int:
        return -(-len(self.seeds) // self.batch)

    def config(self) -> dict[str, Any]:
        return {
            "target": self.target.spec, "fingerprint": self.target.fingerprint, "seeds": self.source.spec,
            "contents": str(content_ids(self.seeds.x.reshape(1, -1))[0]), "attack": repr(self.attack),
            "method": described(self.attack), "diversity": None if self.diversity is None else repr(self.diversity),
            "regulariser": None if self.diversity is None else dataclasses.asdict(self.diversity),
            "keep_wrong": self.keep_wrong, "limit": self.limit, "batch": self.batch, "seed": self.random,
            "threads": torch.get_num_threads(),
        }  # fmt: skip

    @property
    def expected(self) -> NDArray[np.int64]:
        roots = self.seeds.roots
        return np.where(roots.labels >= 0, roots.labels, roots.predicted)

    def run(self, parts: Parts | None, progress: Progress | None) -> AttackResult:
        with Engine(self.target, self.diversity, eight_bit=self.seeds.eight_bit) as engine:
            if self.done:
                engine.restore(self.done[-1]["counts"])
            for number in range(len(self.done), self.batches):
                rows = np.arange(number * self.batch, min((number + 1) * self.batch, len(self.seeds)))
                part = self._one(engine, rows)
                engine.refuse_flat(last=number + 1 == self.batches)
                self.done.append(part)
                if parts is not None:
                    parts.add(part)
                if progress is not None:
                    progress(int(rows[-1]) + 1, len(self.seeds))
        return self._result(engine)

    def _result(self, engine: Engine) -> AttackResult:
        names = ("x", "told", "random", "random_told", "distance")
        held = {name: np.concatenate([part[name] for part in self.done]) for name in names}
        said, noise, distance = held["told"], held["random_told"], held["distance"]
        changed = distance[:, 2] > SAME
        seeds = self.seeds
        return AttackResult(
            attack=self.attack.name, diversity=None if self.diversity is None else repr(self.diversity),
            x=held["x"], seeds=seeds.x, positions=seeds.positions, expected=self.expected, predicted=said,
            fault=(said != self.expected) & changed, distance=distance,
            control=Control(held["random"], noise, (noise != self.expected) & changed),
            unstable=sum(int(part["lost"]) for part in self.done), set_aside=seeds.set_aside,
            forwards=engine.forwards + len(self.source), backwards=engine.backwards, seconds=time.monotonic() - self.began,
            outputs_possible=seeds.classes, classes=tuple(self.target.classes or self.source.classes or ()) or None,
            notes=self._notes(engine),
        )  # fmt: skip

    def _one(self, engine: Engine, rows: NDArray[np.int64]) -> Arrays:
        device = self.target.device
        seed = self.seeds.unit(self.seeds.x[rows], device)
        expected = self.expected[rows]
        positions = self.seeds.positions[rows].tolist()
        moved = self.attack.run(
            engine, seed, torch.from_numpy(expected).to(device), positions=positions, random=self.random
        )  # fmt: skip
        saved = self.seeds.stored(engine.settle(moved, seed, self.attack.radius))
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
