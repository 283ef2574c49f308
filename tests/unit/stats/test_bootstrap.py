"""Intervals: by hand, against plain loops and scipy, and what must hold for all of them."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.refusals import refused

from neurotest.errors import BadInput
from neurotest.stats import bootstrap
from neurotest.stats.faults import apfd, fdr, ftcr_auc

orders = st.lists(st.booleans(), min_size=1, max_size=40)


def loop_resamples(faults: np.ndarray, m: int, draws: int) -> np.ndarray:
    """FDR of resamples by multinomial weights and a walk down the ranking."""
    generator = np.random.default_rng(1)
    n = len(faults)
    rates = []
    for _ in range(draws):
        left, hits = m, 0
        for fault, weight in zip(faults, generator.multinomial(n, np.full(n, 1 / n)), strict=True):
            taken = min(left, int(weight))
            hits += taken * int(fault)
            left -= taken
        rates.append(hits / m)
    return np.array(rates)


# by hand


def test_wilson_by_hand() -> None:
    # k = 5 of 10, z = 1.959964: centre 1/2, half width z / (1 + z^2/10) * sqrt(1/40 + z^2/400)
    assert bootstrap.wilson(5, 10) == pytest.approx((0.5, 0.2365931, 0.7634069), abs=1e-6)
    # k = 0 of 10: upper end z^2 / (10 + z^2)
    assert bootstrap.wilson(0, 10) == pytest.approx((0.0, 0.0, 0.2775328), abs=1e-6)
    assert bootstrap.wilson(10, 10) == pytest.approx((1.0, 0.7224672, 1.0), abs=1e-6)


def test_random_fdr_by_hand() -> None:
    # 2 of 4 are faults, 2 are taken: none, one, two faults with 1/6, 4/6, 1/6
    assert bootstrap.random_fdr(4, 2, 2) == (0.5, 0.0, 1.0)
    assert bootstrap.random_fdr(4, 2, 2, level=0.6) == (0.5, 0.5, 0.5)
    assert bootstrap.random_fdr(4, 0, 2) == (0.0, 0.0, 0.0)
    assert bootstrap.random_fdr(4, 4, 2) == (1.0, 1.0, 1.0)
    assert bootstrap.random_fdr(4, 2, 4) == (0.5, 0.5, 0.5)


def test_mean_interval_of_equal_values_is_that_value() -> None:
    assert bootstrap.mean_interval([3.0]) == (3.0, 3.0, 3.0)
    assert bootstrap.mean_interval([2.0, 2.0, 2.0]) == (2.0, 2.0, 2.0)


def test_an_order_of_nothing_but_faults_has_no_width() -> None:
    assert bootstrap.fdr_interval([True] * 20, 5) == (1.0, 1.0, 1.0)
    assert bootstrap.fdr_interval([False] * 20, 5) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize("draws", [1, 2, 7])
def test_every_draw_counts_however_few(draws: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for chunk in (1 << 22, 40, 1):  # all draws at once, two at a time, one at a time
        monkeypatch.setattr(bootstrap, "CHUNK", chunk)
        assert bootstrap.fdr_interval([True] * 20, 20, draws=draws) == (1.0, 1.0, 1.0)
        assert bootstrap.mean_interval([3.0] * 20, draws=draws) == (3.0, 3.0, 3.0)


def test_one_draw_is_both_ends() -> None:
    faults = np.arange(40) % 3 == 0
    one = bootstrap.fdr_interval(faults, 15, draws=1)
    assert one.low == one.high
    mean = bootstrap.mean_interval(faults, draws=1)
    assert mean.low == mean.high
    random = bootstrap.random_interval(apfd, faults, draws=1)
    assert random.low == random.value == random.high
    order = bootstrap.order_interval(apfd, faults, draws=1)
    assert order.value == apfd(faults)
    assert order.low < order.high  # from the value to the one resample
    assert order.value in (order.low, order.high)


def test_draws_without_a_value_are_left_out() -> None:
    # Of three inputs one is a fault: 8 of 27 resamples hold none, and APFD is not defined there.
    interval = bootstrap.order_interval(apfd, [False, True, False], draws=200)
    assert not any(map(math.isnan, interval))
    assert interval.value == 0.5
    assert bootstrap.random_interval(lambda items: math.nan if items[0] else 2.0, [True, False]) == (2.0, 2.0, 2.0)


def test_resamples_equal_to_the_value_count_half() -> None:
    """Is input 0 of 12 there? In 65 % of resamples: 35 % + 65 % / 2 lie below the value, a bias of 0.91 standard deviations."""

    def there(items: np.ndarray) -> float:
        return float(0 in items)

    # The lower end is the percentile of 0.91 - z: no resample of the lowest 35 % is in it while z < 1.29.
    ends = [bootstrap.order_interval(there, np.arange(12), draws=3000, level=level).low for level in (0.6, 0.7, 0.86, 0.9)]
    assert ends == [1, 1, 0, 0]


def test_the_defaults_are_those_of_the_documents() -> None:
    faults = np.random.default_rng(0).random(60) < np.linspace(0.9, 0.1, 60)
    same = {"level": 0.95, "seed": 0}
    assert bootstrap.fdr_interval(faults, 20) == bootstrap.fdr_interval(faults, 20, draws=2000, **same)
    assert bootstrap.mean_interval(faults) == bootstrap.mean_interval(faults, draws=2000, **same)
    assert bootstrap.order_interval(apfd, faults) == bootstrap.order_interval(apfd, faults, draws=500, **same)
    assert bootstrap.random_interval(apfd, faults) == bootstrap.random_interval(apfd, faults, draws=500, **same)
    assert bootstrap.wilson(3, 9) == bootstrap.wilson(3, 9, level=0.95)
    assert bootstrap.random_fdr(100, 30, 20) == bootstrap.random_fdr(100, 30, 20, level=0.95)


def test_metrics_without_faults_have_no_interval() -> None:
    assert all(map(math.isnan, bootstrap.order_interval(apfd, [False] * 5, draws=5)))
    assert all(map(math.isnan, bootstrap.random_interval(apfd, [False] * 5, draws=5)))


# plain loops, and other people's


@pytest.mark.parametrize("m", [1, 7, 30, 60])
def test_fdr_interval_has_the_distribution_of_multinomial_weights(m: int) -> None:
    generator = np.random.default_rng(0)
    faults = generator.random(60) < np.linspace(0.9, 0.1, 60)
    looped = loop_resamples(faults, m, 3000)
    for level in (0.5, 0.8, 0.95):
        interval = bootstrap.fdr_interval(faults, m, draws=6000, level=level)
        low, high = np.quantile(looped, [(1 - level) / 2, (1 + level) / 2])
        assert interval.value == fdr(faults, m)
        assert interval.low == pytest.approx(low, abs=1.01 / m if m > 1 else 0)
        assert interval.high == pytest.approx(high, abs=1.01 / m if m > 1 else 0)


def test_fdr_interval_does_not_depend_on_how_the_draws_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    faults = np.random.default_rng(0).random(200) < 0.3
    whole = bootstrap.fdr_interval(faults, 50, draws=4000)
    monkeypatch.setattr(bootstrap, "CHUNK", 700)
    cut = bootstrap.fdr_interval(faults, 50, draws=4000)
    assert cut == pytest.approx(whole, abs=0.021)


@pytest.mark.parametrize(("faults", "m"), [("1101000", 3), ("1010100", 5), ("1100110", 1), ("0111001", 7)])
def test_fdr_interval_ends_at_the_quantiles_of_every_possible_resample(faults: str, m: int) -> None:
    """All n^n resamples of a small pool, written out: the interval may be neither wider nor narrower than they are."""
    pool, draws = np.array([c == "1" for c in faults]), 20_000
    n = len(pool)
    resamples = np.sort(np.indices((n,) * n).reshape(n, -1), axis=0)  # (n, n^n) places, best first
    hits = np.bincount(pool[resamples[:m]].sum(axis=0), minlength=m + 1)
    below = np.cumsum(hits) / n**n
    checked = 0
    for level in np.arange(0.02, 1, 0.02):
        share = (1 - level) / 2
        # A quantile nearer than five standard errors to a step of the distribution may fall on either side of it.
        if min(np.abs(np.concatenate([below - share, below - (1 - share)]))) < 5 * math.sqrt(0.25 / draws):
            continue
        interval = bootstrap.fdr_interval(pool, m, draws=draws, level=level)
        expected = (np.searchsorted(below, share) / m, np.searchsorted(below, 1 - share) / m)
        assert interval == pytest.approx((pool[:m].mean(), *expected))
        checked += 1
    assert checked >= 10


@pytest.mark.parametrize("level", [0.5, 0.8, 0.95])
def test_fdr_interval_covers_the_true_rate_as_often_as_it_says(level: float) -> None:
    """Scores are uniform and the chance of a fault, so the first tenth holds 95 % faults, the first fifth 90 %."""
    generator = np.random.default_rng(3)
    trials, n = 400, 2000
    for share, truth in ((0.1, 0.95), (0.2, 0.9)):
        m, hits = int(share * n), 0.0
        for trial in range(trials):
            scores = -np.sort(-generator.random(n))
            interval = bootstrap.fdr_interval(generator.random(n) < scores, m, draws=300, level=level, seed=trial)
            # Rates go in steps of 1 / m: an end stands for half a step to either side of it.
            inner = interval.low + 0.5 / m <= truth <= interval.high - 0.5 / m
            hits += inner or (interval.low - 0.5 / m <= truth <= interval.high + 0.5 / m) * 0.5
        # Three standard errors of the count, and what 300 draws leave uncertain of the two ends.
        error = math.sqrt(level * (1 - level) / trials) + math.sqrt(level * (1 - level) / 300 / 2)
        assert hits / trials == pytest.approx(level, abs=3 * error)


@pytest.mark.parametrize("level", [0.5, 0.9])
def test_order_interval_is_moved_against_the_bias(level: float) -> None:
    """The variance of a resample is too small by (n - 1) / n on average: Efron's BC takes later percentiles instead."""
    values, draws, normal = np.random.default_rng(2).normal(0, 1, 15), 4000, NormalDist()
    samples = np.var(np.random.default_rng(5).choice(values, (100_000, 15)), axis=1)
    bias = normal.inv_cdf(float(np.mean(samples < np.var(values))))
    assert bias > 0.2
    interval = bootstrap.order_interval(np.var, values, draws=draws, level=level)
    assert interval.value == np.var(values)
    for end, sign in ((interval.low, -1), (interval.high, 1)):
        z = 2 * bias + sign * normal.inv_cdf((1 + level) / 2)
        share = normal.cdf(z)
        # Standard errors: of a percentile of so many draws, and of the bias (a share near a half) times the slope at z.
        error = math.hypot(math.sqrt(share * (1 - share) / draws), 2 * math.sqrt(0.25 / draws) / normal.pdf(0) * normal.pdf(z))
        assert float(np.mean(samples < end)) == pytest.approx(share, abs=3 * error)
        assert share - (1 + sign * level) / 2 > 6 * error  # uncorrected percentiles are far outside of that


@pytest.mark.parametrize("sign", [1, -1])
def test_the_correction_of_an_order_interval_that_lies_on_one_side_is_that_of_half_a_resample(sign: int) -> None:
    """None of 20 is counted as half of one: 2.5 %, so that the correction is as long as the reach of the interval."""
    values: list[float] = []

    def distinct(items: np.ndarray) -> float:
        values.append(sign * float(len(np.unique(items))))
        return values[-1]

    interval = bootstrap.order_interval(distinct, np.arange(60), draws=20)
    resamples = values[:20]
    assert (interval.value, values[20:]) == (sign * 60, [sign * 60])
    assert interval[1:] == pytest.approx(
        (np.quantile(resamples, 0.975), 60) if sign > 0 else (-60, np.quantile(resamples, 0.025)), rel=1e-6
    )


def test_order_interval_of_what_every_resample_underestimates() -> None:
    """How many different inputs there are: resamples hold about 63 % of them, so the interval starts at their top."""
    interval = bootstrap.order_interval(lambda items: float(len(np.unique(items))), np.arange(60), draws=300)
    assert interval.high == interval.value == 60
    assert 0.7 * 60 < interval.low < 60  # 3.3 standard deviations above the mean of a resample, 38.1 with 2.6
    mirrored = bootstrap.order_interval(lambda items: -float(len(np.unique(items))), np.arange(60), draws=300)
    assert mirrored.low == mirrored.value == -60
    assert -60 < mirrored.high < -0.7 * 60


@given(st.integers(1, 60), st.data())
@settings(max_examples=40, deadline=None)
def test_random_fdr_equals_scipy(n: int, data: st.DataObject) -> None:
    from scipy.stats import hypergeom

    faults = data.draw(st.integers(0, n))
    m = data.draw(st.integers(1, n))
    level = data.draw(st.sampled_from([0.5, 0.9, 0.951]))
    interval = bootstrap.random_fdr(n, faults, m, level=level)
    low, high = hypergeom(n, faults, m).ppf([(1 - level) / 2, (1 + level) / 2])
    assert interval.value == pytest.approx(faults / n)
    for ours, theirs, share in ((interval.low, low, (1 - level) / 2), (interval.high, high, (1 + level) / 2)):
        # A quantile that sits on a step to the last digit may fall on either side of it.
        on_a_step = hypergeom(n, faults, m).cdf(min(theirs, ours * m)) == pytest.approx(share)
        assert on_a_step or ours == pytest.approx(max(theirs, 0) / m)


def test_random_fdr_of_a_large_pool_equals_scipy() -> None:
    from scipy.stats import hypergeom

    interval = bootstrap.random_fdr(100_000, 18_600, 5_000)
    assert interval == pytest.approx((0.186, *(hypergeom(100_000, 18_600, 5_000).ppf([0.025, 0.975]) / 5_000)))


def test_mean_interval_equals_the_normal_one_for_many_values() -> None:
    values = np.random.default_rng(0).normal(5, 2, 2000)
    interval = bootstrap.mean_interval(values, draws=4000)
    half = 1.96 * values.std() / math.sqrt(2000)
    assert interval == pytest.approx((values.mean(), values.mean() - half, values.mean() + half), abs=0.012)


def test_wilson_equals_scipy() -> None:
    from scipy.stats import binomtest

    for k, m in [(0, 7), (1, 7), (30, 500), (499, 500), (500, 500)]:
        low, high = binomtest(k, m).proportion_ci(method="wilson")
        assert bootstrap.wilson(k, m) == pytest.approx((k / m, low, high), abs=1e-9)


def test_random_orders_have_a_mean_apfd_of_one_half() -> None:
    faults = np.arange(200) < 40
    interval = bootstrap.random_interval(apfd, faults, draws=800)
    assert interval.value == pytest.approx(0.5, abs=0.005)
    assert interval.low < 0.45 < 0.55 < interval.high


def test_random_orders_give_the_closed_form_of_fdr() -> None:
    faults = np.arange(100) < 20
    shuffled = bootstrap.random_interval(lambda order: fdr(order, 25), faults, draws=4000)
    assert shuffled == pytest.approx(bootstrap.random_fdr(100, 20, 25), abs=0.041)


# properties


@given(orders, st.data())
@settings(max_examples=40, deadline=None)
def test_every_interval_is_ordered_repeatable_and_within_bounds(faults: list[bool], data: st.DataObject) -> None:
    m = data.draw(st.integers(1, len(faults)))
    interval = bootstrap.fdr_interval(faults, m, draws=50, seed=4)
    assert interval == bootstrap.fdr_interval(faults, m, draws=50, seed=4)
    assert 0 <= interval.low <= interval.high <= 1
    random = bootstrap.random_fdr(len(faults), sum(faults), m)
    assert 0 <= random.low <= random.high <= 1
    sure = bootstrap.wilson(sum(faults[:m]), m)
    assert 0 <= sure.low <= sure.value <= sure.high <= 1


@given(st.lists(st.integers(-1, 5), min_size=5, max_size=60))
@settings(max_examples=30, deadline=None)
def test_the_interval_of_an_order_metric_holds_its_value(types: list[int]) -> None:
    interval = bootstrap.order_interval(ftcr_auc, types, draws=40)
    if max(types) < 0:
        assert math.isnan(interval.value)
    else:
        assert interval.low <= interval.value <= interval.high


def test_another_seed_gives_other_draws() -> None:
    faults = np.random.default_rng(0).random(500) < 0.5
    assert bootstrap.mean_interval(faults, seed=1) != bootstrap.mean_interval(faults, seed=2)
    for interval in (bootstrap.order_interval, bootstrap.random_interval):
        assert interval(apfd, faults, draws=20, seed=1) != interval(apfd, faults, draws=20, seed=2)


# bad input


@pytest.mark.parametrize("values", [[], [math.nan], [math.inf, 1], [[1.0]]])
def test_values_without_a_mean_are_refused(values: list[float]) -> None:
    with refused("wrong-shape", "values"):
        bootstrap.mean_interval(values)


@pytest.mark.parametrize("options", [{"draws": 0}, {"level": 0.0}, {"level": 1.0}, {"level": 95}])
def test_impossible_settings_are_refused(options: dict[str, float]) -> None:
    with refused("out-of-range", next(iter(options))):
        bootstrap.fdr_interval([True], 1, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("options", [{"draws": 0}, {"level": 1.0}])
def test_impossible_settings_are_refused_everywhere(options: dict[str, float]) -> None:
    for interval in (bootstrap.order_interval, bootstrap.random_interval):
        with refused("out-of-range", next(iter(options))):
            interval(apfd, [True, False], **options)  # type: ignore[arg-type]
    with refused("out-of-range", next(iter(options))):
        bootstrap.mean_interval([1.0], **options)  # type: ignore[arg-type]


def test_impossible_levels_are_refused_by_closed_forms() -> None:
    with refused("out-of-range", "level"):
        bootstrap.wilson(1, 2, level=1.0)
    with refused("out-of-range", "level"):
        bootstrap.random_fdr(4, 2, 2, level=0.0)


@pytest.mark.parametrize(("k", "m"), [(-1, 5), (6, 5), (0, 0)])
def test_more_hits_than_tries_are_refused(k: int, m: int) -> None:
    with refused("out-of-range", "k"):
        bootstrap.wilson(k, m)


@pytest.mark.parametrize(("n", "faults", "m"), [(0, 0, 1), (5, 6, 1), (5, -1, 1), (5, 1, 0), (5, 1, 6)])
def test_an_impossible_pool_is_refused(n: int, faults: int, m: int) -> None:
    with pytest.raises(BadInput):
        bootstrap.random_fdr(n, faults, m)


def test_an_empty_order_is_refused() -> None:
    with refused("empty", "order"):
        bootstrap.order_interval(apfd, [])
    with refused("empty", "order"):
        bootstrap.random_interval(apfd, [])
    with refused("empty", "order"):
        bootstrap.order_interval(apfd, 1)
