"""Measuring coverage by one criterion or by several from one pass over the inputs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from neurotest import registry
from neurotest.coverage.criterion import Criterion, Value
from neurotest.coverage.measurement import Measurement
from neurotest.coverage.result import Coverage, Measured
from neurotest.data.objects import AnyData
from neurotest.errors import BadInput
from neurotest.jobs.life import atomic_run, finish
from neurotest.jobs.opening import AnyTarget, open_counted, open_data, open_target, stored_spec
from neurotest.jobs.stored import target_config
from neurotest.measure.context import Context
from neurotest.measure.several import Several
from neurotest.memory import check_memory
from neurotest.public import public
from neurotest.scan import Progress, remarks
from neurotest.settings.analyse import CoverSettings
from neurotest.target import Profile, Target, Want

Criteria = Mapping[str, Criterion]  # as typed


@public(CoverSettings)
def cover(
    target: AnyTarget,
    data: AnyData,
    criteria: str | Criterion | Sequence[str | Criterion] = "nlc",
    *,
    out: str | Path | bool | None = False,
    progress: Progress | None = None,
    tell: Callable[[str], None] | None = None,
    **settings: Any,
) -> Coverage:
    """How much of the target the data exercises, by each criterion, from one pass.

    train: training data, for criteria that compare with it; their profile is kept in the cache. profile: a saved one instead.
    layers, neuron: override the criteria's own. by: `class` measures each class (label, or prediction without labels) as well.
    memory: bytes that may be needed. tell: called with a sentence when they are many, before the work. out: a run is written
    there (None: a new one in ./neurotest-runs; False: none). Of several criteria one that does not fit is left out, with its
    reason in the result's `errors`.
    """
    options = CoverSettings.of(settings)
    target = open_target(target)
    requested = _criteria(criteria)
    source, width = open_counted(target, data, strict=options.strict, limit=options.limit)
    context = _context(target, options, progress)
    several = Several(requested)
    chosen = _fitting(requested, {"layers": options.layers, "neuron": options.neuron}, context, several)
    classes = tuple(target.classes or source.classes or map(str, range(width))) if options.by else ()
    needed = _check_memory(chosen, context, len(source), options.memory, copies=1 + len(classes))
    if tell is not None and needed > CoverSettings.memory:
        tell(f"the criteria will need about {needed / 1e9:.1f} GB of memory")
    profiles, traces = ([c.want for c in chosen.values() if c.needs == kind] for kind in ("profile", "traces"))
    context.gather(profiles, traces, "the criteria")
    config = {
        **target_config(target), "data": stored_spec(source), "train": stored_spec(context.train), "seed": options.seed,
        "batch": options.batch, "criteria": {name: repr(criterion) for name, criterion in chosen.items()},
    }  # fmt: skip
    with atomic_run("cover", out, config) as run:
        measurement = Measurement.start(chosen, context, several, classes)
        measurement.scan(source, options.batch, progress)
        result = Coverage(
            _measured(measurement, context), *_common(several.left(chosen)), len(source), target.spec, source.spec,
            None if context.train is None else context.train.spec, needed, tuple(f"{s.file}: {s.reason}" for s in source.skipped),
            None if run is None else run.path, several.errors, remarks(target, source),
        )  # fmt: skip
        if run is not None:
            with run.transaction():
                run["never covered"] = result.never()
            unfit = [f"{name} did not run: {reason}" for name, reason in result.errors.items()]
            finish(run, {**result.to_dict(), "notes": [*result.notes, *unfit]})
    return result


def _measured(measurement: Measurement, context: Context) -> dict[str, Measured]:
    """Each criterion's value with its growth, and its values by class."""
    measured = {}
    names = dict(enumerate(measurement.classes))
    for name, state in measurement.several.left(measurement.states).items():
        criterion = state.criterion
        trained = None
        if criterion.needs == "profile":
            trained = context.profiles[criterion.want].count
        elif criterion.needs and context.train is not None:
            trained = len(context.train)
        by_class = {names.get(n, str(n)): states[name].value() for n, states in sorted(measurement.per_class.items())}
        growth = tuple(measurement.growth.get(name, ()))
        about = (repr(criterion), criterion.layers, criterion.neuron, criterion.mergeable, trained)
        measured[name] = Measured(*about, _of_layers(criterion, context, state.value()), growth, by_class)
    return measured


def _of_layers(criterion: Criterion, context: Context, value: Value) -> Value:
    """A value whose neurons are numbered as the layers have them, and which says of how many units it was measured."""
    if criterion.neuron != "sample":
        return value
    layers = context.need_target().survey().find(criterion.layers)
    samples = {layer.name: chosen for layer in layers if (chosen := layer.sample()) is not None}
    if not samples:
        return value
    never = {name: tuple(samples[name][list(ids)].tolist()) for name, ids in value.never.items() if name in samples}
    kept, units = (sum(layer.neurons(neuron) for layer in layers) for neuron in ("sample", "unit"))
    note = f"measured on a random sample of {kept:,} of {units:,} units."
    return dataclasses.replace(value, never={**value.never, **never}, notes=(*value.notes, note))


def _criteria(criteria: Any) -> dict[str, Criterion]:
    several = [criteria] if isinstance(criteria, (str, Criterion)) else list(criteria)
    if not several:
        raise BadInput(
            "missing",
            "criteria",
            "criteria: none was given. Name at least one, for example nlc or kmnc:1000 (`neurotest list criterion`).",
        )
    named = {one if isinstance(one, str) else repr(one): registry.build("criterion", one) for one in several}
    for name, criterion in named.items():
        if not isinstance(criterion, Criterion):
            raise BadInput(
                "wrong-type", "criteria", f"{name} is no criterion: give a name of `neurotest list criterion` or a Criterion."
            )
    return named


def _fitting(requested: Criteria, overrides: Mapping[str, Any], context: Context, several: Several) -> dict[str, Criterion]:
    """The criteria, with what the user overrides, whose layers the target has and whose training data is there."""
    overrides = {setting: value for setting, value in overrides.items() if value is not None}
    chosen = {}
    for name, criterion in requested.items():
        with several.attempt(name):
            chosen[name] = criterion = dataclasses.replace(criterion, **overrides)
            context.layout(_recorded(criterion))
            if criterion.needs and not (criterion.needs == "profile" and criterion.want in context.profiles):
                context.need_train(name)
    return several.left(chosen)


def _recorded(criterion: Criterion) -> Want:
    """What a criterion looks at; one that runs the network itself records the input alone, and its layers say more."""
    return criterion.want if criterion.want.layers else Want(layers=criterion.layers, neuron=criterion.neuron)


def _common(chosen: Criteria) -> tuple[str, str]:
    """The layers and neurons of all criteria; `mixed` where they differ (each one's own stand beside it)."""
    layers, neurons = ({getattr(c, name) for c in chosen.values()} for name in ("layers", "neuron"))
    return tuple(each.pop() if len(each) == 1 else "mixed" for each in (layers, neurons))  # type: ignore[return-value]


def _context(target: Target, options: CoverSettings, progress: Progress | None) -> Context:
    train, profile = options.train, options.profile
    source = None if train is None else open_data(target, train)
    context = Context(target=target, train=source, batch=options.batch, seed=options.seed, cache=options.cache, progress=progress)
    if profile is not None:
        loaded = profile if isinstance(profile, Profile) else Profile.load(profile)
        loaded.check(target)
        context.profiles[loaded.want] = loaded
    return context


def _check_memory(chosen: Criteria, context: Context, inputs: int, allowed: float, *, copies: int) -> int:
    """Refuse what would need more than is allowed, and say how to need less."""
    train = len(context.train) if context.train is not None else 0
    each = {}
    for name, criterion in chosen.items():
        needed = criterion.memory(context.layout(_recorded(criterion)), inputs, train)
        each[name] = needed * (copies if criterion.needs != "traces" else 1)
    total = sum(each.values())
    if total > allowed:
        worst = max(each, key=lambda name: each[name])
        less = chosen[worst].shrink.format(**vars(chosen[worst]))
        raise BadInput(
            "too-large",
            "memory",
            f"about {total / 1e9:.1f} GB of memory would be needed, {each[worst] / 1e9:.1f} GB of it by {worst}, and "
            f"{allowed / 1e9:g} GB are allowed: use {less}, or allow it with --memory {int(np.ceil(total / 1e9))}.",
        )
    names = ", ".join(chosen)
    if total:
        check_memory(total, names, f"use {chosen[max(each, key=lambda name: each[name])].shrink}")
    return total
