"""Effect sizes, Holm's correction and correlations, by hand and against scipy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from neurotest.errors import BadInput
from neurotest.stats.comparison import a12, holm, magnitude, pearson, ranks, spearman

numbers = st.lists(st.integers(-5, 5), min_size=2, max_size=20)


@given(numbers, numbers)
def test_a12_counts_pairs(left: list[int], right: list[int]) -> None:
    expected = np.mean([(a > b) + 0.5 * (a == b) for a in left for b in right])
    assert a12(left, right) == pytest.approx(expected)
    assert a12(left, right) + a12(right, left) == pytest.approx(1)


def test_what_an_effect_is_called() -> None:
    assert [magnitude(v) for v in (0.5, 0.57, 0.35, 0.71, 0.0)] == ["negligible", "small", "medium", "large", "large"]


def test_where_one_name_ends_and_the_next_begins() -> None:
    edges = {0.559: "negligible", 0.56: "small", 0.639: "small", 0.64: "medium", 0.709: "medium", 0.71: "large"}
    for effect, name in edges.items():
        assert magnitude(effect) == name
        assert magnitude(1 - effect) == name


def test_samples_that_cannot_be_compared() -> None:
    for values in ([], [[1.0]], [math.nan], [math.inf]):
        with pytest.raises(BadInput, match=r"^left: .*at least 1 finite"):
            a12(values, [1.0])
        with pytest.raises(BadInput, match=r"^right: .*at least 1 finite"):
            a12([1.0], values)
    assert a12([1.0], [1.0]) == 0.5
    for correlation in (pearson, spearman):
        with pytest.raises(BadInput, match=r"^x: .*at least 2"):
            correlation([1.0], [1.0, 2.0])
        with pytest.raises(BadInput, match=r"^y: .*at least 2"):
            correlation([1.0, 2.0], [1.0])
        with pytest.raises(BadInput, match="2 values against 3"):
            correlation([1.0, 2.0], [1.0, 2.0, 3.0])
    assert spearman([1.0, 2.0], [1.0, 3.0]) == pearson([1.0, 2.0], [1.0, 3.0]) == pytest.approx(1)
    assert pearson([0.0, 1.0, 2.0], [0.0, 1.0, 0.5]) == pytest.approx(0.5)  # a range of exactly 1 is no constant


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_keeps_order_and_never_lowers(p: list[float]) -> None:
    corrected = holm(p)
    assert (corrected >= np.array(p) - 1e-15).all()
    assert (corrected <= 1).all()
    order = np.argsort(p, kind="stable")
    assert (np.diff(corrected[order]) >= 0).all()


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]).tolist() == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.01, math.nan, 0.5])[0] == pytest.approx(0.02)
    assert math.isnan(holm([0.01, math.nan])[1])
    assert holm([0.0, 1.0]).tolist() == [0, 1]
    assert holm([]).tolist() == []
    p = np.array([0.01, 0.04])
    holm(p)
    assert p.tolist() == [0.01, 0.04]  # not changed
    for wrong in ([1.2], [-0.1], [0.5, 1.1], [[0.5]]):
        with pytest.raises(BadInput, match="from 0 to 1"):
            holm(wrong)


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
