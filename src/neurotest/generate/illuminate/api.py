"""`neurotest.illuminate`: fill the map of what is taken for what, with the smallest change for each."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from neurotest import files as disk
from neurotest.data.source import Source
from neurotest.data.spec import data
from neurotest.errors import BadInput
from neurotest.generate.fuzz.seeds import choose_seeds
from neurotest.generate.gradient.engine import Engine
from neurotest.generate.illuminate.generator import Generator
from neurotest.generate.illuminate.result import IlluminateResult
from neurotest.generate.illuminate.settings import Illuminate
from neurotest.generate.noise import shuffle
from neurotest.generate.parts import Arrays, Parts, rebuilt, settings, stored_target
from neurotest.generate.suite import Control
from neurotest.generate.work import FILES, Work, carry_out, check_sizes, go_on
from neurotest.mutate.distances import distances
from neurotest.oracles import court, predicted
from neurotest.runs.store import Run
from neurotest.scan import Progress
from neurotest.target import Target
from neurotest.target.load import load

FORWARDS = 2000
EVERY = "faults.npz"


def illuminate(
    target: Target | str | None = None,
    seeds: Source | str | None = None,
    forwards: int | None = None,
    *,
    method: str | Illuminate = "illuminate",
    keep_wrong: bool = False,
    limit: int | None = None,
    seed: int = 0,
    files: int = FILES,
    out: str | Path | bool | None = None,
    resume: str | Path | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> IlluminateResult:
    """Search for faults of every (true class, predicted class, way of change) until `forwards` passes are spent.

    A backward pass counts as two forward passes; choosing the seeds is not counted. options: changes=, steps=, batch=. Seeds the
    target gets wrong are set aside unless `keep_wrong`. out, resume: as in `neurotest.attack`.
    """
    if resume is not None:
        return go_on("illuminate", resume, lambda run, config: _again(run, config, target, seeds, forwards), progress)
    if target is None or seeds is None:
        raise BadInput("illuminate needs a target and seeds (or resume=RUN to go on with a run).")
    budget = _budget(FORWARDS if forwards is None else forwards)
    check_sizes(files=files)
    chosen: Illuminate = settings("generator", method, options)
    work = _Illumination.begin(load(target), seeds, chosen, budget, keep_wrong=keep_wrong, limit=limit, random=seed)
    return carry_out(work, out, files, progress)


def _budget(forwards: Any) -> int:
    if not isinstance(forwards, int) or isinstance(forwards, bool) or forwards < 1:
        raise BadInput(f"forwards={forwards!r}: expected an integer >= 1 (ten classes take about 1000).")
    return forwards


def _again(run: Run, config: dict[str, Any], target: Any, seeds: Any, forwards: int | None) -> _Illumination:
    return _Illumination.begin(
        stored_target(run, config["target"], config["fingerprint"], target),
        seeds if seeds is not None else str(config["seeds"]),
        rebuilt("generator", config["method"]),
        _budget(config["forwards"] if forwards is None else forwards),
        keep_wrong=bool(config["keep_wrong"]), limit=config["limit"], random=int(config["seed"]),
    )  # fmt: skip


@dataclass(eq=False, kw_only=True)
class _Illumination(Work[IlluminateResult]):
    """One search over chosen seeds."""

    command = "illuminate"
    budget: int
    everything: Arrays = field(default_factory=dict)  # all faults, also those that lost their cell

    @classmethod
    def begin(
        cls, target: Target, seeds: Source | str, method: Illuminate, budget: int, *, keep_wrong: bool, limit: int | None,
        random: int,
    ) -> _Illumination:  # fmt: skip
        began = time.monotonic()
        source = data(seeds, shape=target.shape, limit=limit)
        oracle = "label" if source.labels is not None else "metamorphic"
        starts = choose_seeds(target, source, court(target, oracle), keep_wrong=keep_wrong)
        return cls(
            targets=[target], source=source, seeds=starts, method=method, budget=budget, keep_wrong=keep_wrong, limit=limit,
            random=random, began=began,
        )  # fmt: skip

    def config(self) -> dict[str, Any]:
        return {**super().config(), "forwards": self.budget}

    def stopped(self, done: int) -> str:
        return f"{done} rounds"

    def keep(self, run: Run) -> None:
        with disk.whole(run.path / EVERY) as part, open(part, "wb") as stream:
            np.savez_compressed(stream, allow_pickle=False, **self.everything)

    def run(self, parts: Parts | None, progress: Progress | None) -> IlluminateResult:
        with Engine(self.target, eight_bit=self.seeds.eight_bit) as engine:
            generator = Generator(engine, self.seeds, self.method)
            for part in parts or ():
                generator.absorb(part)
            while (part_ := generator.step(self.budget - generator.spent)) is not None:
                engine.refuse_flat(last=False)
                if parts is not None:
                    parts.add(part_)
                if progress is not None:
                    progress(min(generator.spent, self.budget), self.budget)
            engine.refuse_flat(last=engine.asked > 0)
            return self._result(engine, generator)

    def _result(self, engine: Engine, generator: Generator) -> IlluminateResult:
        found, spent = generator.found(), generator.spent
        self.everything = {
            "x": found.x, "y": generator.true[found.rows], "seeds": self.seeds.x[found.rows], "predicted": found.predicted,
            "positions": self.seeds.positions[found.rows], "way": found.way,
        }  # fmt: skip
        kept = found.elite
        rows = found.rows[kept]
        device, true = self.target.device, generator.true
        seed, x = self.seeds.unit(self.seeds.x[rows], device), self.seeds.unit(found.x[kept], device)
        control = self.seeds.stored(shuffle(seed, x, kept.tolist(), self.random))
        noise = predicted(engine.predict(self.seeds.unit(control, device))) if len(kept) else kept
        pairs = set(zip(found.rows.tolist(), found.predicted.tolist(), strict=True))
        return IlluminateResult(
            attack="illuminate", diversity=None, x=found.x[kept], seeds=self.seeds.x[rows], positions=self.seeds.positions[rows],
            expected=true[rows], predicted=found.predicted[kept], fault=np.ones(len(kept), dtype=bool),
            distance=distances(x, seed), control=Control(control, noise, noise != true[rows]), unstable=generator.unstable,
            forwards=engine.forwards + len(self.source), backwards=engine.backwards, notes=self._notes(engine),
            way=found.way[kept], ways=tuple(way.name for way in generator.ways), found=len(found.rows),
            pairs=generator.archive.pairs, possible=generator.archive.possible, found_roots=len(np.unique(found.rows)),
            root_label_pairs=len(pairs), spent=spent, stopped="every seed tried" if generator.exhausted else "forwards",
            **self.about(),
        )  # fmt: skip

    def _notes(self, engine: Engine) -> tuple[str, ...]:
        return () if not engine.flat else (f"{engine.flat} of {engine.asked} seeds have a gradient of 0 at the start.",)
