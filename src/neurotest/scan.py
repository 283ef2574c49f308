"""One pass, many consumers: each batch is forwarded once and its trace is handed to everybody."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from torch import Tensor

from neurotest.callable_module import callable_module
from neurotest.data.source import Source, check_shape
from neurotest.data.spec import data
from neurotest.errors import BadInput
from neurotest.target import Probe, Profile, Target, Trace, Want
from neurotest.target.load import load

BATCH = 250  # on two cores LeNets and ResNet-20 gain nothing beyond
Progress = Callable[[int, int], None]  # done, total


class Consumer(Protocol):
    """What accumulates over traces. `want` says what it needs recorded; None when logits are enough."""

    @property
    def want(self) -> Want | None: ...

    def update(self, trace: Trace) -> None: ...


@dataclass(frozen=True)
class Batch:
    """Inputs on their way through the target."""

    index: np.ndarray  # (n,) positions in the source
    x: Tensor  # (n, *shape) in the target's bounds


def batches(target: Target, source: Source, *, batch: int = BATCH, order: np.ndarray | None = None) -> Iterator[Batch]:
    """The source in batches ready for the target, in `order` (default: as it lies)."""
    if batch < 1:
        raise BadInput(f"batch={batch}: expected an integer >= 1.")
    order = np.arange(len(source)) if order is None else order
    for start in range(0, len(order), batch):
        index = order[start : start + batch]
        yield Batch(index, target.prepare(source.read(index)))


def fit(target: Target, source: Source) -> int:
    """Check that the target takes what the source holds, and let a target of unknown size learn it; the number of classes."""
    if target.shape is None:
        target.shape = source.shape
    check_shape(source, target.shape)
    return target.check_outputs(target.prepare(source.read(np.arange(min(4, len(source))))))


def scan(
    target: Target,
    source: Source | str,
    consumers: Sequence[Consumer],
    *,
    batch: int = BATCH,
    progress: Progress | None = None,
) -> None:
    """Forward the source once, recording what any consumer wants, and update each of them per batch."""
    inputs: Source = data(source, shape=target.shape)
    fit(target, inputs)
    done = 0
    with Probe(target, *wanted(consumers)) as probe:
        for part in batches(target, inputs, batch=batch):
            trace = probe(part.x)
            for consumer in consumers:
                consumer.update(trace)
            done += len(part.index)
            if progress is not None:
                progress(done, len(inputs))


def wanted(consumers: Sequence[Any]) -> tuple[Want, ...]:
    """What all consumers want, each once."""
    return tuple(dict.fromkeys(c.want for c in consumers if c.want is not None))


def profile(
    target: Target | str,
    train: Source | str,
    *,
    layers: str = "pre_activation",
    neuron: str = "channel",
    batch: int = BATCH,
    progress: Progress | None = None,
) -> Profile:
    """Per-neuron range, mean and spread of training data."""
    target = load(target)
    source = data(train, shape=target.shape)
    fit(target, source)
    found = Profile.empty(target, Want(layers=layers, neuron=neuron))  # type: ignore[arg-type]
    scan(target, source, [found], batch=batch, progress=progress)
    return found


callable_module(__name__)
