"""`neurotest.illuminate`: fill the map of what is taken for what, with the smallest change for each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from neurotest import files as disk
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
from neurotest.oracles import build_oracles, predicted
from neurotest.runs.store import Run
from neurotest.scan import Progress
from neurotest.target import Target

FORWARDS = 2000
EVERY = "faults.npz"


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

        return go_on(resume, "illuminate", again, progress)
    if target is None or seeds is None:
        raise BadInput("illuminate needs a target and seeds (or resume=RUN to go on with a run).")
    chosen = new_settings(settings, forwards=_budget(FORWARDS if forwards is None else forwards))
    generator: Illuminate = with_options("generator", method or "illuminate", options)
    return carry_out(_Illumination.begin(open_target(target), seeds, generator, chosen), out, progress)


def _budget(forwards: Any) -> int:
    if not isinstance(forwards, int) or isinstance(forwards, bool) or forwards < 1:
        raise BadInput(f"forwards={forwards!r}: expected an integer >= 1 (ten classes take about 1000).")
    return forwards


@dataclass(eq=False, kw_only=True)
class _Illumination(Work[IlluminateResult]):
    """One search over chosen seeds."""

    command = "illuminate"
    everything: Arrays = field(default_factory=dict)  # all faults, also those that lost their cell

    @classmethod
    def begin(cls, target: Target, seeds: Source | str, method: Illuminate, settings: Mapping[str, Any]) -> _Illumination:
        source = open_data(target, seeds, limit=settings["limit"])
        oracles = build_oracles(target, "label" if source.labels is not None else "metamorphic")
        starts = choose_seeds(target, source, oracles, keep_wrong=settings["keep_wrong"])
        return cls(targets=[target], source=source, seeds=starts, method=method, settings=settings)

    def kept(self, run: Run) -> str:
        return f"{len(Parts(run))} rounds" if len(Parts(run)) else ""

    def record(self, run: Run, result: IlluminateResult) -> None:
        with disk.whole(run.path / EVERY) as part, open(part, "wb") as stream:
            np.savez_compressed(stream, allow_pickle=False, **self.everything)
        super().record(run, result)

    def work(self, run: Run | None, progress: Progress | None) -> IlluminateResult:
        parts, budget = None if run is None else Parts(run), int(self.settings["forwards"])
        with Engine(self.target, eight_bit=self.seeds.eight_bit) as engine:
            generator = Generator(engine, self.seeds, self.method)
            for part in parts or ():
                generator.absorb(part)
            while (part_ := generator.step(budget - generator.spent)) is not None:
                engine.refuse_flat(last=False)
                if parts is not None:
                    parts.add(part_)
                if progress is not None:
                    progress(min(generator.spent, budget), budget)
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
        control = self.seeds.stored(shuffle(seed, x, kept.tolist(), self.seed))
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
