"""`neurotest.illuminate`: for every true and predicted class, the smallest change that causes it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neurotest.data.objects import AnyData
from neurotest.errors import BadInput
from neurotest.generate.fuzz.seeds import choose_seeds
from neurotest.generate.gradient.engine import Engine
from neurotest.generate.illuminate.generator import Generator
from neurotest.generate.illuminate.settings import Illuminate
from neurotest.generate.outcome import class_name
from neurotest.generate.suite import AttackResult, RandomControl, RegressionValues, shuffle
from neurotest.generate.work import Work, old_method
from neurotest.jobs.life import resumed
from neurotest.jobs.methods import with_options
from neurotest.jobs.opening import AnyTarget, open_data, open_target, stored_source
from neurotest.jobs.parts import Arrays, Parts
from neurotest.jobs.stored import stored_target
from neurotest.jobs.work import resume_job, run_job
from neurotest.mutate.unit import distances
from neurotest.public import public
from neurotest.runs.folder import declare
from neurotest.runs.store import Run
from neurotest.scan import Progress
from neurotest.settings.generate import IlluminateSettings
from neurotest.target import Target


@dataclass(frozen=True, eq=False)
class IlluminateResult(AttackResult):
    """The archive: one fault per filled cell, the smallest change. `all_faults` counts those that lost their cell, too."""

    way: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64), repr=False)
    ways: tuple[str, ...] = ()
    all_faults: int = 0
    pairs: int = 0  # (true, predicted) pairs with a fault
    possible: int = 0
    all_roots: int = 0
    root_label_pairs: int = 0
    spent: int = 0  # forward passes with a backward pass counted as two
    stopped: str = ""

    @property
    def numbers(self) -> NDArray[np.int64]:
        return np.arange(len(self))

    def about(self, i: int) -> dict[str, Any]:
        return {**super().about(i), "operator": self.ways[int(self.way[i])], "seed": int(self.positions[i])}

    @property
    def cells(self) -> Counter[tuple[int, int, str]]:
        """(true, predicted, way) of the archive."""
        named = [self.ways[int(w)] for w in self.way]
        return Counter(zip(self.expected.tolist(), self.predicted.tolist(), named, strict=True))

    def to_dict(self) -> dict[str, Any]:
        plain = super().to_dict()
        for name in ("attack", "diversity", "success", "success_interval"):
            del plain[name]
        by_way = Counter(self.way.tolist())
        return {
            **plain, "faults": self.all_faults, "families": len(self.cells), "roots": self.all_roots, "archive": len(self),
            "cells": {"filled": self.pairs, "possible": self.possible}, "root_label_pairs": self.root_label_pairs,
            "by_change": {name: by_way[number] for number, name in enumerate(self.ways)}, "spent": self.spent,
            "stopped": self.stopped,
        }  # fmt: skip

    def table(self) -> list[dict[str, Any]]:
        """One row per cell, the smallest change first."""
        return [
            {
                "true": class_name(int(self.expected[i]), self.classes),
                "predicted": class_name(int(self.predicted[i]), self.classes),
                "operator": self.ways[int(self.way[i])],
                "l2": round(float(self.distance[i, 1]), 4),
            }
            for i in np.argsort(self.distance[:, 1], kind="stable")
        ]


FAULTS = "faults.npz"
declare(r"faults\.npz")


@public(IlluminateSettings)
def illuminate(
    target: AnyTarget | None = None,
    seeds: AnyData | None = None,
    forwards: int | None = None,
    *,
    method: str | Illuminate | None = None,
    out: str | Path | bool | None = None,
    resume: str | Path | None = None,
    progress: Progress | None = None,
    **settings: Any,
) -> IlluminateResult:
    """Search for faults of every (true class, predicted class, way of change) until `forwards` passes (2000) are spent.

    A backward pass counts as two forward passes; choosing the seeds is not counted. changes, steps, batch: those of the method.
    Seeds the target gets wrong are set aside unless `keep_wrong`. out, resume: as in `neurotest.attack`; a resumed run may get
    another number of passes.
    """
    options, settings = IlluminateSettings.of_part("method", settings), {**settings, "forwards": forwards}
    if resume is not None:

        def again(run: Run, config: dict[str, Any]) -> _Illumination:
            chosen = resumed(IlluminateSettings, run, config, settings)
            old = old_method(run, config, "generator", method, options)
            network, source = stored_target(run, target), stored_source(run, config["seeds"], seeds)
            return _Illumination.begin(network, source, old, chosen)

        return resume_job(resume, "illuminate", again, progress, out=out)
    if target is None or seeds is None:
        raise BadInput("missing", "target", "illuminate needs a target and seeds (or resume=RUN to go on with a run).")
    generator: Illuminate = with_options("generator", method or "illuminate", options)
    chosen = IlluminateSettings.of(settings)
    return run_job(_Illumination.begin(open_target(target), seeds, generator, chosen), out, progress)


@dataclass(eq=False, kw_only=True)
class _Illumination(Work[IlluminateResult]):
    """One search over chosen seeds."""

    command = "illuminate"
    settings: IlluminateSettings
    all_faults: Arrays = field(default_factory=dict)  # also those that lost their cell

    @classmethod
    def begin(cls, target: Target, seeds: AnyData, method: Illuminate, settings: IlluminateSettings) -> _Illumination:
        source = open_data(target, seeds, limit=settings.limit)
        chosen = choose_seeds(target, source, keep_wrong=settings.keep_wrong)
        return cls(targets=[target], source=source, seeds=chosen, method=method, settings=settings)

    def kept(self, run: Run) -> str:
        return f"{len(Parts(run))} rounds" if len(Parts(run)) else ""

    def record(self, run: Run, result: IlluminateResult) -> None:
        with run.file(FAULTS).writing() as stream:
            np.savez_compressed(stream, allow_pickle=False, **self.all_faults)
        super().record(run, result)

    def work(self, run: Run | None, progress: Progress | None) -> IlluminateResult:
        parts, budget = None if run is None else Parts(run), self.settings.forwards
        with Engine(self.target, levels=self.seeds.levels) as engine:
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
        noise = self.seeds.counted(engine.predict(self.seeds.unit(control, device)), rows) if len(kept) else kept
        answers = self.seeds.answers(engine.predict(x)) if len(kept) and self.seeds.bins is not None else np.empty(len(kept))
        pairs = set(zip(faults.rows.tolist(), faults.predicted.tolist(), strict=True))
        return IlluminateResult(
            attack="illuminate", diversity=None, x=faults.x[kept], seeds=self.seeds.x[rows], positions=self.seeds.positions[rows],
            expected=true[rows], predicted=faults.predicted[kept], fault=np.ones(len(kept), dtype=bool),
            distance=distances(x, seed), control=RandomControl(control, noise, noise != true[rows]), unstable=generator.unstable,
            forwards=engine.forwards + len(self.source), backwards=engine.backwards, notes=self._notes(engine),
            way=faults.way[kept], ways=tuple(way.name for way in generator.ways), all_faults=len(faults.rows),
            pairs=generator.archive.pairs, possible=generator.archive.possible, all_roots=len(np.unique(faults.rows)),
            root_label_pairs=len(pairs), spent=spent, stopped="every seed tried" if generator.exhausted else "forwards",
            quantities=RegressionValues.of(self.seeds, answers, rows), **self.about(),
        )  # fmt: skip

    def _notes(self, engine: Engine) -> tuple[str, ...]:
        return () if not engine.flat else (f"{engine.flat} of {engine.starts} seeds have a gradient of 0 at the start.",)
