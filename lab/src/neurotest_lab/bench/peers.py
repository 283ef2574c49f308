"""dnn-tip compared with ours, both measured in one process."""

from __future__ import annotations

import importlib.util
import tracemalloc
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from neurotest.coverage.adequacy import DSA
from neurotest.coverage.ranges import KMNC
from neurotest.errors import BadInput
from neurotest.measure.context import Context, Traces
from neurotest.measure.traces import Layout
from neurotest.select.api import rank
from neurotest.select.greedy import CAM, Collected
from neurotest.target import Profile, Trace, Want
from neurotest_lab.bench.ratio import ratio

NEURONS, TRAIN, TESTS = 84, 2000, 200


def measure(repeats: int, work: str = "coverage") -> dict[str, Any]:
    """Time of theirs over ours by work, and how far the values are apart."""
    if importlib.util.find_spec("dnn_tip") is None:
        raise BadInput(
            "not-installed", "peers", "--peers compares with dnn-tip, which is not installed: pip install dnn-tip==0.1.1"
        )
    return {"coverage": _both, "select": _additional}[work](repeats)


def _both(repeats: int) -> dict[str, Any]:
    import dnn_tip.surprise as peer  # isort: skip

    peer.gc = SimpleNamespace(collect=lambda: 0)  # it collects garbage per ten inputs; with that it would be slower still
    random = np.random.default_rng(0)
    centres = 2 * random.normal(size=(10, NEURONS))
    classes, predicted = random.integers(0, 10, TRAIN), random.integers(0, 10, TESTS)
    train = (centres[classes] + random.normal(size=(TRAIN, NEURONS))).astype(np.float32)
    test = (centres[predicted] + random.normal(size=(TESTS, NEURONS))).astype(np.float32)
    ours, theirs = DSA(features=None, min_var=0).fit(Traces(train, classes)), peer.DSA(train, classes)
    apart = np.abs(theirs(test, predicted, num_threads=1) / ours.score(test, predicted) - 1).max()
    speed = ratio(lambda: theirs(test, predicted, num_threads=1), lambda: ours.score(test, predicted), repeats=repeats)
    return {
        f"dsa {TRAIN}x{NEURONS}: dnn-tip/ours": speed.median,
        "dsa: largest relative difference": float(apart),
        **_sections(repeats),
    }


def _activations(seed: int, tests: int) -> tuple[Any, Any, Any, Any]:
    """Tests of 236 neurons, what makes a trace of them, a context with 1,000 training inputs, and dnn-tip's KMNC of those."""
    import dnn_tip.neuron_coverage as peer  # isort: skip

    values = np.random.default_rng(seed).normal(size=(1000 + tests, 236)).astype(np.float32)
    want, train = Want(), values[:1000]

    def trace(part: Any) -> Trace:
        return Trace(torch.zeros(len(part), 2), {want: {"all": torch.from_numpy(part)}})

    profile = Profile("bench", want, {})
    profile.update(trace(train))
    context = Context(layouts={want: Layout({"all": 236})}, profiles={want: profile})
    return values[1000:], trace, context, peer.KMNC([train.min(axis=0)], [train.max(axis=0)], 1000)


def _sections(repeats: int) -> dict[str, Any]:
    test, trace, context, theirs = _activations(1, 100)
    state = KMNC(sections=1000, edges="dnn_tip").start(context)
    state.update(trace(test))
    covered = int(theirs([test])[1].any(axis=0).sum())
    speed = ratio(lambda: theirs([test]), lambda: state.update(trace(test)), repeats=repeats)
    return {"kmnc 1000, 100x236: dnn-tip/ours": speed.median, "kmnc: difference in covered": covered - int(state.value().covered)}


def _additional(repeats: int) -> dict[str, Any]:
    """CAM on KMNC(1000), 2,000 tests of 236 neurons, from activations to the order."""
    from dnn_tip.prioritizers import cam  # isort: skip

    test, trace, context, theirs = _activations(2, 2000)
    method = CAM(criterion="kmnc:sections=1000;edges=dnn_tip")

    def ours() -> np.ndarray:
        state = Collected(method, method.measure.start(context))
        for at in range(0, len(test), 250):
            state.update(np.arange(at, at + 250), trace(test[at : at + 250]), ())
        return state.value()

    def peers() -> list[int]:
        scores, profiles = theirs([test])
        return list(cam(scores, profiles))

    def peak(job: Any) -> tuple[Any, float]:
        tracemalloc.start()
        result = job()
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return result, most / 1e6

    (scores, mine), (order, other) = peak(ours), peak(peers)
    until = int((scores >= 1).sum())
    speed = ratio(peers, ours, repeats=max(1, repeats // 3))
    return {
        "cam kmnc:1000, 2000x236: dnn-tip/ours": speed.median,
        "cam: picks that add, in which the orders differ": int((rank(scores)[:until] != np.array(order[:until])).sum()),
        "cam: our peak, MB": mine,
        "cam: dnn-tip's peak, MB": other,
    }
