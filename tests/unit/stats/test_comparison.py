"""Effect sizes, Holm's correction and correlations, by hand and against scipy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from neurotest.errors import BadInput
from neurotest.stats.comparison import a12, holm, magnitude, pearson, ranks, spearman, within

numbers = st.lists(st.integers(-5, 5), min_size=2, max_size=20)


@given(numbers, numbers)
def test_a12_counts_pairs(left: list[int], right: list[int]) -> None:
    expected = np.mean([(a > b) + 0.5 * (a == b) for a in left for b in right])
    assert a12(left, right) == pytest.approx(expected)
    assert a12(left, right) + a12(right, left) == pytest.approx(1)


def test_what_an_effect_is_called() -> None:
    assert [magnitude(v) for v in (0.5, 0.57, 0.35, 0.71, 0.0)] == ["negligible", "small", "medium", "large", "large"]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_keeps_order_and_never_lowers(p: list[float]) -> None:
    found = holm(p)
    assert (found >= np.array(p) - 1e-15).all()
    assert (found <= 1).all()
    order = np.argsort(p, kind="stable")
    assert (np.diff(found[order]) >= 0).all()


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]).tolist() == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.01, math.nan, 0.5])[0] == pytest.approx(0.02)
    assert math.isnan(holm([0.01, math.nan])[1])
    with pytest.raises(BadInput):
        holm([1.2])


@given(numbers)
def test_ranks_as_scipy(values: list[int]) -> None:
    assert ranks(values).tolist() == pytest.approx(stats.rankdata(values).tolist())


def test_correlations_as_scipy() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=30), rng.integers(0, 4, 30)
    assert pearson(x, y) == pytest.approx(stats.pearsonr(x, y).statistic)
    assert spearman(x, y) == pytest.approx(stats.spearmanr(x, y).statistic)
    assert math.isnan(pearson(x, np.full(30, 0.1)))
    for bad in ((x, y[:-1]), (x[:1], y[:1]), (x * np.nan, y)):
        with pytest.raises(BadInput):
            pearson(*bad)


def test_a_level_that_explains_everything_is_taken_off() -> None:
    rng = np.random.default_rng(0)
    level = np.repeat([0, 1, 2], 20)
    x, y = level + 0.1 * rng.normal(size=60), level + 0.1 * rng.normal(size=60)
    assert pearson(x, y) > 0.9
    dummies = np.eye(3)[level]
    left, right = (v - dummies @ np.linalg.lstsq(dummies, v, rcond=None)[0] for v in (x, y))
    assert within(x, y, level) == pytest.approx(stats.pearsonr(left, right).statistic)
    assert abs(within(x, y, level)) < 0.3
    assert math.isnan(within(level, y, level))
    with pytest.raises(BadInput):
        within(x, y, level[:5])
