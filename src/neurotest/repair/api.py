"""`neurotest.repair`: retrain on what a run showed, beside controls, and judge on what nobody trained on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from neurotest.data.objects import AnyData
from neurotest.data.source import Source
from neurotest.errors import BadInput, near
from neurotest.generate.work import old_method
from neurotest.jobs.life import resumed
from neurotest.jobs.methods import with_options
from neurotest.jobs.opening import AnyTarget, open_counted, open_data, open_target, stored_source
from neurotest.jobs.stored import stored_target
from neurotest.jobs.work import resume_job, run_job
from neurotest.public import public
from neurotest.repair.evaluation import read_attacks
from neurotest.repair.material import read_material
from neurotest.repair.plan import make_plan
from neurotest.repair.protocol import CONTROLS, Protocol
from neurotest.repair.work import Inputs, Repair, RepairResult
from neurotest.runs.store import Run
from neurotest.scan import Progress
from neurotest.settings.analyse import RepairSettings
from neurotest.target import Target


@public(RepairSettings, method=True)
def repair(
    target: AnyTarget | None = None,
    run: str | Path | None = None,
    train: AnyData | None = None,
    holdout: AnyData | None = None,
    *,
    protocol: str | Protocol | None = None,
    shift: AnyData | None = None,
    pool: AnyData | None = None,
    out: str | Path | bool | None = None,
    resume: str | Path | None = None,
    progress: Progress | None = None,
    **settings: Any,
) -> RepairResult:
    """Retrain a network on the faults of a run, or on inputs it selected, and show what that did beside controls.

    run: of fuzz, swarm, attack, diff, illuminate, merge or select, made with this target. train: its training data; without any,
    only protocols that do without it can be used. holdout: labelled data that neither training nor the run has seen. protocol:
    one of `neurotest list repair`, with options (`default:epochs=5`, or epochs= here). shift: further labelled data, of another
    origin. pool: what a run of select selected from, where it cannot be opened by itself. controls: which are trained beside it
    (none: all). attack: what networks are attacked with at last (`none`: nothing). repeats: seeds, each trains everything anew.
    unseen: share of operator families that nothing is trained with. no_regression: refuse weights that break more of the holdout
    than they fix. limit: of the holdout. out: where the run goes (None: ./neurotest-runs; False: nothing is written). resume: an
    interrupted repair; it keeps its settings.
    """
    options, inputs = RepairSettings.of_part("method", settings), Inputs(run, train, holdout, shift, pool)
    if resume is not None:

        def again(run: Run, config: dict[str, Any]) -> Repair:
            chosen = resumed(RepairSettings, run, config, settings)
            method = old_method(run, config, "repair", protocol, options, "protocol")
            return _prepare(stored_target(run, target), _stored_inputs(run, config, inputs), method, chosen)

        return resume_job(resume, "repair", again, progress, out=out)
    if target is None or run is None or holdout is None:
        raise BadInput("missing", "target", "repair needs a target, a run and a holdout (or resume=RUN to go on with a repair).")
    method: Protocol = with_options("repair", protocol or ("interpolated" if train is None else "default"), options)
    return run_job(_prepare(open_target(target), inputs, method, RepairSettings.of(settings)), out, progress)


def _stored_inputs(run: Run, config: dict[str, Any], named: Inputs) -> Inputs:
    """What a repair was started with; what is named again goes over it."""
    if named.run is None and not run.made_here:
        raise BadInput(
            "untrusted",
            "run",
            f"{run.path} is an untrusted run and names {config['run']!r:.200}: give the run of the faults yourself.",
        )
    sources = {
        name: None if config[name] is None else stored_source(run, config[name], getattr(named, name), name)
        for name in ("train", "holdout", "shift", "pool")
    }
    return Inputs(named.run or str(config["run"]), **sources)


def _prepare(target: Target, inputs: Inputs, protocol: Protocol, settings: RepairSettings) -> Repair:
    """Everything opened, checked and split."""
    controls = _controls(settings.controls)
    if protocol.needs_train and inputs.train is None:
        others = "interpolated or head"
        raise BadInput(
            "missing",
            "train",
            f"the protocol {protocol.name} needs training data: pass --train DATA, or use --protocol {others}.",
        )
    assert inputs.holdout is not None
    assert inputs.run is not None
    holdout = open_data(target, inputs.holdout, limit=settings.limit)
    classes = open_counted(target, holdout)[1]
    train, shift, pool = (None if one is None else open_data(target, one) for one in (inputs.train, inputs.shift, inputs.pool))
    material = read_material(inputs.run, target)
    if pool is None and material.kind == "picks":
        pool = _pool(inputs.run, target)
    if pool is not None and material.kind == "picks":
        pool = _rest(pool, holdout)
    plan = make_plan(target, classes, material, train, holdout, shift, pool=pool, unseen=settings.unseen, seed=settings.seed)
    attacks = read_attacks(settings.attack, holdout.shape)
    opened = Inputs(inputs.run, train, holdout, shift, inputs.pool)
    return Repair(plan=plan, inputs=opened, protocol=protocol, controls=controls, attacks=attacks, settings=settings)


def _controls(names: Sequence[str] | None) -> tuple[str, ...]:
    if names is None:
        return tuple(CONTROLS)
    chosen = [name for name in names if name != "none"]
    for name in chosen:
        if name not in CONTROLS:
            raise BadInput("unknown-name", "control", f"unknown control {name!r}. {near(name, [*CONTROLS, 'none'])}")
    return tuple(name for name in CONTROLS if name in chosen)


def _pool(path: str | Path, target: Target) -> Source | None:
    """What a run of select selected from, if it may be opened."""
    with Run.open(path) as run:
        try:
            return open_counted(target, stored_source(run, run["config"].get("pool"), None, "pool"))[0]
        except BadInput:
            return None


def _rest(pool: Source, holdout: Source) -> Source | None:
    """The labelled part of a pool that is not judged by."""
    if pool.labels is None:
        return None
    held = set(holdout.ids().tolist())
    return pool.take(np.array([one not in held for one in pool.ids().tolist()]))
