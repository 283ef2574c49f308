"""What holds for every registered criterion, on a chain and on a network with branches, Conv1d and tokens."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from tests.refusals import refused
from tests.unit.coverage import subjects

from neurotest import registry
from neurotest.coverage.criterion import Criterion, State, Value
from neurotest.target import Trace

# Every criterion as it is by default, and the variants whose definitions differ.
VARIANTS = [
    "nc:scale_order=scale_then_reduce",
    "nc:scaling=sigmoid,threshold=0.5",
    "kmnc:7",
    "kmnc:50,edges=neural_coverage",
    "kmnc:50,edges=dnn_tip",
    "kmnc:20,exclude_dead=true",
    "nbc:strict=false",
    "snac:0.5",
    "tknc:2,positive_only=true",
    "tknp:2,mode=layer",
    "tknp:2,pattern=set",
    "tknp:2,capacity=5",
    "tknp:2,capacity=5,mode=layer",
    "cc:0.001",
    "cc:0.001,count_first=false",
    "nlc:neurons=2",
    "nlc:gated",
    "nlc:preset=code",
    "cac:3",
    "cac:3,channels=3",
    "cac:3,sticky=true",
    "cac:3,expected=dl_cc,rule=all",
    "lsc:1,bandwidth=0.2",
    "lsc:0.5,per=all",
    "dsc:0.05,reference=test",
    "dsc:sections=50,upper=2",
    "dsc:buckets=dnn_tip,sections=20",
    "lsc:buckets=sadl,sections=20,upper=100",
    "mdsc:0.5,squared=true,inverse=pinv",
    "mdsc:buckets=neural_coverage,bucket=0.3",
    "npc:activation",
    "npc:scope=layer",
    "npc:preset=code",
    "npc:rule=gradient",
]
ALL = [*registry.entries("criterion"), *VARIANTS]
TARGETS = {"chain": subjects.small, "branches": subjects.branching}
BOTH = [(text, target) for text in ALL for target in TARGETS]
N = 40


def criterion(text: str) -> Criterion:
    method = registry.build("criterion", text)
    assert isinstance(method, Criterion)
    return method


@cache
def prepared(text: str, name: str) -> tuple[State, Trace]:
    target = TARGETS[name]()
    assert target.shape is not None
    method = criterion(text)
    state = method.start(subjects.context(target))
    return state, subjects.trace(target, subjects.images(N, 7, target.shape), method.want)


def fresh(text: str, name: str) -> tuple[State, Trace]:
    state, trace = prepared(text, name)
    return state.twin(), Trace(trace.logits, trace.recorded)


def fed(text: str, name: str, *parts: np.ndarray) -> State:
    state, trace = fresh(text, name)
    for index in parts:
        state.update(subjects.cut(trace, index))
    return state


def same(left: Value, right: Value) -> None:
    assert left.value == pytest.approx(right.value, rel=1e-9, abs=1e-12)
    assert left.covered == pytest.approx(right.covered, rel=1e-9, abs=1e-12)
    assert (left.total, left.dead, dict(left.never)) == (right.total, right.dead, dict(right.never))
    for name, share in left.layers.items():
        assert share.value == pytest.approx(right.layers[name].value, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize(("text", "name"), BOTH)
def test_two_halves_merged_equal_the_whole(text: str, name: str) -> None:
    whole, first, second = (fed(text, name, index) for index in (np.arange(N), np.arange(0, 17), np.arange(17, N)))
    if not criterion(text).mergeable:
        with refused("unsupported", "merge"):
            first.merge(second)
        return
    first.merge(second)
    same(first.value(), whole.value())
    assert first.seen == N


@pytest.mark.parametrize(("text", "name"), BOTH)
def test_gain_is_what_each_input_alone_adds_and_changes_nothing(text: str, name: str) -> None:
    state = fed(text, name, np.arange(15))
    _, trace = fresh(text, name)
    rest = subjects.cut(trace, np.arange(15, 21))
    before = {key: array.copy() for key, array in state.state_dict().items()}
    gained = state.gain(rest)
    after = state.state_dict()
    assert all(np.array_equal(before[key], after[key]) for key in before)
    assert gained.shape == (6,)
    for i in range(6):
        new = state.twin()
        new.update(subjects.cut(rest, np.array([i])))
        assert gained[i] == pytest.approx(new.value().value - state.value().value, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize(("text", "name"), BOTH)
def test_order_and_batch_size_make_no_difference(text: str, name: str) -> None:
    mergeable = criterion(text).mergeable
    if not mergeable and not text.startswith("cc"):
        pytest.skip("by definition the order of inputs, or of batches, counts")
    whole, parts = fed(text, name, np.arange(N)), fed(text, name, *np.split(np.arange(N), 20))
    assert whole.seen == parts.seen == N
    same(parts.value(), whole.value())
    if mergeable:  # cc is greedy in order: batches may be of any size, but not of another order
        same(fed(text, name, np.arange(N)[::-1].copy()).value(), whole.value())


@pytest.mark.parametrize(("text", "name"), BOTH)
def test_more_inputs_never_lower_what_grows(text: str, name: str) -> None:
    method = criterion(text)
    if not method.growing or getattr(method, "relative", False):
        pytest.skip("by definition more inputs can lower it")
    state, trace = fresh(text, name)
    last = state.value().value
    for start in range(0, N, 5):
        state.update(subjects.cut(trace, np.arange(start, start + 5)))
        assert state.value().value >= last
        last = state.value().value
    assert last > 0 or text.startswith(("nbc", "snac"))


@pytest.mark.parametrize(("text", "name"), BOTH)
def test_saved_and_loaded_it_goes_on_as_before(text: str, name: str, tmp_path: object) -> None:
    state = fed(text, name, np.arange(20))
    saved = state.state_dict()
    assert all(isinstance(array, np.ndarray) for array in saved.values())
    again, trace = fresh(text, name)
    again.load({key: array.copy() for key, array in saved.items()})
    same(again.value(), state.value())
    rest = subjects.cut(trace, np.arange(20, N))
    again.update(rest)
    state.update(rest)
    same(again.value(), state.value())
    with refused("damaged", "state"):
        again.load({"seen": np.array([1])})


@pytest.mark.parametrize(("text", "name"), BOTH)
def test_nothing_seen_is_a_value_too(text: str, name: str) -> None:
    value = fresh(text, name)[0].value()
    assert value.value == pytest.approx(getattr(criterion(text), "offset", 0.0))
    assert value.whole.to_dict().keys() == {"covered", "total", "value", "dead"}


@pytest.mark.parametrize(("text", "name"), BOTH)
def test_nan_activations_are_counted_and_named(text: str, name: str) -> None:
    state, trace = fresh(text, name)
    broken = {w: {k: t.clone() for k, t in v.items()} for w, v in trace.recorded.items()}
    for layers in broken.values():
        last = list(layers)[-1]
        layers[last].reshape(N, -1)[3] = float("nan")
    state.update(Trace(trace.logits, broken))
    value = state.value()
    assert sum(value.nonfinite.values()) > 0
    assert any("NaN" in note and next(iter(value.nonfinite)) in note for note in value.notes)
    assert np.isfinite(value.value)
    assert np.isfinite(state.gain(Trace(trace.logits, broken))).all()


def test_every_criterion_of_the_design_is_there_and_says_where_it_comes_from() -> None:
    entries = registry.entries("criterion")
    assert {"nc", "nac", "kmnc", "nbc", "snac", "tknc", "bknc", "tknp", "cc", "lsc", "dsc", "mdsc", "cac", "nlc", "npc"} <= set(
        entries
    )
    assert all(entry.paper and entry.cost and entry.differs and entry.summary for entry in entries.values())


def test_those_that_depend_on_the_order_say_so() -> None:
    ordered = {text for text in ALL if not criterion(text).mergeable}
    assert ordered == {"cc", "cc:0.001", "cc:0.001,count_first=false", "nlc:gated", "nlc:preset=code", "cac:3,sticky=true"}
