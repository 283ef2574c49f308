"""`neurotest.illuminate`: for every true and predicted class, the smallest change that causes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from neurotest import files as disk
from neurotest.checks import count
from neurotest.data.source import Source
from neurotest.errors import BadInput
from neurotest.generate.fuzz.seeds import choose_seeds
from neurotest.generate.gradient.engine import Engine
from neurotest.generate.illuminate.generator import Generator
from neurotest.generate.illuminate.result import IlluminateResult
from neurotest.generate.illuminate.settings import Illuminate
from neurotest.generate.noise import shuffle
from neurotest.generate.suite import Control
from neurotest.generate.work import Work, new_settings, old_method, old_settings
from neurotest.jobs.methods import with_options
from neurotest.jobs.opening import AnyTarget, open_data, open_target, stored_source
from neurotest.jobs.parts import Arrays, Parts
from neurotest.jobs.stored import stored_target
from neurotest.jobs.work import carry_out, go_on
from neurotest.mutate.distances import distances
from neurotest.oracles import predicted
from neurotest.runs.store import Run
from neurotest.scan import Progress
from neurotest.target import Target

FORWARDS = 2000
FAULTS = "faults.npz"


def illuminate(
    target: AnyTarget | None = None,
    seeds: Source | str | None = None,
    forwards: int | None = None,
    *,
    method: str | Illuminate | None = None,
    keep_wrong: bool | None = None,
    limit: int | None = None,
    seed: int | None = None,
    files: int | None = None,
    out: str | Path | bool | None = None,
    resume: str | Path | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> IlluminateResult:
    """Search for faults of every (true class, predicted class, way of change) until `forwards` passes (2000) are spent.

    A backward pass counts as two forward passes; choosing the seeds is not counted. options: changes=, steps=, batch=. Seeds the
    target gets wrong are set aside unless `keep_wrong`. out, resume: as in `neurotest.attack`; a resumed run may get another
    number of passes.
    """
    settings = {"keep_wrong": keep_wrong, "limit": limit, "seed": seed, "files": files}
    if resume is not None:

        def again(run: Run, config: dict[str, Any]) -> _Illumination:
            budget = _budget(config["forwards"] if forwards is None else forwards)
            chosen = {**old_settings(run, config, settings), "forwards": budget}
            old = old_method(run, config, "generator", method, options)
            source = stored_source(run.path, config["seeds"], seeds)
            return _Illumination.begin(stored_target(run, target), source, old, chosen)

        return go_on(resume, "illuminate", again, progress, out=out)
    if target is None or seeds is None:
        raise BadInput("illuminate needs a target and seeds (or resume=RUN to go on with a run).")
    chosen = new_settings(settings, forwards=_budget(FORWARDS if forwards is None else forwards))
    generator: Illuminate = with_options("generator", method or "illuminate", options)
    return carry_out(_Illumination.begin(open_target(target), seeds, generator, chosen), out, progress)


def _budget(forwards: Any) -> int:
    return count("forwards", forwards, "ten classes take about 1000")


@dataclass(eq=False, kw_only=True)
class _Illumination(Work[IlluminateResult]):
    """One search over chosen seeds."""

    command = "illuminate"
    all_faults: Arrays = field(default_factory=dict)  # also those that lost their cell

    @classmethod
    def begin(cls, target: Target, seeds: Source | str, method: Illuminate, settings: Mapping[str, Any]) -> _Illumination:
        source = open_data(target, seeds, limit=settings["limit"])
        chosen = choose_seeds(target, source, keep_wrong=settings["keep_wrong"])
        return cls(targets=[target], source=source, seeds=chosen, method=method, settings=settings)

    def kept(self, run: Run) -> str:
        return f"{len(Parts(run))} rounds" if len(Parts(run)) else ""

    def record(self, run: Run, result: IlluminateResult) -> None:
        with disk.whole(run.path / FAULTS) as part, open(part, "wb") as stream:
            np.savez_compressed(stream, allow_pickle=False, **self.all_faults)
        super().record(run, result)

    def work(self, run: Run | None, progress: Progress | None) -> IlluminateResult:
        parts, budget = None if run is None else Parts(run), int(self.settings["forwards"])
        with Engine(self.target, eight_bit=self.seeds.eight_bit) as engine:
            generator = Generator(engine, self.seeds, self.method)
            for stored in parts or ():
                generator.absorb(stored)
            while (part := generator.step(budget - generator.spent)) is not None:
                engine.refuse_flat(last=False)
                if parts is not None:
                    parts.add(part)
                if progress is not None:
                    progress(min(generator.spent, budget), budget)
            engine.refuse_flat(last=engine.starts > 0)
            return self._result(engine, generator)

    def _result(self, engine: Engine, generator: Generator) -> IlluminateResult:
        faults, spent = generator.faults(), generator.spent
        self.all_faults = {
            "x": faults.x, "y": generator.true[faults.rows], "seeds": self.seeds.x[faults.rows], "predicted": faults.predicted,
            "positions": self.seeds.positions[faults.rows], "way": faults.way,
        }  # fmt: skip
        kept = faults.elite
        rows = faults.rows[kept]
        device, true = self.target.device, generator.true
        seed, x = self.seeds.unit(self.seeds.x[rows], device), self.seeds.unit(faults.x[kept], device)
        control = self.seeds.stored(shuffle(seed, x, kept.tolist(), self.seed))
        noise = predicted(engine.predict(self.seeds.unit(control, device))) if len(kept) else kept
        pairs = set(zip(faults.rows.tolist(), faults.predicted.tolist(), strict=True))
        return IlluminateResult(
            attack="illuminate", diversity=None, x=faults.x[kept], seeds=self.seeds.x[rows], positions=self.seeds.positions[rows],
            expected=true[rows], predicted=faults.predicted[kept], fault=np.ones(len(kept), dtype=bool),
            distance=distances(x, seed), control=Control(control, noise, noise != true[rows]), unstable=generator.unstable,
            forwards=engine.forwards + len(self.source), backwards=engine.backwards, notes=self._notes(engine),
            way=faults.way[kept], ways=tuple(way.name for way in generator.ways), all_faults=len(faults.rows),
            pairs=generator.archive.pairs, possible=generator.archive.possible, all_roots=len(np.unique(faults.rows)),
            root_label_pairs=len(pairs), spent=spent, stopped="every seed tried" if generator.exhausted else "forwards",
            **self.about(),
        )  # fmt: skip

    def _notes(self, engine: Engine) -> tuple[str, ...]:
        return () if not engine.flat else (f"{engine.flat} of {engine.starts} seeds have a gradient of 0 at the start.",)
