"""`neurotest.illuminate`: fill the map of what is taken for what, with the smallest change for each."""

from __future__ import annotations

import dataclasses
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from neurotest import files as disk
from neurotest.data.source import Source, content_ids
from neurotest.data.spec import data
from neurotest.errors import BadInput, Interrupted
from neurotest.generate.fuzz.seeds import Seeds, choose_seeds
from neurotest.generate.gradient.api import FILES, distances, settings, shuffle
from neurotest.generate.gradient.engine import Engine
from neurotest.generate.gradient.record import record
from neurotest.generate.gradient.result import Control
from neurotest.generate.illuminate.generator import Generator
from neurotest.generate.illuminate.result import IlluminateResult
from neurotest.generate.illuminate.settings import Illuminate
from neurotest.generate.parts import Parts, described, rebuilt, stored_target, unfinished
from neurotest.oracles import court, predicted
from neurotest.runs.store import Run
from neurotest.scan import Progress
from neurotest.target import Target
from neurotest.target.load import load

FORWARDS = 2000
EVERY = "faults.npz"
STOPPED = "interrupted after {done} rounds, all of them saved. Go on with: neurotest illuminate --resume {path}"


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
        return _resume(resume, target, seeds, forwards, progress)
    if target is None or seeds is None:
        raise BadInput("illuminate needs a target and seeds (or resume=RUN to go on with a run).")
    budget = _budget(FORWARDS if forwards is None else forwards)
    if files < 0:
        raise BadInput(f"files={files}: expected an integer >= 0 (how many faults become images).")
    work = _Work.begin(load(target), seeds, settings("generator", method, options), keep_wrong, limit, budget, seed)
    if out is False:
        return work.run(None, progress)
    run = Run.create(None if out in (None, True) else Path(str(out)), "illuminate", {**work.config(), "files": files})
    return _finish(run, work, files, progress)


def _budget(forwards: Any) -> int:
    if not isinstance(forwards, int) or isinstance(forwards, bool) or forwards < 1:
        raise BadInput(f"forwards={forwards!r}: expected an integer >= 1 (ten classes take about 1000).")
    return forwards


def _resume(path: str | Path, target: Any, seeds: Any, forwards: int | None, progress: Progress | None) -> IlluminateResult:
    run = Run.open(path, write=True)
    try:
        config = unfinished(run, "illuminate")
        loaded = stored_target(run, config["target"], config["fingerprint"], target)
        budget = _budget(config["forwards"] if forwards is None else forwards)
        work = _Work.begin(
            loaded, seeds if seeds is not None else str(config["seeds"]), rebuilt("generator", config["method"]),
            bool(config["keep_wrong"]), config["limit"], budget, int(config["seed"]),
        )  # fmt: skip
        if work.config()["contents"] != config["contents"]:
            raise BadInput(f"the seeds are not those {run.path} was started with: resume it with the same data.")
        files = int(config["files"])
    except BaseException as error:
        run.close()
        if isinstance(error, (KeyError, TypeError)):
            raise BadInput(f"{path} has a configuration that does not fit: it is damaged.") from None
        raise
    return _finish(run, work, files, progress)


def _finish(run: Run, work: _Work, files: int, progress: Progress | None) -> IlluminateResult:
    with run:
        parts = Parts(run)
        try:
            found = dataclasses.replace(work.run(parts, progress), run=run.path)
        except KeyboardInterrupt:
            raise Interrupted(STOPPED.format(done=len(parts), path=run.path)) from None
        except BaseException:
            if not len(parts):
                shutil.rmtree(run.path, ignore_errors=True)  # nothing is in it yet
            raise
        every = work.everything
        with disk.whole(run.path / EVERY) as part, open(part, "wb") as stream:
            np.savez_compressed(stream, allow_pickle=False, **every)
        record(run, work.target, found, files)
        parts.clear()
    return found


@dataclass(eq=False)
class _Work:
    """One search over chosen seeds."""

    target: Target
    source: Source
    seeds: Seeds
    settings: Illuminate
    keep_wrong: bool
    limit: int | None
    budget: int
    random: int
    began: float

    @classmethod
    def begin(
        cls, target: Target, seeds: Any, chosen: Illuminate, keep_wrong: bool, limit: int | None, budget: int, random: int
    ) -> _Work:
        began = time.monotonic()
        source = data(seeds, shape=target.shape, limit=limit)
        oracle = "label" if source.labels is not None else "metamorphic"
        starts = choose_seeds(target, source, court(target, oracle), keep_wrong=keep_wrong)
        return cls(target, source, starts, chosen, keep_wrong, limit, budget, random, began)

    def config(self) -> dict[str, Any]:
        return {
            "target": self.target.spec, "fingerprint": self.target.fingerprint, "seeds": self.source.spec,
            "contents": str(content_ids(self.seeds.x.reshape(1, -1))[0]), "method": described(self.settings),
            "keep_wrong": self.keep_wrong, "limit": self.limit, "forwards": self.budget, "seed": self.random,
            "threads": torch.get_num_threads(),
        }  # fmt: skip

    def run(self, parts: Parts | None, progress: Progress | None) -> IlluminateResult:
        with Engine(self.target, eight_bit=self.seeds.eight_bit) as engine:
            generator = Generator(engine, self.seeds, self.settings)
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
            set_aside=self.seeds.set_aside, forwards=engine.forwards + len(self.source), backwards=engine.backwards,
            seconds=time.monotonic() - self.began, outputs_possible=self.seeds.classes,
            classes=tuple(self.target.classes or self.source.classes or ()) or None, notes=self._notes(engine),
            way=found.way[kept], ways=tuple(way.name for way in generator.ways), found=len(found.rows),
            pairs=generator.archive.pairs, possible=generator.archive.possible, found_roots=len(np.unique(found.rows)),
            root_label_pairs=len(pairs), spent=spent, stopped="every seed tried" if generator.exhausted else "forwards",
        )  # fmt: skip

    def _notes(self, engine: Engine) -> tuple[str, ...]:
        return () if not engine.flat else (f"{engine.flat} of {engine.asked} seeds have a gradient of 0 at the start.",)
