"""Mergeable moments: by hand, by plain loops, and two halves merged equal the whole."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from tests.refusals import refused

from neurotest.stats.moments import Moments

batches = hnp.arrays(
    st.sampled_from([np.float32, np.float64]),
    st.tuples(st.integers(0, 30), st.just(3)),
    elements=st.floats(-1000, 1000, width=32),
)


def of(*batches: np.ndarray, neurons: int = 3) -> Moments:
    moments = Moments(neurons)
    for batch in batches:
        moments.update(batch)
    return moments


def same(a: Moments, b: Moments) -> None:
    assert a.count == b.count
    np.testing.assert_array_equal(a.low, b.low)
    np.testing.assert_array_equal(a.high, b.high)
    np.testing.assert_allclose(a.mean, b.mean, rtol=1e-12, atol=1e-9)
    np.testing.assert_allclose(a.m2, b.m2, rtol=1e-9, atol=1e-6)


def test_by_hand() -> None:
    moments = of(np.array([[1.0, 10.0], [3.0, 10.0]]), np.array([[5.0, 40.0]]), neurons=2)
    assert moments.count == 3
    assert moments.low.tolist() == [1, 10]
    assert moments.high.tolist() == [5, 40]
    assert moments.mean.tolist() == pytest.approx([3, 20])
    assert moments.variance.tolist() == pytest.approx([8 / 3, 200])
    assert moments.std.tolist() == pytest.approx([math.sqrt(8 / 3), math.sqrt(200)])


def test_before_the_first_input() -> None:
    moments = Moments(2)
    moments.update(np.zeros((0, 2)))
    assert moments.count == 0
    assert np.isnan(moments.variance).all()
    assert moments.low.tolist() == [math.inf] * 2
    assert moments.high.tolist() == [-math.inf] * 2


@given(batches)
@settings(deadline=None)
def test_equal_to_a_plain_loop(values: np.ndarray) -> None:
    moments = of(values)
    for column in range(3):
        seen = [float(row[column]) for row in values]
        if not seen:
            continue
        mean = math.fsum(seen) / len(seen)
        assert moments.low[column] == min(seen)
        assert moments.high[column] == max(seen)
        assert moments.mean[column] == pytest.approx(mean, abs=1e-9)
        assert moments.variance[column] == pytest.approx(math.fsum((v - mean) ** 2 for v in seen) / len(seen), abs=1e-6)


@given(batches, batches)
@settings(deadline=None)
def test_two_halves_merged_equal_the_whole(first: np.ndarray, second: np.ndarray) -> None:
    merged = of(first)
    merged.merge(of(second))
    both = np.concatenate([first.astype(np.float64), second.astype(np.float64)])
    same(merged, of(both))
    same(of(first, second), of(both))
    backwards = of(second)
    backwards.merge(of(first))
    same(backwards, merged)


@given(batches, batches, batches)
@settings(deadline=None)
def test_merging_does_not_depend_on_grouping(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
    left = of(a)
    left.merge(of(b))
    left.merge(of(c))
    tail = of(b)
    tail.merge(of(c))
    right = of(a)
    right.merge(tail)
    same(left, right)


@given(batches)
@settings(deadline=None)
def test_saving_and_loading_changes_nothing(values: np.ndarray) -> None:
    moments = of(values)
    again = Moments.load(moments.state_dict())
    assert again.count == moments.count
    for name in ("low", "high", "mean", "m2"):
        np.testing.assert_array_equal(getattr(again, name), getattr(moments, name))


def test_merging_leaves_the_other_alone() -> None:
    a, b = of(np.ones((2, 3))), of(np.zeros((2, 3)))
    before = b.state_dict()
    empty = Moments(3)
    empty.merge(b)
    empty.update(np.full((5, 3), 9.0))
    a.merge(b)
    for name, value in b.state_dict().items():
        np.testing.assert_array_equal(value, before[name])


def test_a_small_spread_around_a_large_mean_survives() -> None:
    values = 1e8 + np.random.default_rng(0).normal(size=(1000, 1))
    halves = of(values[:300], neurons=1)
    halves.merge(of(values[300:], neurons=1))
    assert halves.variance[0] == pytest.approx(values.var(), rel=1e-6)


def test_numbers_too_large_to_be_squared_make_no_noise() -> None:
    """Whatever the caller does with floating-point errors: the spread is infinite, and that is the answer."""
    with np.errstate(all="raise"):
        whole = of(np.array([[1e200], [-1e200]]), np.array([[1e300]]), np.array([[np.inf]]), neurons=1)
        first, second = of(np.array([[1e200]]), neurons=1), of(np.array([[-1e200]]), neurons=1)
        first.merge(second)
        endless = of(np.array([[np.inf]]), neurons=1)
        endless.merge(of(np.array([[-np.inf]]), neurons=1))
        sums = of(np.full((2, 1), 1.7e308), neurons=1)
    assert (whole.count, whole.low[0], whole.high[0], whole.mean[0]) == (4, -1e200, np.inf, np.inf)
    assert np.isnan(whole.m2[0])
    assert (first.mean[0], first.m2[0]) == (0, np.inf)
    assert np.isnan(endless.mean[0])
    assert sums.mean[0] == np.inf


def test_float32_is_summed_in_float64() -> None:
    values = np.full((1000, 1), 0.1, dtype=np.float32)
    assert of(*[values] * 50, neurons=1).mean[0] == pytest.approx(float(np.float32(0.1)), rel=1e-14)


def test_a_value_that_is_no_number_is_not_swallowed() -> None:
    moments = of(np.array([[1.0, 1.0, 1.0], [math.nan, math.inf, 2.0]]))
    assert math.isnan(moments.low[0])
    assert math.isnan(moments.mean[0])
    assert moments.high[1] == math.inf
    assert moments.mean[2] == 1.5


def test_the_batch_is_not_changed() -> None:
    values = np.arange(6, dtype=np.float64).reshape(2, 3)
    of(values)
    assert values.tolist() == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize("shape", [(3,), (2, 4), (2, 3, 1)])
def test_values_of_another_shape_are_refused(shape: tuple[int, ...]) -> None:
    with refused("wrong-shape", "values"):
        Moments(3).update(np.zeros(shape))


def test_moments_of_other_neurons_are_refused() -> None:
    with refused("conflict", "merge"):
        Moments(3).merge(Moments(2))
    with refused("out-of-range", "neurons"):
        Moments(0)


def test_what_overflows_is_quiet_and_visible() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        moments = of(np.array([[1e300, math.inf, 1.0], [-1e300, math.inf, 1.0]]))
        other = of(np.array([[math.nan, 1.0, 2.0]]))
        moments.merge(other)
    assert moments.m2[0] == math.inf or math.isnan(moments.m2[0])
    assert moments.variance[2] == pytest.approx(2 / 9)


def test_one_neuron_and_one_input() -> None:
    moments = of(np.array([[3.0]]), neurons=1)
    assert (moments.neurons, moments.count) == (1, 1)
    assert (moments.mean[0], moments.variance[0], moments.std[0]) == (3, 0, 0)
    assert Moments(4).mean.tolist() == [0] * 4
    assert Moments(4).variance.shape == (4,)


def test_a_state_is_a_copy() -> None:
    moments = of(np.ones((2, 3)))
    state = moments.state_dict()
    again = Moments.load(state)
    for value in state.values():
        value += 5
    assert moments.mean.tolist() == again.mean.tolist() == [1, 1, 1]
    assert moments.low.tolist() == again.low.tolist() == moments.high.tolist() == again.high.tolist() == [1, 1, 1]
    assert moments.m2.tolist() == again.m2.tolist() == [0, 0, 0]
    assert state["count"].dtype == np.int64
    assert Moments.load(Moments(2).state_dict()).count == 0  # nothing seen yet is a state, too


def test_a_saved_state_that_does_not_fit_is_refused() -> None:
    state = of(np.ones((2, 3))).state_dict()
    for wrong in ({"mean": np.zeros(2)}, {"count": np.array([-1])}, {"low": np.zeros((1, 3))}):
        with refused("damaged", "shapes"):
            Moments.load({**state, **wrong})
    del state["m2"]
    with refused("damaged", "moments"):
        Moments.load(state)
