"""The best of many scores: by hand, against sorting, and merged."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from neurotest.stats.moments import SAMPLE, Best

pytestmark = pytest.mark.plain
SCORES = st.lists(st.integers(-5, 5).map(float), max_size=60)


def best(scores: list[float], start: int = 0, k: int = 4) -> Best:
    one = Best(k)
    one.update(np.arange(start, start + len(scores)), np.array(scores, dtype=np.float64))
    return one


def test_by_hand() -> None:
    one = best([0.5, 2.0, 1.0, 2.0], k=3)
    assert one.positions.tolist() == [1, 3, 2]
    assert one.scores.tolist() == [2.0, 2.0, 1.0]
    assert one.quantiles()["0"] == 0.5
    assert one.quantiles()["0.5"] == 1.0
    assert one.to_dict()["mean"] == 1.375
    assert best([]).to_dict() == {"count": 0, "mean": None, "quantiles": {}}


@given(SCORES, SCORES, st.integers(1, 20))
def test_halves_merged_in_any_order_equal_a_stable_sort(first: list[float], second: list[float], k: int) -> None:
    every = np.array(first + second, dtype=np.float64)
    expected = np.argsort(-every, kind="stable")[:k]
    one, other = best(first, 0, k), best(second, len(first), k)
    again, swapped = best(first, 0, k), best(second, len(first), k)
    one.merge(other)
    swapped.merge(again)
    for merged in (one, swapped):
        assert merged.positions.tolist() == expected.tolist()
        assert merged.scores.tolist() == every[expected].tolist()
        assert merged.count == len(every)
        assert merged.quantiles() == best(first + second, 0, k).quantiles()


def test_the_sample_of_many_is_close_and_bounded() -> None:
    values = np.random.default_rng(0).random(100_000)
    one = Best(1)
    for start in range(0, len(values), 999):
        one.update(np.arange(start, min(start + 999, len(values))), values[start : start + 999])
    assert len(one._sample) == SAMPLE
    for q, value in one.quantiles().items():
        assert value == pytest.approx(float(q), abs=0.02)
