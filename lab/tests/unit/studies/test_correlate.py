"""Correlations by hand, against scipy, and what holds for any numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from neurotest.errors import BadInput
from neurotest.stats.comparison import pearson
from neurotest_lab.studies.coverage.correlate import Correlation, correlate, p_value, within, within_levels

numbers = st.lists(st.floats(-100, 100).map(lambda v: round(v, 3)), min_size=5, max_size=30)


def test_by_hand() -> None:
    # x = 1, 2, 3, y = 1, 3, 2: covariance 1 / (sqrt 2 sqrt 2) = .5; t = .5 / sqrt(.75) with one degree of freedom.
    result = correlate([1, 2, 3], [1, 3, 2])
    assert result.r == pytest.approx(0.5)
    assert result.p == pytest.approx(2 * (0.5 - math.atan(0.5 / math.sqrt(0.75)) / math.pi))
    assert result.strength == "moderate"
    assert (result.n, result.clusters) == (3, 3)


def test_what_a_level_moves_is_taken_off() -> None:
    # Between the levels both sides jump by 10; within each they run against each other.
    x, y, level = [1, 2, 3, 11, 12, 13], [3, 2, 1, 13, 12, 11], [0, 0, 0, 1, 1, 1]
    assert correlate(x, y).r > 0.9
    fixed = correlate(x, y, level=level)
    assert fixed.r == pytest.approx(-1)
    assert fixed.p == 0
    each = within_levels(x, y, level, least=3)
    assert [one.r for one in each.values()] == pytest.approx([-1, -1])
    assert within_levels(x, y, level, least=4) == {}


def test_against_scipy() -> None:
    generator = np.random.default_rng(0)
    x = generator.normal(size=40)
    y = 0.4 * x + generator.normal(size=40)
    theirs = stats.pearsonr(x, y)
    ours = correlate(x, y)
    assert (ours.r, ours.p) == pytest.approx((theirs.statistic, theirs.pvalue))
    assert correlate(x, y, by_rank=True).r == pytest.approx(stats.spearmanr(x, y).statistic)
    # The interval of independent values, from sums, is that of a plain bootstrap that writes every resample out.
    plain = [pearson(x[i], y[i]) for i in generator.integers(0, 40, (1000, 40))]
    assert [ours.low, ours.high] == pytest.approx(np.quantile(plain, [0.025, 0.975]), abs=0.06)


def test_clusters_widen_the_interval() -> None:
    generator = np.random.default_rng(1)
    x = np.repeat(generator.normal(size=8), 20)
    y = np.repeat(generator.normal(size=8), 20) + x / 2
    alone, together = correlate(x, y), correlate(x, y, clusters=np.repeat(np.arange(8), 20))
    assert together.clusters == 8
    assert together.high - together.low > 2 * (alone.high - alone.low)


def test_the_interval_with_levels_and_clusters_is_that_of_written_out_resamples() -> None:
    generator = np.random.default_rng(3)
    level, cluster = np.tile([0, 1, 2], 40), np.repeat(np.arange(30), 4)
    shared = generator.normal(size=30)[cluster]
    x = 10 * level + shared + generator.normal(size=120)
    y = -20 * level + shared + generator.normal(size=120)
    result = correlate(x, y, level=level, clusters=cluster, draws=4000)
    assert (result.n, result.clusters) == (120, 30)
    plain = []
    for chosen in generator.integers(0, 30, (4000, 30)):
        rows = np.concatenate([np.flatnonzero(cluster == c) for c in chosen])
        plain.append(within(x[rows], y[rows], level[rows]))
    # Five standard errors of a percentile of 4,000 draws of an about normal coefficient, for both sides.
    tolerance = 5 * math.sqrt(2 * 0.025 * 0.975 / 4000) / (0.058 / np.std(plain))
    assert [result.low, result.high] == pytest.approx(np.quantile(plain, [0.025, 0.975]), abs=tolerance)
    assert result.r == pytest.approx(within(x, y, level))
    # A dummy per level takes its degree of freedom: 120 - 2 - 2.
    t = result.r * math.sqrt(116 / (1 - result.r**2))
    assert result.p == pytest.approx(2 * stats.t.sf(t, 116))


def test_levels_that_a_resample_holds_once_or_not_at_all() -> None:
    """A level's only value says nothing about its spread, and a level that was not drawn says nothing at all."""
    generator = np.random.default_rng(5)
    level = np.repeat(np.arange(20), 2)  # each value is its own cluster: of two a resample often holds one, or none
    x = 30.0 * level + generator.normal(size=40)
    y = x - 60.0 * level + generator.normal(size=40)
    result = correlate(x, y, level=level, draws=4000)
    plain = [within(x[rows], y[rows], level[rows]) for rows in generator.integers(0, 40, (4000, 40))]
    # Where a lone value counted with its distance from the mean of everything, the coefficients would be about -1.
    shares = [np.mean(np.array(plain) <= end) for end in (result.low, result.high)]
    assert shares == pytest.approx([0.025, 0.975], abs=5 * math.sqrt(2 * 0.025 * 0.975 / 4000))
    with np.errstate(all="raise"):
        assert correlate(x, y, level=level, draws=4000) == result


def test_the_interval_does_not_depend_on_scale_and_place() -> None:
    generator = np.random.default_rng(4)
    x, y = generator.normal(size=25), generator.normal(size=25)
    here, there = correlate(x, y), correlate(1e3 * x + 5e4, 1e-3 * y - 7)
    assert (here.low, here.high) == pytest.approx((there.low, there.high), abs=1e-6)
    assert (here.low, here.high) != (correlate(x, y, seed=1).low, correlate(x, y, seed=1).high)
    assert here == correlate(x, y, draws=1000, seed=0)


def test_two_clusters_are_too_few_for_an_interval_and_three_are_enough() -> None:
    x, y = [1, 2, 3, 4, 5, 7], [1, 3, 2, 5, 4, 6]
    assert math.isnan(correlate(x, y, clusters=[0, 0, 0, 1, 1, 1]).low)
    three = correlate(x, y, clusters=[0, 0, 1, 1, 2, 2])
    assert three.low < three.high


def test_levels_with_few_values_are_left_out() -> None:
    level = ["b"] * 4 + ["a"] * 3 + ["c"] * 2 + ["d"]
    x, y = np.arange(10.0), np.arange(10.0) ** 2
    assert list(within_levels(x, y, level)) == ["b"]  # by default from four values on
    assert list(within_levels(x, y, level, least=3)) == ["a", "b"]
    assert list(within_levels(x, y, level, least=1)) == ["a", "b", "c"]  # of one value there is no correlation
    assert within_levels(x, y, level)["b"].r == pytest.approx(pearson(x[:4], y[:4]))


def test_strength_and_support_follow_what_is_printed() -> None:
    def of(r: float, p: float = 0.01) -> Correlation:
        return Correlation(r, p, r, r, 10, 10)

    assert [of(r).strength for r in (0.29, 0.3, -0.69, 0.697, math.nan)] == [
        "weak", "moderate", "moderate", "strong", "undefined",
    ]  # fmt: skip
    assert of(0.8).supports()
    assert not of(0.8).supports(-1)
    assert of(-0.8).supports(-1)
    assert not of(0.8, 0.2).supports()
    assert of(0.8, 0.05).supports()
    assert not of(0.8, 0.05).supports(level=0.04)
    assert not of(0.6).supports()
    assert of(math.nan).to_dict()["r"] is None
    assert of(0.5).to_dict() == {"r": 0.5, "p": 0.01, "low": 0.5, "high": 0.5, "n": 10, "clusters": 10, "strength": "moderate"}


def test_nothing_varies() -> None:
    result = correlate([1, 1, 1, 1], [1, 2, 3, 4])
    assert math.isnan(result.r)
    assert math.isnan(result.low)
    assert math.isnan(p_value(0.5, 0))
    assert p_value(1.0, 5) == 0
    assert p_value(-1.0, 5) == 0
    assert (result.n, result.clusters) == (4, 4)
    assert p_value(0.5, 1) == pytest.approx(2 * stats.t.sf(0.5 / math.sqrt(0.75), 1))
    assert p_value(-0.5, 7) == p_value(0.5, 7)


@given(numbers, st.randoms(use_true_random=False))
@settings(max_examples=40, deadline=None)
def test_any_numbers(x: list[float], random) -> None:  # type: ignore[no-untyped-def]
    y = [v + random.uniform(-50, 50) for v in x]
    result = correlate(x, y, draws=100)
    if math.isnan(result.r):
        return
    assert -1 - 1e-9 <= result.r <= 1 + 1e-9
    assert 0 <= result.p <= 1
    assert correlate(y, x, draws=100).r == pytest.approx(result.r)
    assert correlate([-v for v in x], y, draws=100).r == pytest.approx(-result.r)
    assert correlate(x, y, level=[7] * len(x), draws=100).r == pytest.approx(result.r)
    if not math.isnan(result.low):
        assert -1 <= result.low <= result.high <= 1


@pytest.mark.parametrize(
    ("x", "y", "more"),
    [([1, 2], [1, 2, 3], {}), ([1, 2, 3], [1, 2, 3], {"level": [1, 2]}), ([1, 2, 3], [1, 2, 3], {"clusters": [[1, 2, 3]]}),
     ([1, math.nan], [1, 2], {})],
)  # fmt: skip
def test_bad_input(x: list[float], y: list[float], more: dict[str, list[float]]) -> None:
    with pytest.raises(BadInput):
        correlate(x, y, **more)


def test_messages_name_the_argument() -> None:
    for options, name in (
        ({"x": [1.0]}, "x:"),
        ({"y": [1.0]}, "y:"),
        ({"level": [1]}, "level of"),
        ({"clusters": [1]}, "clusters of"),
    ):
        values = {"x": [1.0, 2.0, 3.0], "y": [1.0, 2.0, 4.0], **options}
        with pytest.raises(BadInput, match=f"^{name}"):
            correlate(**values)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match=r"^level of"):
        within_levels([1, 2], [1, 2], [1])
    with pytest.raises(BadInput, match=r"^x:"):
        within_levels([1], [1, 2], [1])
    with pytest.raises(BadInput, match=r"^y:"):
        within_levels([1, 2], [1], [1])
    two = correlate([1, 2], [1, 2])
    assert (two.r, two.n) == (pytest.approx(1), 2)
    assert math.isnan(two.p)  # no degree of freedom is left


def test_too_few_values_and_levels_of_another_number_are_refused() -> None:
    with pytest.raises(BadInput, match=r"^x: .*at least 2"):
        within([1.0], [1.0, 2.0], [0, 0])
    with pytest.raises(BadInput, match=r"^y: .*at least 2"):
        within([1.0, 2.0], [1.0], [0, 0])
    assert within([1.0, 2.0], [1.0, 3.0], [0, 0]) == pytest.approx(1)
    with pytest.raises(BadInput, match="as many levels"):
        within([1.0, 2.0], [1.0, 2.0, 3.0], [0, 0])


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
    assert math.isnan(within(x, level, level))
    assert math.isnan(pearson(np.full(60, 0.1), y))
    # What rounding leaves of constants far from zero is no variation, a small variation there is.
    assert math.isnan(within(1e9 * level + 0.1, y, level))
    assert math.isnan(within(y, 1e9 * level + 0.1, level))
    assert within(1e3 * level + 1e-6 * x, y, level) == pytest.approx(within(x, y, level), abs=1e-3)
    with pytest.raises(BadInput):
        within(x, y, level[:5])
