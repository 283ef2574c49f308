"""Coverage: the cost of updating a state alone, without probe, as a share of a bare forward pass."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from torch import Tensor

from neurotest import registry
from neurotest.coverage.adequacy import DSA
from neurotest.coverage.criterion import Criterion, State
from neurotest.data.source import ArraySource
from neurotest.measure.context import Context, Traces
from neurotest.measure.traces import array
from neurotest.target import Probe, Target, Trace, Want
from neurotest_lab.bench.ratio import Job, Pair, passes, subject_of

SUBJECTS = ("mnist-lenet5", "cifar10-resnet20")
CRITERIA = ("kmnc:1000", "nbc", "snac", "nlc")
TRAIN = 2000  # points that dsa searches
INPUTS = {100: 500, 1: 100}  # by batch size


def coverage_pairs(name: str) -> Iterator[tuple[str, Pair]]:
    """Each criterion at batch 100 and at batch 1, nlc with its value read, dsa and cac."""
    target, source = subject_of(name, TRAIN)
    images = source.read(np.arange(len(source)))
    for batch, count in INPUTS.items():
        parts = target.prepare(images[:count]).split(batch)
        bare = passes(target, parts)
        traces = _traces(target, parts, Want())
        for text in CRITERIA:
            yield f"{text}/batch{batch}", (_updates(_state(text, target, images), traces), bare)
        yield f"nlc+value/batch{batch}", (_updates(_state("nlc", target, images), traces, read=True), bare)
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
    tests = [(values[i : i + 100] + 0.01, classes[i : i + 100]) for i in range(0, count, 100)]
    yield f"dsa {TRAIN}x{values.shape[1]}/batch100", (lambda: [scorer.score(*one) for one in tests], passes(target, parts))
    few = parts[0][:20].split(20)
    state = _state("cac:8", target, images)
    yield "cac:8/batch20", (_updates(state, _traces(target, few, state.want)), passes(target, few))


def _state(text: str, target: Target, images: np.ndarray) -> State:
    criterion = registry.build("criterion", text)
    assert isinstance(criterion, Criterion)
    return criterion.start(Context(target=target, train=ArraySource(images[: INPUTS[100]])))


def _traces(target: Target, parts: Sequence[Tensor], want: Want) -> list[Trace]:
    with Probe(target, want) as probe:
        return [probe(part) for part in parts]


def _updates(state: State, traces: list[Trace], read: bool = False) -> Job:
    """read: its value too, after each batch."""

    def job() -> None:
        for trace in traces:
            state.update(Trace(trace.logits, trace.recorded))  # a new one, because a trace remembers what was read of it
            if read:
                state.value()

    return job
