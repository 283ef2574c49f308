"""Coverage: the cost of updating a state alone, without probe, as a share of a bare forward pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from neurotest import registry, zoo
from neurotest.coverage.adequacy import DSA
from neurotest.coverage.criterion import Criterion, State
from neurotest.data.source import ArraySource
from neurotest.data.spec import data
from neurotest.measure.context import Context, Traces
from neurotest.measure.traces import array
from neurotest.target import Probe, Target, Trace, Want

Pair = tuple[Callable[[], Any], Callable[[], Any]]
SUBJECTS = ("mnist-lenet5", "cifar10-resnet20")
CRITERIA = ("kmnc:1000", "nbc", "snac", "nlc")
TRAIN = 2000  # points that dsa searches
INPUTS = {100: 500, 1: 100}  # by batch size


def subject(name: str) -> tuple[Target, np.ndarray]:
    """A network of the zoo and images; without weights or data here, fresh weights and noise: they cost the same."""
    found = zoo.find(name)
    module = found.load() if found.weights is not None else found.build().eval()
    target = Target(module, shape=found.shape, spec=f"zoo:{name}")
    if found.embedded:
        test = data(f"zoo:{found.dataset}/test")
        return target, test.read(np.arange(min(len(test), max(TRAIN, *INPUTS.values()))))
    noise = np.random.default_rng(0).integers(0, 256, (max(INPUTS.values()), *found.shape))
    return target, noise.astype(np.uint8)


def coverage_pairs(name: str) -> Iterator[tuple[str, Pair]]:
    """Each criterion at batch 100 and at batch 1, nlc with its value read, dsa and cac."""
    target, images = subject(name)
    for batch, count in INPUTS.items():
        parts = target.prepare(images[:count]).split(batch)
        bare = _bare(target, parts)
        traces = _traces(target, parts, Want())
        for text in CRITERIA:
            yield f"{text}/batch{batch}", (_updates(_state(text, target, images), traces), bare)
        yield f"nlc+value/batch{batch}", (_reads(_state("nlc", target, images), traces), bare)
    if name.endswith("lenet5"):
        yield from _dense(target, images)


def _dense(target: Target, images: np.ndarray) -> Iterator[tuple[str, Pair]]:
    want = Want(layers="fc2")
    (trace,) = _traces(target, (target.prepare(images[:TRAIN]),), want)
    (values,) = (array(v) for v in trace[want].values())
    classes = trace.predictions.numpy()
    scorer = DSA(features=None, min_var=0).fit(Traces(values, classes))
    count = INPUTS[100]
    parts = target.prepare(images[:count]).split(100)
    asked = [(values[i : i + 100] + 0.01, classes[i : i + 100]) for i in range(0, count, 100)]
    yield f"dsa {TRAIN}x{values.shape[1]}/batch100", (lambda: [scorer.score(*one) for one in asked], _bare(target, parts))
    few = parts[0][:20].split(20)
    state = _state("cac:8", target, images)
    yield "cac:8/batch20", (_updates(state, _traces(target, few, state.want)), _bare(target, few))


def _state(text: str, target: Target, images: np.ndarray) -> State:
    criterion = registry.build("criterion", text)
    assert isinstance(criterion, Criterion)
    return criterion.start(Context(target=target, train=ArraySource(images[: INPUTS[100]])))


def _traces(target: Target, parts: Sequence[Tensor], want: Want) -> list[Trace]:
    with Probe(target, want) as probe:
        return [probe(part) for part in parts]


def _updates(state: State, traces: list[Trace]) -> Callable[[], None]:
    def job() -> None:
        for trace in traces:
            state.update(Trace(trace.logits, trace.recorded))  # a new one, because a trace remembers what was read of it

    return job


def _reads(state: State, traces: list[Trace]) -> Callable[[], None]:
    def job() -> None:
        for trace in traces:
            state.update(Trace(trace.logits, trace.recorded))
            state.value()

    return job


def _bare(target: Target, parts: Sequence[Tensor]) -> Callable[[], None]:
    def job() -> None:
        with torch.inference_mode():
            for part in parts:
                target.module(part)

    return job
