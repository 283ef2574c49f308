"""Chao's estimate of how many kinds there are."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from neurotest.stats.diversity import chao1


def test_by_hand() -> None:
    """Six kinds, three seen once, two twice, twelve in all: 11/12 * 3 * 2 / (2 * 3) = 0.9167 more."""
    assert chao1([1, 1, 1, 2, 2, 5]).value == pytest.approx(6 + 11 / 12)
    assert chao1([2, 3]) == (2, 2, 2)  # nothing was seen once
    assert chao1([]) == (0, 0, 0)
    assert chao1([0, 0, 4]).value == 1


def test_the_variance_is_that_of_a_simulation() -> None:
    """Sixty kinds of unequal frequency, 150 samples: the estimate is near the truth, and its interval covers it as it says."""
    random = np.random.default_rng(0)
    shares = random.dirichlet(np.full(60, 3.0))
    estimates = [chao1(np.bincount(random.choice(60, 150, p=shares), minlength=60).tolist()) for _ in range(300)]
    assert np.mean([e.value for e in estimates]) == pytest.approx(60, rel=0.08)
    assert np.mean([e.low <= 60 <= e.high for e in estimates]) > 0.85


@given(st.lists(st.integers(0, 9), max_size=40))
def test_it_is_never_below_what_was_seen_and_inside_its_interval(counts: list[int]) -> None:
    estimate = chao1(counts)
    assert sum(n > 0 for n in counts) <= estimate.low <= estimate.value <= estimate.high
