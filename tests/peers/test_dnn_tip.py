"""Criteria, orders and surprise against dnn-tip itself, on random activations; the golden values are of one subject."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tests.peers.packages import package

from neurotest import registry
from neurotest.coverage.adequacy import DSA, LSA, MDSA
from neurotest.measure.context import Context, Traces
from neurotest.measure.traces import Layout
from neurotest.select.api import rank
from neurotest.select.greedy import CAM, CTM, Collected
from neurotest.stats.faults import apfd
from neurotest.target import Profile, Trace, Want

criteria, surprise, prioritizers = (package(f"dnn_tip.{name}") for name in ("neuron_coverage", "surprise", "prioritizers"))
faults = package("dnn_tip.apfd")
pytestmark = pytest.mark.peer("dnn_tip")

WANT = Want()
SIZES = (12, 30)
SEEDS = [0, 1, 2]


def drawn(seed: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Two layers of training and of test activations, some of them outside what training reached."""
    random = np.random.default_rng(seed)
    train, test = ([random.normal(size=(n, size)).astype(np.float32) for size in SIZES] for n in (400, 80))
    return train, [1.3 * layer for layer in test]


def trace(layers: list[np.ndarray]) -> Trace:
    return Trace(torch.zeros(len(layers[0]), 2), {WANT: {f"l{i}": torch.from_numpy(values) for i, values in enumerate(layers)}})


def context(train: list[np.ndarray]) -> Context:
    profile = Profile("random", WANT, {})
    profile.update(trace(train))
    return Context(layouts={WANT: Layout({f"l{i}": size for i, size in enumerate(SIZES)})}, profiles={WANT: profile})


def theirs(name: str, train: list[np.ndarray]) -> Any:
    low, high = ([getattr(layer, kind)(axis=0) for layer in train] for kind in ("min", "max"))
    spread = [layer.std(axis=0) for layer in train]
    return {
        "nac:0.5": lambda: criteria.NAC(0.5),
        "kmnc:100,edges=dnn_tip": lambda: criteria.KMNC(low, high, 100),
        "nbc:0,strict=false": lambda: criteria.NBC(low, high, spread, 0),
        "snac:0.5,strict=false": lambda: criteria.SNAC(high, spread, 0.5),
        "tknc:3": lambda: criteria.TKNC(3),
    }[name]()


CRITERIA = ["nac:0.5", "kmnc:100,edges=dnn_tip", "nbc:0,strict=false", "snac:0.5,strict=false", "tknc:3"]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", CRITERIA)
def test_covered(name: str, seed: int) -> None:
    train, test = drawn(seed)
    state = registry.build("criterion", name).start(context(train))
    state.update(trace(test))
    profiles = theirs(name, train)(test)[1]
    assert state.value().covered == profiles.any(axis=0).sum() > 0
    assert state.value().total == profiles[0].size


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", CRITERIA)
def test_orders(name: str, seed: int) -> None:
    """CAM as long as something is added, CTM by its scores: their sorts of equal scores are not stable."""
    train, test = drawn(seed)
    scores, profiles = theirs(name, train)(test)
    text = name.replace(",", ";", 1)
    ours = {}
    for method in (CAM(criterion=text), CTM(criterion=text)):
        state = Collected(method, method.measure.start(context(train)))
        state.update(np.arange(len(test[0])), trace(test), ())
        ours[type(method)] = state.value()
    until = int((ours[CAM] >= 1).sum())
    order = list(prioritizers.cam(scores, profiles))
    assert until > 1
    assert rank(ours[CAM])[:until].tolist() == [int(position) for position in order[:until]]
    assert ours[CTM].tolist() == scores.tolist()


@pytest.mark.parametrize("seed", SEEDS)
def test_surprise(seed: int) -> None:
    """Theirs computes distances in the precision it is given, so it is given float64."""
    random = np.random.default_rng(seed)
    train_classes, test_classes = random.integers(0, 3, 300), random.integers(0, 3, 60)
    centres = 2 * random.normal(size=(3, 8))
    train, test = (centres[c] + random.normal(size=(len(c), 8)) for c in (train_classes, test_classes))
    every: dict[str, Any] = {"features": None, "min_var": 0}
    pairs = [
        (DSA(**every), surprise.DSA(train, train_classes)),
        (MDSA(**every, per="all", squared=True), surprise.MDSA(train)),
        (MDSA(**every, squared=True), surprise.MultiModalSA.build_by_class(train, train_classes, lambda a, p: surprise.MDSA(a))),
        (LSA(**every, per="all"), surprise.LSA(train)),
        (LSA(**every), surprise.MultiModalSA.build_by_class(train, train_classes, lambda a, p: surprise.LSA(a))),
    ]
    for method, peer in pairs:
        ours = method.fit(Traces(train, train_classes)).score(test, test_classes)
        assert ours == pytest.approx(peer(test, test_classes), rel=1e-9), method


@pytest.mark.parametrize("seed", SEEDS)
def test_apfd(seed: int) -> None:
    random = np.random.default_rng(seed)
    wrong, order = random.random(100) < 0.2, random.permutation(100)
    assert apfd(wrong[order]) == pytest.approx(faults.apfd_from_order(wrong, order), abs=1e-12)
