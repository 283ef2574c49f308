"""Every criterion on numbers small enough to be worked out on paper."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tests.unit.coverage import subjects
from torch import nn

from neurotest import registry
from neurotest.coverage.adequacy import MLSA
from neurotest.coverage.causal import CAC, _count, _dependent
from neurotest.coverage.criterion import State
from neurotest.coverage.paths import _build, _critical
from neurotest.data.source import ArraySource
from neurotest.measure.context import Context, Traces
from neurotest.measure.traces import Layout
from neurotest.target import Target, Trace

pytestmark = pytest.mark.by_hand

TRAIN: dict[str, list[list[float]]] = {
    "a": [[0, -1, 5], [1, 1, 5], [0.5, 0, 5]],
    "b": [[0, 10], [2, 20], [1, 15]],
}  # a[2] is dead


def after(text: str, rows: dict[str, list[list[float]]], train: Any = None) -> State:
    state = registry.build("criterion", text).start(subjects.context_of(train or TRAIN))
    assert isinstance(state, State)
    state.update(subjects.trace_of(rows))
    return state


def test_nc_scales_within_layer_and_input() -> None:
    # layer a: (1 - 0) / (4 - 0) = .25, 0, 1; layer b: 1 and 0
    state = after("nc:0.2", {"a": [[1, 0, 4]], "b": [[7, 3]]})
    assert state.value().never == {"a": (1,), "b": (1,)}
    assert (state.value().covered, state.value().total) == (3, 5)


def test_nc_of_a_layer_that_says_the_same_everywhere_is_nothing() -> None:
    assert after("nc:0", {"a": [[2, 2, 2]], "b": [[7, 3]]}).value().covered == 1


def test_nc_can_scale_whole_maps_before_it_averages() -> None:
    # channel 0 holds 0 and 4, channel 1 holds 2 and 2: both means are 2, a constant layer; scaled first, both means are .5
    maps = torch.tensor([[[[0.0, 4.0]], [[2.0, 2.0]]]])
    for order, covered in (("reduce_then_scale", 0), ("scale_then_reduce", 2)):
        criterion = registry.build("criterion", f"nc:0.4,scale_order={order}")
        values = maps if order == "scale_then_reduce" else maps.mean((2, 3))
        state = criterion.start(Context(layouts={criterion.want: Layout({"a": 2}, {"a": 1})}))
        state.update(Trace(torch.zeros(1, 2), {criterion.want: {"a": values}}))
        assert state.value().covered == covered


def test_nac_takes_raw_values() -> None:
    state = after("nac:1", {"a": [[1, 2, 0], [1.5, 0, 0]], "b": [[0, 0], [0, 0]]})
    assert state.value().never == {"a": (2,), "b": (0, 1)}


@pytest.mark.parametrize(
    ("edges", "covered"),
    [
        # ranges a0 0..1, a1 -1..1, a2 5 only, b0 0..2, b1 10..20, two sections each
        ("closed", 6),  # a0 0 -> 0, 1 -> 1; a1 -1 -> 0, 0 -> 1; b0 0 -> 0, 3 outside; b1 20 -> 1 and 21 outside
        ("neural_coverage", 3),  # (left, right]: a0 1 -> 1; a1 0 -> 0; b1 20 -> 1
        ("dnn_tip", 4),  # [left, right): a0 0 -> 0; a1 -1 -> 0, 0 -> 1; b0 0 -> 0
    ],
)
def test_kmnc_by_its_edges(edges: str, covered: int) -> None:
    value = after(f"kmnc:2,edges={edges}", {"a": [[0, -1, 5], [1, 0, 5]], "b": [[0, 20], [3, 21]]}).value()
    assert (value.covered, value.total, value.dead) == (covered, 10, 1)
    assert 2 in value.never["a"]


def test_kmnc_can_leave_dead_neurons_out() -> None:
    value = after("kmnc:2,exclude_dead=true", {"a": [[0, -1, 5]], "b": [[0, 10]]}).value()
    assert (value.covered, value.total) == (4, 8)


def test_nbc_and_snac_are_strict_unless_told_otherwise() -> None:
    rows: dict[str, list[list[float]]] = {"a": [[-0.1, 1, 5], [0, 1.1, 5]], "b": [[2, 9], [2, 20]]}
    assert after("nbc", rows).value().covered == 3  # a0 below, a1 above, b1 below
    assert after("snac", rows).value().covered == 1
    # on the edge as well: a0 0 (already), a2 5 on both sides, b0 2 above, b1 20 above
    assert after("nbc:strict=false", rows).value().covered == 7
    # the spread of a1 is sqrt(2/3) = .816: 1.1 is not beyond 1 + .5 * .816
    assert after("snac:0.5", rows).value().covered == 0


def test_tknc_and_bknc_break_ties_by_position() -> None:
    rows: dict[str, list[list[float]]] = {"a": [[3, 3, 3], [0, 1, 2]], "b": [[1, 1], [1, 1]]}
    assert after("tknc:1", rows).value().never == {"a": (1,), "b": (1,)}
    assert after("bknc:1", rows).value().never == {"a": (1, 2), "b": (1,)}
    assert after("tknc:1,positive_only=true", {"a": [[0, 0, -1]], "b": [[-1, 2]]}).value().covered == 1


def test_tknp_counts_patterns() -> None:
    rows: dict[str, list[list[float]]] = {
        "a": [[3, 2, 1], [2, 3, 1], [3, 2, 1], [1, 2, 3]],
        "b": [[1, 0], [1, 0], [0, 1], [1, 0]],
    }
    assert after("tknp:1", rows).value().value == 4  # 0|0, 1|0, 0|1, 2|0
    assert after("tknp:2,pattern=set", rows).value().value == 2  # {0,1}, {1,2}; layer b is always both
    layers = after("tknp:1,mode=layer", rows).value()
    assert (layers.value, layers.layers["a"].covered, layers.layers["b"].covered) == (5, 3, 2)


def test_tknp_tells_patterns_apart_that_print_alike() -> None:
    """Above 1,000 elements torch prints an abbreviation: two peers compare that."""
    wide = np.arange(3000.0)
    swapped = wide.copy()
    swapped[[1500, 1501]] = swapped[[1501, 1500]]
    context = subjects.context_of({"a": [[0.0] * 3000]})
    state = registry.build("criterion", "tknp:3000").start(context)
    state.update(subjects.trace_of({"a": [wide.tolist(), swapped.tolist()]}))
    assert state.value().value == 2


def test_cc_keeps_what_is_far_from_all_before() -> None:
    rows: dict[str, list[list[float]]] = {
        "a": [[0, 0, 0], [1, 0, 0], [4, 0, 0], [2, 0, 0]],
        "b": [[0, 0], [0, 0], [0, 0], [0, 3]],
    }
    # a: 0 kept; 1 is 1 away (squared 1); 4 kept; 2 is at squared distance 4 from both. b: 0 kept, 3 kept
    assert after("cc:4", rows).value().value == 4
    assert after("cc:3.9", rows).value().value == 5
    assert after("cc:4,count_first=false", rows).value().value == 2


def test_nlc_is_the_mean_absolute_covariance() -> None:
    # a: neuron 0 is 0 and 2 (variance 1), neuron 1 is 0 and 4 (4), together 2, neuron 2 constant: (1 + 4 + 2 * 2) / 9
    # b: variances 0 and 1: 1 / 4
    rows: dict[str, list[list[float]]] = {"a": [[0, 0, 7], [2, 4, 7]], "b": [[1, 0], [1, 2]]}
    value = after("nlc", rows).value()
    assert value.value == pytest.approx(1 + 0.25)
    assert value.dead == 2
    assert after("nlc:exact,offset=1", rows).value().value == pytest.approx(2.25)
    # Of three equal neurons with variance 4 two are drawn: every pair has 4. Of three independent ones with variance 4 three of
    # nine pairs have it, though two of the four that are drawn do.
    still: list[list[float]] = [[0, 0]] * 4
    equal: dict[str, list[list[float]]] = {"a": [[0, 0, 0], [4, 4, 4]], "b": still[:2]}
    crossed: dict[str, list[list[float]]] = {"a": [[0, 0, 0], [4, 0, 4], [0, 4, 4], [4, 4, 0]], "b": still}
    assert after("nlc:neurons=2", equal).value().value == pytest.approx(4)
    assert after("nlc:neurons=2", crossed).value().value == pytest.approx(4 / 3)


def test_nlc_gated_keeps_a_batch_only_where_the_norm_rises() -> None:
    state = registry.build("criterion", "nlc:gated").start(subjects.context_of({"a": [[0.0]]}))
    state.update(subjects.trace_of({"a": [[0.0], [2.0]]}))
    state.update(subjects.trace_of({"a": [[1.0], [1.0]]}))
    assert state.value().value == 1
    state.update(subjects.trace_of({"a": [[9.0]]}))
    assert state.value().value > 1


def test_dsc_by_hand() -> None:
    # class 0 at 0 and 1, class 1 at 4: an input at 3 of class 0 is 2 from 1, which is 3 from 4: 2/3; measured from the input: 2/1
    context = subjects.context_of({"a": [[0.0], [1.0], [4.0]]}, [0, 0, 1])
    for text, score in (("dsc:features=none", 2 / 3), ("dsc:features=none,reference=test", 2.0)):
        state = registry.build("criterion", text).start(context)
        trace = subjects.trace_of({"a": [[3.0]]}, [[1.0, 0.0]])
        assert state.score(trace) == pytest.approx([score])
        state.update(trace)
        assert state.hit == {int(score / 0.1)}


def test_mdsc_by_hand() -> None:
    # variance 4 around 2: 8 is 3 deviations away
    context = subjects.context_of({"a": [[0.0], [4.0], [0.0], [4.0]]})
    trace = subjects.trace_of({"a": [[8.0]]}, [[1.0, 0.0]])
    assert registry.build("criterion", "mdsc").start(context).score(trace) == pytest.approx([3.0])
    assert registry.build("criterion", "mdsc:squared=true").start(context).score(trace) == pytest.approx([9.0])


def test_lsc_by_hand() -> None:
    context = subjects.context_of({"a": [[0.0], [2.0]]})
    trace = subjects.trace_of({"a": [[1.0]]}, [[1.0, 0.0]])
    density = np.exp(-0.5) / np.sqrt(2 * np.pi)  # both kernels of width 1 are one away
    assert registry.build("criterion", "lsc:1,bandwidth=1.0").start(context).score(trace) == pytest.approx([-np.log(density)])


def test_critical_neurons_hold_the_asked_share() -> None:
    relevance = np.array([[5.0, 3.0, 2.0, -1.0], [0.0, -1.0, -2.0, -3.0]])
    assert _critical(relevance, 0.5).tolist() == [[True, False, False, False], [False] * 4]
    assert _critical(relevance, 0.7).tolist() == [[True, True, False, False], [False] * 4]
    assert _critical(relevance, 1.0).tolist() == [[True, True, True, False], [False] * 4]
    assert _critical(relevance, 0.7, take="stopping").tolist()[1] == [True, False, False, False]


def test_chi_square_by_hand() -> None:
    # 20 10 / 10 20: expected 15 each, chi-square 4 * 25 / 15 = 6.67 > 3.84
    table = np.array([[[20, 10, 10, 20]]], dtype=np.int32)
    even = np.array([[[15, 15, 15, 15]]], dtype=np.int32)
    few = np.array([[[4, 0, 0, 4]]], dtype=np.int32)
    for rule in ("all", "cochran"):
        assert _dependent(table, CAC(sections=2, p=0.05, expected="textbook", rule=rule)).all()
        assert not _dependent(even, CAC(sections=2, p=0.05, expected="textbook", rule=rule)).any()
        assert not _dependent(few, CAC(sections=2, p=0.05, expected="textbook", rule=rule)).any()
    # row mean * column mean = 15 * 15 = 225 everywhere: far from any count, so even equal counts are "dependent"
    assert _dependent(even, CAC(sections=2, p=0.05, expected="dl_cc", rule="all")).all()


def test_an_empty_row_is_left_out_by_cochran() -> None:
    table = np.array([[[30, 5, 0, 5, 30, 0, 0, 0, 0]]], dtype=np.int32)
    assert _dependent(table, CAC(sections=3, p=0.05, expected="textbook", rule="cochran")).all()
    assert not _dependent(table, CAC(sections=3, p=0.05, expected="textbook", rule="all")).any()


@pytest.mark.parametrize("inputs", [1, 30])
def test_counting_few_and_many_is_the_same(inputs: int) -> None:
    cells = np.random.default_rng(0).integers(0, 5, (3, inputs, 4)).astype(np.int16)
    flat = np.zeros(3 * 4 * 5, dtype=np.int32)
    _count(flat, cells, 5)
    plain = np.zeros((3, 4, 5), dtype=np.int32)
    for a in range(3):
        for i in range(inputs):
            for b in range(4):
                plain[a, b, cells[a, i, b]] += 1
    assert (flat.reshape(3, 4, 5) == plain).all()


def test_cac_finds_the_connection_that_is_there() -> None:
    """Output 0 follows input 0, output 1 follows input 1; the two inputs are independent."""
    first, second = nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)
    with torch.no_grad():
        first.weight.copy_(torch.eye(2))
        second.weight.copy_(torch.eye(2))
    target = Target(nn.Sequential(first, second).eval(), shape=(2,))
    x = np.random.default_rng(0).random((600, 2)).astype(np.float32)
    criterion = registry.build("criterion", "cac:4")
    state = criterion.start(Context(target=target, train=ArraySource(x)))
    state.update(subjects.trace(target, x, criterion.want))
    assert state._covered()[0].tolist() == [[True, False], [False, True]]
    assert state.value().total == 4


def test_npc_of_its_own_training_data_is_near_its_paths() -> None:
    target = subjects.small()
    context = subjects.context(target)
    criterion = registry.build("criterion", "npc:clusters=1,member=1.0,share=1.0,buckets=10")
    state = criterion.start(context)
    assert context.train is not None
    state.update(subjects.trace(target, context.train.read(np.arange(90)), criterion.want))
    value = state.value()
    assert value.total == 10 * len(np.unique(context.train.labels))
    assert 0 < value.covered <= value.total


def test_closeness_to_an_abstract_path_by_hand() -> None:
    paths = np.array([[1, 1, 0, 0], [1, 0, 1, 0], [1, 1, 0, 0]], dtype=bool)
    values = np.array([[0.0, 0, 9, 9], [1, 0, 9, 9], [3, 0, 9, 9]])
    abstract = _build(paths, np.zeros(3, dtype=np.int64), np.ones(3, dtype=bool), values, clusters=1, member=0.6)
    assert abstract.paths.tolist() == [[True, True, False, False]]
    everything = slice(0, 4)
    paths_of_inputs = np.array([[1, 1, 0, 0], [1, 0, 1, 0], [0, 0, 0, 1]], dtype=bool)
    assert abstract.jaccard(0, paths_of_inputs, everything) == pytest.approx([1, 1 / 3, 0])
    # on the path's neurons the members are 0, 1 and 3: the widest gap to a neighbour is 2, so 4 is as far as it goes
    assert abstract.distance(0, np.array([[5.0, 0, 0, 0], [99, 0, 0, 0], [1, 0, 5, 5]]), everything) == pytest.approx([0.5, 1, 0])


@pytest.mark.parametrize("neurons", [1, 2, 5, 8])
def test_mlsa_is_the_likelihood_that_scikit_learn_gives(neurons: int) -> None:
    from sklearn.mixture import GaussianMixture

    random = np.random.default_rng(neurons)
    train, tested = random.normal(size=(100, neurons)), random.normal(size=(20, neurons))
    classes = np.zeros(100, dtype=np.int64)
    ours = MLSA(features=None, min_var=0).fit(Traces(train, classes), seed=3).score(tested, classes[:20])
    theirs = GaussianMixture(3, random_state=3, reg_covar=1e-6).fit(train).score_samples(tested)
    assert ours == pytest.approx(-theirs, rel=1e-9)
