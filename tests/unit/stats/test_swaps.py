"""Kinds found by two searches from the same seeds, and what chance would put between them."""

from __future__ import annotations

from itertools import product

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from neurotest.stats.comparison import swap_interval

findings = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 8)), max_size=30)


def test_by_hand() -> None:
    """Seed 0 gives the left a kind of its own, seed 1 the right none: 2 against 0, and an exchange gives 2, 0, 0 or -2."""
    result = swap_interval([(0, "a"), (1, "b")], [])
    assert (result.left, result.right, result.difference) == (2, 0, 2)
    assert (result.low, result.high) == (-2.0, 2.0)
    assert result.larger is None  # of four exchanges two are as far apart
    many = swap_interval([(i, i) for i in range(40)], [])
    assert many.larger == "left"
    assert many.high < 20
    assert swap_interval([], [(i, i) for i in range(40)]).larger == "right"
    assert swap_interval([], []) == (0, 0, 0.0, 0.0)


@given(left=findings, right=findings)
@settings(max_examples=25, deadline=None)
def test_the_reach_is_that_of_all_exchanges(left: list[tuple[int, int]], right: list[tuple[int, int]]) -> None:
    """Written out: every exchange of at most six seeds, one after the other."""
    result = swap_interval(left, right, draws=6000)
    seeds = sorted({s for s, _ in left + right})
    apart = []
    for swapped in product([False, True], repeat=len(seeds)):
        turned = dict(zip(seeds, swapped, strict=True))
        ours = {k for s, k in left if not turned[s]} | {k for s, k in right if turned[s]}
        theirs = {k for s, k in right if not turned[s]} | {k for s, k in left if turned[s]}
        apart.append(abs(len(ours) - len(theirs)))
    shares = np.array([np.mean(np.array(apart) <= value) for value in range(max(apart) + 1)])
    # The quantile of a sample may fall to either side where the exact share is within its error of 95 %.
    near = {float(v) for v in range(max(apart) + 1) if 0.93 <= shares[v] <= 0.97}
    exact = float(np.argmax(shares >= 0.95))
    assert min([exact, *near]) <= result.high <= max([exact, *(v + 1 for v in near)])


@given(left=findings, right=findings)
@settings(max_examples=25, deadline=None)
def test_it_does_not_matter_who_is_named_first(left: list[tuple[int, int]], right: list[tuple[int, int]]) -> None:
    one, other = swap_interval(left, right), swap_interval(right, left)
    assert one.difference == -other.difference
    assert (one.larger, other.larger) in ((None, None), ("left", "right"), ("right", "left"))


def test_two_searches_that_are_alike_seldom_differ() -> None:
    """Findings of both drawn in one way, many of one seed at a time: at most one in ten pairs may be called different."""
    random = np.random.default_rng(0)
    alarms = 0
    for _ in range(100):
        sides = []
        for _ in range(2):
            sizes = random.geometric(0.1, 60)
            sides.append([(s, int(k)) for s in range(60) for k in random.zipf(1.4, sizes[s]) if k < 10_000])
        alarms += swap_interval(*sides, draws=400).larger is not None
    assert alarms <= 10
