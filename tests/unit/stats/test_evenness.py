"""Entropy and evenness of small histograms."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from neurotest.errors import BadInput
from neurotest.stats.diversity import entropy, evenness


def test_known_histograms() -> None:
    assert entropy([4, 4, 4, 4]) == pytest.approx(math.log(4))
    assert entropy([7, 0, 0]) == 0
    assert entropy([1, 3]) == pytest.approx(-(0.25 * math.log(0.25) + 0.75 * math.log(0.75)))
    assert entropy([1, 3], corrected=True) == pytest.approx(entropy([1, 3]) + 1 / 8)
    assert math.isnan(entropy([0, 0]))
    assert evenness([0, 1, 2, 3], 4) == pytest.approx(1)
    assert evenness([0, 1, 0, 1], 4) == pytest.approx(0.5)
    assert evenness([2, 2], 4) == 0
    assert evenness(np.array([], dtype=np.int64), 4) is None


@given(st.lists(st.integers(0, 5), min_size=1, max_size=60))
def test_between_0_and_1_and_blind_to_the_names_of_classes(numbers: list[int]) -> None:
    plain = evenness(numbers, 6)
    assert plain is not None
    assert 0 <= plain <= 1
    assert evenness([5 - n for n in numbers], 6) == pytest.approx(plain)
    corrected = evenness(numbers, 6, corrected=True)
    assert corrected is not None
    assert plain <= corrected <= 1


def test_two_classes_and_few_draws() -> None:
    assert evenness([0, 1], 2) == pytest.approx(1)
    assert evenness([0, 0, 0, 1], 2) == pytest.approx(entropy([3, 1]) / math.log(2))
    # Miller and Madow: one half of (2 seen classes - 1) / 4 draws more; classes that were not seen do not count.
    assert evenness([0, 0, 0, 1], 3, corrected=True) == pytest.approx((entropy([3, 1]) + 1 / 8) / math.log(3))
    assert evenness([0, 1], 2, corrected=True) == 1
    assert entropy([]) != entropy([])  # NaN
    assert evenness(np.array([2], dtype=np.uint8), 3) == 0
    assert math.copysign(1, entropy([7])) == 1  # not minus zero


def test_bad_input() -> None:
    for counts in ([[1, 2]], [math.nan], [math.inf, 1], [[-1]]):
        with pytest.raises(BadInput):
            entropy(counts)
    for numbers, classes in (([0, 4], 4), ([-1, 0], 4), ([0.5], 4), ([0], 1), ([[0]], 3)):
        with pytest.raises(BadInput):
            evenness(numbers, classes)
    with pytest.raises(BadInput):
        entropy([-1, 2])
