"""Fault metrics: by hand, by plain loops, and what must hold for every order."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neurotest.errors import BadInput
from neurotest.stats import faults as metric

ORDER = np.array([1, 0, 1, 0, 0], dtype=bool)  # faults at ranks 1 and 3 of 5
orders = st.lists(st.booleans(), min_size=1, max_size=60)
typed = st.lists(st.integers(-1, 6), min_size=1, max_size=80)


# by hand


def test_fdr_by_hand() -> None:
    assert metric.fdr(ORDER, 1) == 1.0
    assert metric.fdr(ORDER, 2) == 0.5
    assert metric.fdr(ORDER, 5) == 0.4


def test_relative_fdr_divides_by_what_was_possible() -> None:
    assert metric.relative_fdr(ORDER, 1) == 1.0
    assert metric.relative_fdr(ORDER, 2) == 0.5
    assert metric.relative_fdr(ORDER, 5) == 1.0
    assert math.isnan(metric.relative_fdr([False, False], 1))


def test_apfd_by_hand() -> None:
    # 1 - (1 + 3) / (2 * 5) + 1 / 10
    assert metric.apfd(ORDER) == pytest.approx(0.7)
    assert metric.apfd([True]) == pytest.approx(0.5)
    assert math.isnan(metric.apfd([False, False, False]))


def test_fault_types_by_hand() -> None:
    # 0->1 twice, 2->0 once, 1->1 is no fault
    assert metric.fault_types([0, 1, 2, 0], [1, 1, 0, 1]).tolist() == [1, -1, 6, 1]
    assert metric.fault_types([0, 1, 2, 0], [1, 1, 0, 1], classes=10).tolist() == [1, -1, 20, 1]
    assert metric.fault_types([], []).tolist() == []


def test_ftcr_by_hand() -> None:
    types = [5, -1, 5, 7, 9]  # three types, first at places 1, 4 and 5
    assert metric._ftcr_curve(types).tolist() == pytest.approx([1 / 3, 1 / 3, 1 / 3, 2 / 3, 1])
    assert metric.ftcr(types, 4) == pytest.approx(2 / 3)
    assert np.isnan(metric._ftcr_curve([-1, -1])).all()


def test_ftcr_auc_by_hand() -> None:
    # 10 inputs, budgets 1, 2, 3, 4 (10 % to 40 %); coverage there 0, 1/2, 1/2, 1; the ideal order has 1/2, 1, 1, 1
    types = [-1, 3, 3, 4, -1, -1, -1, -1, -1, -1]
    assert metric.ftcr_auc(types, to=0.4, step=0.1) == pytest.approx(0.5)
    assert metric.ftcr_auc(types, to=0.4, step=0.1, normalise="ideal") == pytest.approx(2.0 / 3.5)
    assert math.isnan(metric.ftcr_auc([-1] * 10))
    assert math.isnan(metric.ftcr_auc([-1] * 10, normalise="ideal"))


def test_ftcr_auc_uses_twenty_budgets_by_default() -> None:
    types = np.full(1000, -1)
    types[100] = 0  # the only fault stands at place 101: found from 11 % on, that is at 10 of 20 budgets
    assert metric.ftcr_auc(types) == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("asked", "n", "expected"),
    [
        ("5%", 10_000, 500),
        (" 5 % ", 10_000, 500),
        (0.05, 10_000, 500),
        ("0.05", 10_000, 500),
        (np.float64(0.05), 10_000, 500),
        (100, 10_000, 100),
        ("100", 100, 100),
        (np.int64(7), 10, 7),
        (2.0, 10, 2),
        ("100%", 3, 3),
        ("0.29", 50, 15),  # 14.5 exactly: halves go up, though 0.29 * 50 is a little less than that in floating point
        ("1%", 10, 1),  # less than one input is one input
        (1, 10, 1),
        ("2.5%", 1000, 25),
        ("1e2", 1000, 100),
    ],
)
def test_budget(asked: object, n: int, expected: int) -> None:
    assert metric.budget(asked, n) == expected


# plain loops


def loop_fdr(faults: list[bool], m: int) -> Fraction:
    hits = 0
    for i in range(m):
        if faults[i]:
            hits += 1
    return Fraction(hits, m)


def loop_apfd(faults: list[bool]) -> Fraction | None:
    ranks = 0
    total = 0
    for i, fault in enumerate(faults):
        if fault:
            ranks += i + 1
            total += 1
    n = len(faults)
    return 1 - Fraction(ranks, total * n) + Fraction(1, 2 * n) if total else None


def loop_ftcr(types: list[int], m: int) -> Fraction | None:
    seen, every = set(), set()
    for i, kind in enumerate(types):
        if kind >= 0:
            every.add(kind)
            if i < m:
                seen.add(kind)
    return Fraction(len(seen), len(every)) if every else None


def loop_auc(types: list[int], ideal: bool) -> Fraction | None:
    every = len({t for t in types if t >= 0})
    if not every:
        return None
    area = best = Fraction(0)
    for percent in range(1, 21):
        m = max(1, math.floor(Fraction(percent * len(types), 100) + Fraction(1, 2)))
        share = loop_ftcr(types, m)
        assert share is not None
        area += share
        best += min(Fraction(m, every), Fraction(1))
    return area / best if ideal else area / 20


def same(value: float, expected: Fraction | None) -> bool:
    return math.isnan(value) if expected is None else value == pytest.approx(float(expected), abs=1e-12)


@given(orders, st.data())
@settings(deadline=None)
def test_fault_metrics_equal_plain_loops(faults: list[bool], data: st.DataObject) -> None:
    m = data.draw(st.integers(1, len(faults)))
    assert same(metric.fdr(faults, m), loop_fdr(faults, m))
    assert same(metric.apfd(faults), loop_apfd(faults))
    total = sum(faults)
    assert same(metric.relative_fdr(faults, m), loop_fdr(faults, m) * m / min(m, total) if total else None)


@given(typed, st.data())
@settings(deadline=None)
def test_type_metrics_equal_plain_loops(types: list[int], data: st.DataObject) -> None:
    m = data.draw(st.integers(1, len(types)))
    assert same(metric.ftcr(types, m), loop_ftcr(types, m))
    assert same(metric.ftcr_auc(types), loop_auc(types, ideal=False))
    assert same(metric.ftcr_auc(types, normalise="ideal"), loop_auc(types, ideal=True))


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=50))
@settings(deadline=None)
def test_fault_types_tell_pairs_apart_exactly(pairs: list[tuple[int, int]]) -> None:
    ids = metric.fault_types(np.array([t for t, _ in pairs], dtype=int), np.array([p for _, p in pairs], dtype=int))
    for i, (true, pred) in enumerate(pairs):
        assert (ids[i] == -1) == (true == pred)
        for j, other in enumerate(pairs):
            if true != pred and other[0] != other[1]:
                assert (ids[i] == ids[j]) == ((true, pred) == other)


# properties


@given(orders)
@settings(deadline=None)
def test_apfd_is_highest_when_faults_come_first_and_mirrors_when_reversed(faults: list[bool]) -> None:
    total, n = sum(faults), len(faults)
    if not total:
        return
    assert metric.apfd(sorted(faults, reverse=True)) == pytest.approx(1 - total / (2 * n))
    assert metric.apfd(faults) <= metric.apfd(sorted(faults, reverse=True)) + 1e-12
    assert metric.apfd(faults) + metric.apfd(faults[::-1]) == pytest.approx(1)


@given(orders, st.data())
@settings(deadline=None)
def test_moving_a_fault_forward_never_lowers_a_metric(faults: list[bool], data: st.DataObject) -> None:
    places = [i for i in range(1, len(faults)) if faults[i] and not faults[i - 1]]
    if not places:
        return
    i = data.draw(st.sampled_from(places))
    better = [*faults]
    better[i - 1], better[i] = True, False
    m = data.draw(st.integers(1, len(faults)))
    assert metric.apfd(better) > metric.apfd(faults)
    assert metric.fdr(better, m) >= metric.fdr(faults, m)
    assert metric.relative_fdr(better, m) >= metric.relative_fdr(faults, m)


@given(orders, st.data())
@settings(deadline=None)
def test_fdr_ignores_the_order_inside_and_outside_the_budget(faults: list[bool], data: st.DataObject) -> None:
    m = data.draw(st.integers(1, len(faults)))
    shuffled = data.draw(st.permutations(faults[:m])) + data.draw(st.permutations(faults[m:]))
    assert metric.fdr(shuffled, m) == metric.fdr(faults, m)
    assert metric.fdr(faults, len(faults)) == pytest.approx(sum(faults) / len(faults))
    assert 0 <= metric.fdr(faults, m) <= min(1.0, sum(faults) / m)


@given(typed)
@settings(deadline=None)
def test_type_coverage_rises_to_one_and_the_ideal_order_reaches_the_ideal(types: list[int]) -> None:
    curve = metric._ftcr_curve(types)
    kinds = sorted({t for t in types if t >= 0})
    if not kinds:
        return
    assert (np.diff(curve) >= 0).all()
    assert curve[-1] == 1
    rest = [*types]
    for kind in kinds:
        rest.remove(kind)
    assert metric.ftcr_auc(kinds + rest, normalise="ideal") == pytest.approx(1)
    assert metric.ftcr_auc(types, normalise="ideal") <= 1 + 1e-12
    assert metric.ftcr_auc([9 * t if t >= 0 else t for t in types]) == metric.ftcr_auc(types)  # names do not matter


@given(st.integers(1, 10_000), st.integers(1, 100))
@settings(deadline=None)
def test_a_budget_in_percent_never_leaves_the_pool(n: int, percent: int) -> None:
    m = metric.budget(f"{percent}%", n)
    assert 1 <= m <= n
    assert abs(m - n * percent / 100) <= max(0.5, 1 - n * percent / 100)


def test_the_types_of_one_call_are_numbered_by_the_largest_class() -> None:
    # Classes 0 to 2 occur: 1 -> 2 is 1 * 3 + 2; with classes=3 it is the same.
    assert metric.fault_types([1, 0], [2, 0]).tolist() == metric.fault_types([1, 0], [2, 0], classes=3).tolist() == [5, -1]
    assert metric.fault_types(np.array([1], dtype=np.uint8), np.array([200], dtype=np.uint8)).tolist() == [401]
    assert metric.fault_types([], []).dtype == np.int64


def test_the_edges_of_a_budget() -> None:
    assert metric.budget("100%", 1) == metric.budget(1, 1) == metric.budget("0.01", 1) == 1
    assert metric.budget("0.999", 1000) == 999
    assert metric.budget("0.5%", 100) == 1  # exactly one half of an input
    assert metric.budget("100", 100) == 100
    assert metric.ftcr_auc([0, 1], to=1, step=1) == 1
    assert metric.ftcr_auc([0, 1], to=0.5, step=0.5) == 0.5
    assert metric.fdr([1, 0, 1], 3) == pytest.approx(2 / 3)
    assert metric.fdr([1, 0, 1], np.int64(1)) == 1  # type: ignore[arg-type]


def test_the_area_has_its_defaults() -> None:
    types = np.random.default_rng(0).integers(-1, 9, 300)
    assert metric.ftcr_auc(types) == metric.ftcr_auc(types, to=0.2, step=0.01, normalise="mean")


# bad input


@pytest.mark.parametrize("m", [0, -1, 6, 1.5, True])
def test_a_count_outside_the_order_is_refused(m: int) -> None:
    with pytest.raises(BadInput, match="from 1 to 5"):
        metric.fdr(ORDER, m)


@pytest.mark.parametrize("faults", [[], [[True]], [0, 2], [0.5]])
def test_faults_that_are_no_row_of_yes_and_no_are_refused(faults: list[object]) -> None:
    with pytest.raises(BadInput, match="faults_in_order"):
        metric.apfd(faults)  # type: ignore[arg-type]


@pytest.mark.parametrize("types", [[], [[1]], [0.5]])
def test_types_that_are_no_row_of_numbers_are_refused(types: list[object]) -> None:
    with pytest.raises(BadInput, match="types_in_order"):
        metric._ftcr_curve(types)  # type: ignore[arg-type]


@pytest.mark.parametrize(("true", "pred"), [([0], [0, 1]), ([-1], [0]), ([0.0], [1.0]), ([[0]], [[0]])])
def test_labels_that_are_no_classes_are_refused(true: list[object], pred: list[object]) -> None:
    with pytest.raises(BadInput):
        metric.fault_types(true, pred)  # type: ignore[arg-type]


def test_too_few_classes_are_refused() -> None:
    with pytest.raises(BadInput, match="classes=3"):
        metric.fault_types([0], [3], classes=3)
    with pytest.raises(BadInput, match="at least 4"):
        metric.fault_types([3], [0], classes=2)


NO_BUDGET = [
    *(0, "0", "0%", -1, "-5%", 101, "101%", "200", 1.5, "1.5", math.nan, math.inf, None, True, [5]),
    *("", "%", "five", "5%%", "nan", "inf", "1e999999999", "1e999999999%", "5 inputs"),
]


@pytest.mark.parametrize("asked", NO_BUDGET)
def test_a_budget_that_means_nothing_is_refused(asked: object) -> None:
    with pytest.raises(BadInput, match=r"^budget="):
        metric.budget(asked, 100)


@pytest.mark.parametrize("asked", [1.0, "1.0"])
def test_a_budget_of_one_point_zero_is_not_guessed(asked: object) -> None:
    with pytest.raises(BadInput, match="Write 1 or 100%"):
        metric.budget(asked, 100)


def test_a_budget_of_an_empty_pool_is_refused() -> None:
    with pytest.raises(BadInput, match="empty"):
        metric.budget("5%", 0)


@pytest.mark.parametrize("options", [{"step": 0.0}, {"step": 0.3}, {"to": 1.5}, {"normalise": "best"}])
def test_an_area_that_cannot_be_is_refused(options: dict[str, object]) -> None:
    with pytest.raises(BadInput):
        metric.ftcr_auc([1, 2], **options)  # type: ignore[arg-type]
