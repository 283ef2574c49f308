"""L0, L2 and Linf, and what counts as a changed value."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from neurotest.mutate.unit import SAME, changed, distances, from_unit, to_unit
from neurotest.mutate.validity import Validity

pytestmark = pytest.mark.by_hand


def test_by_hand() -> None:
    seed = torch.zeros(2, 1, 2, 2)
    x = seed.clone()
    x[0, 0, 0] = torch.tensor([0.3, 0.4])
    assert distances(x, seed) == pytest.approx(np.array([[0.5, 0.5, 0.4], [0, 0, 0]]))
    assert distances(x, seed).dtype == np.float64
    assert changed(x, seed).flatten().tolist() == [True, True, *[False] * 6]


def test_small_changes_of_floating_point_data_count() -> None:
    seed = torch.full((1, 10), 0.5)
    assert distances(seed + 1e-4, seed)[0, 0] == 1  # a fortieth of what 8 bits can tell apart
    assert distances(seed + SAME / 4, seed)[0, 0] == 0
    assert Validity(alpha=0.2, beta=0).check(seed + 1e-4, seed).tolist() == [False]


@given(low=st.sampled_from([-3.0, -1.0, 0.0]), width=st.sampled_from([1.0, 2.0, 5.3, 255.0]), seed=st.integers(0, 100))
def test_scaling_there_and_back_is_no_change(low: float, width: float, seed: int) -> None:
    x = torch.rand(1, 200, generator=torch.Generator().manual_seed(seed))
    bounds = (low, low + width)
    assert distances(to_unit(from_unit(x, bounds), bounds), x)[0, 0] == 0


@given(seed=st.integers(0, 100))
def test_eight_bit_data_differ_where_their_bytes_do(seed: int) -> None:
    random = np.random.default_rng(seed)
    a, b = (random.integers(0, 3, (4, 30), dtype=np.uint8) for _ in range(2))
    l0 = distances(torch.from_numpy(a).float() / 255, torch.from_numpy(b).float() / 255)[:, 0]
    assert l0 == pytest.approx((a != b).mean(axis=1))
