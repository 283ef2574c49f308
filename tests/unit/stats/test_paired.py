"""McNemar's exact test and the interval of a paired difference: by hand, against plain sums, and as properties."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest
from tests.refusals import refused

from neurotest.stats.comparison import mcnemar, paired_difference


def test_by_hand() -> None:
    assert mcnemar(0, 0) == 1
    assert mcnemar(1, 5) == pytest.approx(2 * (1 + 6) / 64)
    assert mcnemar(3, 3) == 1  # twice more than half is cut at 1
    apart = paired_difference(7, 3, 100)
    up, down = 8 / 102, 4 / 102
    half = 1.959964 * math.sqrt((up + down - (up - down) ** 2) / 102)
    assert apart.value == pytest.approx(0.04)
    assert (apart.low, apart.high) == pytest.approx((up - down - half, up - down + half), abs=1e-6)


@given(st.integers(0, 60), st.integers(0, 60))
def test_against_plain_sums_and_scipy(fixed: int, broken: int) -> None:
    total, tail = fixed + broken, 0.0
    for k in range(total + 1):
        if abs(k - total / 2) >= abs(fixed - total / 2):  # at least as uneven
            tail += math.comb(total, k) / 2**total
    assert mcnemar(fixed, broken) == pytest.approx(min(1.0, tail))
    if total:
        assert mcnemar(fixed, broken) == pytest.approx(binomtest(fixed, total).pvalue)


@given(st.integers(0, 300), st.integers(0, 300), st.integers(0, 3000))
def test_swapping_both_turns_the_sign(fixed: int, broken: int, rest: int) -> None:
    n = fixed + broken + rest + 1
    one, other = paired_difference(fixed, broken, n), paired_difference(broken, fixed, n)
    assert (one.value, one.low, one.high) == pytest.approx((-other.value, -other.high, -other.low), abs=1e-12)
    assert -1 <= one.low <= one.high <= 1
    assert mcnemar(fixed, broken) == mcnemar(broken, fixed)
    assert 0 < mcnemar(fixed, broken) <= 1


def test_many_inputs() -> None:
    assert mcnemar(600, 700) == pytest.approx(binomtest(600, 1300).pvalue, rel=1e-9)


@pytest.mark.parametrize("counts", [(-1, 2, 5), (4, 4, 5)])
def test_refusals(counts: tuple[int, int, int]) -> None:
    with refused("out-of-range", "fixed"):
        paired_difference(*counts)
