"""Intervals: by hand, against plain loops and scipy, and what must hold for all of them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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
        left, found = m, 0
        for fault, weight in zip(faults, generator.multinomial(n, np.full(n, 1 / n)), strict=True):
            taken = min(left, int(weight))
            found += taken * int(fault)
            left -= taken
        rates.append(found / m)
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
        found = bootstrap.fdr_interval(faults, m, draws=6000, level=level)
        low, high = np.quantile(looped, [(1 - level) / 2, (1 + level) / 2])
        assert found.value == fdr(faults, m)
        assert found.low == pytest.approx(low, abs=1.01 / m if m > 1 else 0)
        assert found.high == pytest.approx(high, abs=1.01 / m if m > 1 else 0)


def test_fdr_interval_does_not_depend_on_how_the_draws_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    faults = np.random.default_rng(0).random(200) < 0.3
    whole = bootstrap.fdr_interval(faults, 50, draws=4000)
    monkeypatch.setattr(bootstrap, "CHUNK", 700)
    cut = bootstrap.fdr_interval(faults, 50, draws=4000)
    assert cut == pytest.approx(whole, abs=0.021)


def test_fdr_interval_covers_the_true_rate_about_as_often_as_it_says() -> None:
    generator = np.random.default_rng(3)
    hits = 0
    for trial in range(200):
        scores = generator.random(400)
        faults = generator.random(400) < scores
        order = np.argsort(-scores, kind="stable")
        found = bootstrap.fdr_interval(faults[order], 40, draws=300, seed=trial)
        hits += found.low <= 0.95 <= found.high  # the mean score of the highest tenth
    assert hits >= 175


@given(st.integers(1, 60), st.data())
@settings(max_examples=40, deadline=None)
def test_random_fdr_equals_scipy(n: int, data: st.DataObject) -> None:
    from scipy.stats import hypergeom

    faults = data.draw(st.integers(0, n))
    m = data.draw(st.integers(1, n))
    level = data.draw(st.sampled_from([0.5, 0.9, 0.951]))
    found = bootstrap.random_fdr(n, faults, m, level=level)
    low, high = hypergeom(n, faults, m).ppf([(1 - level) / 2, (1 + level) / 2])
    assert found.value == pytest.approx(faults / n)
    for ours, theirs, share in ((found.low, low, (1 - level) / 2), (found.high, high, (1 + level) / 2)):
        # A quantile that sits on a step to the last digit may fall on either side of it.
        on_a_step = hypergeom(n, faults, m).cdf(min(theirs, ours * m)) == pytest.approx(share)
        assert on_a_step or ours == pytest.approx(max(theirs, 0) / m)


def test_random_fdr_of_a_large_pool_equals_scipy() -> None:
    from scipy.stats import hypergeom

    found = bootstrap.random_fdr(100_000, 18_600, 5_000)
    assert found == pytest.approx((0.186, *(hypergeom(100_000, 18_600, 5_000).ppf([0.025, 0.975]) / 5_000)))


def test_mean_interval_equals_the_normal_one_for_many_values() -> None:
    values = np.random.default_rng(0).normal(5, 2, 2000)
    found = bootstrap.mean_interval(values, draws=4000)
    half = 1.96 * values.std() / math.sqrt(2000)
    assert found == pytest.approx((values.mean(), values.mean() - half, values.mean() + half), abs=0.012)


def test_wilson_equals_scipy() -> None:
    from scipy.stats import binomtest

    for k, m in [(0, 7), (1, 7), (30, 500), (499, 500), (500, 500)]:
        low, high = binomtest(k, m).proportion_ci(method="wilson")
        assert bootstrap.wilson(k, m) == pytest.approx((k / m, low, high), abs=1e-9)


def test_random_orders_have_a_mean_apfd_of_one_half() -> None:
    faults = np.arange(200) < 40
    found = bootstrap.random_interval(apfd, faults, draws=800)
    assert found.value == pytest.approx(0.5, abs=0.005)
    assert found.low < 0.45 < 0.55 < found.high


def test_random_orders_give_the_closed_form_of_fdr() -> None:
    faults = np.arange(100) < 20
    shuffled = bootstrap.random_interval(lambda order: fdr(order, 25), faults, draws=4000)
    assert shuffled == pytest.approx(bootstrap.random_fdr(100, 20, 25), abs=0.041)


# properties


@given(orders, st.data())
@settings(max_examples=40, deadline=None)
def test_every_interval_is_ordered_repeatable_and_within_bounds(faults: list[bool], data: st.DataObject) -> None:
    m = data.draw(st.integers(1, len(faults)))
    found = bootstrap.fdr_interval(faults, m, draws=50, seed=4)
    assert found == bootstrap.fdr_interval(faults, m, draws=50, seed=4)
    assert 0 <= found.low <= found.high <= 1
    random = bootstrap.random_fdr(len(faults), sum(faults), m)
    assert 0 <= random.low <= random.high <= 1
    sure = bootstrap.wilson(sum(faults[:m]), m)
    assert 0 <= sure.low <= sure.value <= sure.high <= 1


@given(st.lists(st.integers(-1, 5), min_size=5, max_size=60))
@settings(max_examples=30, deadline=None)
def test_the_interval_of_an_order_metric_holds_its_value(types: list[int]) -> None:
    found = bootstrap.order_interval(ftcr_auc, types, draws=40)
    if max(types) < 0:
        assert math.isnan(found.value)
    else:
        assert found.low <= found.value <= found.high


def test_another_seed_gives_other_draws() -> None:
    faults = np.random.default_rng(0).random(500) < 0.5
    assert bootstrap.mean_interval(faults, seed=1) != bootstrap.mean_interval(faults, seed=2)


# bad input


@pytest.mark.parametrize("values", [[], [math.nan], [math.inf, 1], [[1.0]]])
def test_values_without_a_mean_are_refused(values: list[float]) -> None:
    with pytest.raises(BadInput, match="finite"):
        bootstrap.mean_interval(values)


@pytest.mark.parametrize("options", [{"draws": 0}, {"level": 0.0}, {"level": 1.0}, {"level": 95}])
def test_impossible_settings_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(BadInput, match=next(iter(options))):
        bootstrap.fdr_interval([True], 1, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(("k", "m"), [(-1, 5), (6, 5), (0, 0)])
def test_more_hits_than_tries_are_refused(k: int, m: int) -> None:
    with pytest.raises(BadInput, match="k="):
        bootstrap.wilson(k, m)


@pytest.mark.parametrize(("n", "faults", "m"), [(0, 0, 1), (5, 6, 1), (5, -1, 1), (5, 1, 0), (5, 1, 6)])
def test_an_impossible_pool_is_refused(n: int, faults: int, m: int) -> None:
    with pytest.raises(BadInput):
        bootstrap.random_fdr(n, faults, m)


def test_an_empty_order_is_refused() -> None:
    with pytest.raises(BadInput, match="empty"):
        bootstrap.order_interval(apfd, [])
    with pytest.raises(BadInput, match="empty"):
        bootstrap.random_interval(apfd, [])
