"""Counting distinct things: exact while they are few, within the stated error beyond, the same in halves."""

from __future__ import annotations

from hashlib import blake2b

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from neurotest.stats.diversity import Distinct, Hashes, as_hashes


def hashed(numbers: list[int]) -> Hashes:
    return as_hashes([blake2b(number.to_bytes(8), digest_size=16).digest() for number in numbers])


def counted(capacity: int, *parts: list[int]) -> Distinct:
    one = Distinct(capacity)
    for part in parts:
        one.add(hashed(part))
    return one


def test_by_hand() -> None:
    """Four hashes at 1/8, 1/4, 1/2 and 3/4 with room for three: (3 - 1) / (1/2) = 4."""
    at = [bytes([128 // 4]), bytes([64]), bytes([128]), bytes([192])]
    one = Distinct(3)
    one.add(as_hashes([first.ljust(16, b"\0") for first in at[:2]]))
    assert (one.count(), one.estimated) == (2, False)
    assert one.gains(as_hashes([at[3].ljust(16, b"\0"), at[0].ljust(16, b"\0")])).tolist() == [1, 0]  # three or more, not less
    one.add(as_hashes([first.ljust(16, b"\0") for first in at]))
    assert (one.count(), one.estimated) == (4, True)
    assert len(one.hashes) == 3


def test_below_the_capacity_it_is_exact() -> None:
    numbers = [n % 70 for n in range(400)]
    assert counted(100, numbers).count() == 70
    assert counted(100, numbers).error == 0


@pytest.mark.parametrize("seen", [2_000, 20_000])
def test_beyond_the_count_is_within_its_error(seen: int) -> None:
    """Forty disjoint sets: the mean is near, and the spread is what is said (of 40, give or take a third)."""
    counts = [counted(500, list(range(a * seen, (a + 1) * seen))).count() / seen for a in range(40)]
    error = counted(500, list(range(seen))).error
    assert abs(np.mean(counts) - 1) < 4 * error / np.sqrt(40)
    assert 0.6 * error < np.std(counts) < 1.5 * error


numbers = st.lists(st.integers(0, 60), max_size=80)


@given(numbers, numbers, st.integers(3, 40))
def test_halves_merged_are_the_whole_and_a_plain_set_agrees(first: list[int], second: list[int], capacity: int) -> None:
    whole, half = counted(capacity, first + second), counted(capacity, first)
    half.merge(counted(capacity, second))
    assert whole.hashes.tolist() == half.hashes.tolist()
    plain = sorted({h.ljust(16, b"\0") for h in hashed(first + second).tolist()})[:capacity]
    assert [h.ljust(16, b"\0") for h in whole.hashes.tolist()] == plain
    assert whole.count() == half.count()


@given(numbers, numbers, st.integers(3, 40))
def test_a_gain_is_the_rise_of_the_count(first: list[int], more: list[int], capacity: int) -> None:
    one = counted(capacity, first)
    rises = [counted(capacity, first, [number]).count() - one.count() for number in more]
    assert one.gains(hashed(more)).tolist() == rises
    assert min(rises, default=0) >= 0
