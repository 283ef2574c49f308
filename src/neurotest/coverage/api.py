"""Measuring coverage by one criterion or by several from one pass over the inputs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from neurotest import registry
from neurotest.coverage.criterion import Criterion, State, Value
from neurotest.coverage.record import begin, finish, withdraw
from neurotest.coverage.result import Coverage, Measured
from neurotest.data.source import Source
from neurotest.data.spec import data as read_data
from neurotest.errors import BadInput
from neurotest.measure.context import Context
from neurotest.measure.traces import part
from neurotest.scan import BATCH, Progress, aligned, batches, fit
from neurotest.target import Probe, Profile, Target, Trace
from neurotest.target.load import load

MEMORY = 2e9  # bytes a run may need before somebody has to say so
POINTS = 40  # of the growth curve


def cover(
    target: Target | str,
    data: Source | str,
    criteria: str | Criterion | Sequence[str | Criterion] = "nlc",
    *,
    train: Source | str | None = None,
    profile: Profile | str | Path | None = None,
    layers: str | None = None,
    neuron: str | None = None,
    by: Literal["class"] | None = None,
    memory: float = MEMORY,
    seed: int = 0,
    limit: int | None = None,
    batch: int = BATCH,
    strict: bool = False,
    cache: bool = True,
    out: str | Path | bool | None = False,
    progress: Progress | None = None,
    tell: Callable[[str], None] | None = None,
) -> Coverage:
    """How much of the target the data exercises, by each criterion, from one pass.

    train: training data, for criteria that compare with it; their profile is kept in the cache. profile: a saved one instead.
    layers, neuron: override the criteria's own. by: `class` measures each class (label, or prediction without labels) as well.
    memory: bytes that may be needed. tell: called with a sentence when they are many, before the work. out: a run is written
    there (None: a new one in ./neurotest-runs; False: none).
    """
    target = load(target)
    chosen = _criteria(criteria, layers, neuron)
    source = aligned(target, read_data(data, shape=target.shape, strict=strict, limit=limit))
    fit(target, source)
    if by not in (None, "class"):
        raise BadInput(f"by={by!r}: expected class.")
    context = _context(target, train, profile, batch=batch, seed=seed, cache=cache, progress=progress)
    classes = _classes(target, source) if by else ()
    needed = _check_memory(chosen, context, len(source), memory, copies=1 + len(classes))
    if tell is not None and needed > MEMORY:
        tell(f"the criteria will need about {needed / 1e9:.1f} GB of memory")
    _gather(context, chosen)
    settings = {"seed": seed, "batch": batch, "train": None if context.train is None else context.train.spec}
    run = None if out is False else begin(out, target, source, chosen, settings)
    try:
        passed = _Pass({name: criterion.start(context) for name, criterion in chosen.items()}, chosen, classes)
        passed.scan(target, source, batch, progress)
        found = Coverage(
            passed.measured(context),
            *_common(chosen),
            len(source),
            target.spec,
            source.spec,
            None if context.train is None else context.train.spec,
            needed,
            tuple(f"{s.file}: {s.reason}" for s in source.skipped),
            None if run is None else run.path,
        )
        if run is not None:
            finish(run, found)
        return found
    except BaseException:
        if run is not None:
            withdraw(run)
        raise


def _criteria(criteria: Any, layers: str | None, neuron: str | None) -> dict[str, Criterion]:
    several = [criteria] if isinstance(criteria, (str, Criterion)) else list(criteria)
    if not several:
        raise BadInput("criteria: none was given. Name at least one, for example nlc or kmnc:1000 (`neurotest list criterion`).")
    said: dict[str, Any] = {key: value for key, value in (("layers", layers), ("neuron", neuron)) if value is not None}
    found: dict[str, Criterion] = {}
    for one in several:
        criterion = registry.build("criterion", one)
        if not isinstance(criterion, Criterion):
            raise BadInput(f"{one!r} is no criterion: give a name of `neurotest list criterion` or a Criterion.")
        found[one if isinstance(one, str) else repr(one)] = dataclasses.replace(criterion, **said) if said else criterion
    return found


def _common(chosen: Mapping[str, Criterion]) -> tuple[str, str]:
    """The layers and neurons of all criteria; `mixed` where they differ (each one's own stand beside it)."""
    layers, neurons = ({getattr(c, name) for c in chosen.values()} for name in ("layers", "neuron"))
    return tuple(each.pop() if len(each) == 1 else "mixed" for each in (layers, neurons))  # type: ignore[return-value]


def _context(target: Target, train: Any, profile: Any, **settings: Any) -> Context:
    source = None if train is None else read_data(train, shape=target.shape)
    if source is not None:
        if not len(source):
            raise BadInput(f"the training data {source.spec} is empty: give --train DATA with at least one input.")
        fit(target, source)
    context = Context(target=target, train=source, **settings)
    if profile is not None:
        known = profile if isinstance(profile, Profile) else Profile.load(profile)
        known.check(target)
        context.profiles[known.want] = known
    return context


def _classes(target: Target, source: Source) -> tuple[str, ...]:
    names = target.classes or source.classes
    if names is not None:
        return tuple(names)
    import torch

    with torch.inference_mode():
        width = int(target.logits(target.prepare(source.read(np.arange(1)))).shape[1])
    return tuple(map(str, range(width)))


def _check_memory(chosen: Mapping[str, Criterion], context: Context, inputs: int, allowed: float, *, copies: int) -> int:
    """Refuse what would need more than is allowed, and say how to need less."""
    train = len(context.train) if context.train is not None else 0
    each = {}
    for name, criterion in chosen.items():
        layout = context.layout(criterion.want) if criterion.want.layers else context.layout(_plain(criterion))
        each[name] = criterion.memory(layout, inputs, train) * (copies if criterion.needs != "traces" else 1)
    total = sum(each.values())
    if total > allowed:
        worst = max(each, key=lambda name: each[name])
        raise BadInput(
            f"about {total / 1e9:.1f} GB of memory would be needed, {each[worst] / 1e9:.1f} GB of it by {worst}, and "
            f"{allowed / 1e9:g} GB are allowed: use {chosen[worst].shrink}, or allow it with --memory "
            f"{int(np.ceil(total / 1e9))}."
        )
    return total


def _plain(criterion: Criterion) -> Any:
    from neurotest.target import Want

    return Want(layers=criterion.layers, neuron=criterion.neuron)


def _gather(context: Context, chosen: Mapping[str, Criterion]) -> None:
    """Everything the criteria need of the training data from one pass; those that run the network themselves make their own."""
    profiles = {c.want: name for name, c in chosen.items() if c.needs == "profile" and c.want not in context.profiles}
    traces = {c.want: name for name, c in chosen.items() if c.needs == "traces"}
    who = next(iter([*profiles.values(), *traces.values(), *(n for n, c in chosen.items() if c.needs == "source")]), None)
    if who is not None:
        context.need_train(who)
        context.gather(profiles, traces, who)


@dataclass(eq=False)
class _Pass:
    """The states of one measurement, all together and per class, and how they grow."""

    states: dict[str, State]
    chosen: dict[str, Criterion]
    classes: tuple[str, ...] = ()
    per_class: dict[int, dict[str, State]] = field(default_factory=dict)
    growth: dict[str, list[tuple[int, float]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._empty = {name: state.twin() for name, state in self.states.items()} if self.classes else {}

    def scan(self, target: Target, source: Source, batch: int, progress: Progress | None) -> None:
        done, steps = 0, set(_steps(len(source), batch))
        wants = tuple(dict.fromkeys(c.want for c in self.chosen.values()))
        with Probe(target, *wants) as probe:
            for here in batches(target, source, batch=batch):
                trace = probe(here.x)
                for state in self.states.values():
                    state.update(trace)
                if self.classes:
                    self._split(trace, None if source.labels is None else source.labels[here.index])
                done += len(here.index)
                if done in steps:
                    for name, state in self.states.items():
                        self.growth.setdefault(name, []).append((done, state.value().value))
                if progress is not None:
                    progress(done, len(source))

    def _split(self, trace: Trace, labels: NDArray[np.int64] | None) -> None:
        of = trace.predictions.cpu().numpy() if labels is None else labels
        for number in np.unique(of).tolist():
            if number not in self.per_class:
                self.per_class[number] = {name: state.twin() for name, state in self._empty.items()}
            some = part(trace, of == number)
            for state in self.per_class[number].values():
                state.update(some)

    def measured(self, context: Context) -> dict[str, Measured]:
        return {name: self._measured(name, state, context) for name, state in self.states.items()}

    def _measured(self, name: str, state: State, context: Context) -> Measured:
        criterion = self.chosen[name]
        known = None
        if criterion.needs == "profile":
            known = context.profiles[criterion.want].count
        elif criterion.needs and context.train is not None:
            known = len(context.train)
        by_class = {self._name(number): states[name].value() for number, states in sorted(self.per_class.items())}
        growth = tuple(self.growth.get(name, ()))
        value: Value = state.value()
        return Measured(repr(criterion), criterion.layers, criterion.neuron, criterion.mergeable, known, value, growth, by_class)

    def _name(self, number: int) -> str:
        return self.classes[number] if 0 <= number < len(self.classes) else str(number)


def _steps(total: int, batch: int) -> Iterator[int]:
    """After how many inputs the curve has a point: ends of batches, at most POINTS of them, the last included."""
    ends = [*range(batch, total, batch), total]
    chosen = np.unique(np.linspace(0, len(ends) - 1, min(POINTS, len(ends))).round().astype(int))
    return (ends[i] for i in chosen)
