"""What adaptive selection keeps of a pass: averages, statistics and components against plain definitions."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from neurotest import rng
from neurotest.select.adaptive import features
from neurotest.select.adaptive.features import Basis

pytestmark = pytest.mark.by_hand


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 7), st.booleans())
def test_averages_are_those_of_adaptive_pooling(height: int, width: int, grid: int, last: bool) -> None:
    maps = torch.rand(3, 2, height, width, generator=torch.Generator().manual_seed(height * 41 + width))
    maps = maps.contiguous(memory_format=torch.channels_last) if last else maps
    rows, columns = min(grid, height), min(grid, width)
    expected = torch.nn.functional.adaptive_avg_pool2d(maps.double(), (rows, columns)).flatten(1)
    assert torch.allclose(features._averaged(maps, rows, columns).double(), expected, atol=1e-6)


def test_windows_by_hand() -> None:
    """Five places in two windows: the middle one belongs to both."""
    third = 1 / 3
    assert features._windows(5, 2).T.tolist() == [[third, third, third, 0, 0], [0, 0, third, third, third]]


def test_statistics_of_a_picture_by_hand() -> None:
    picture = torch.tensor([[[[0.0, 1.0], [0.0, 0.5]]]])
    mean, spread, most, least, across, down = features._statistics(picture)[0].tolist()
    assert (mean, most, least) == (0.375, 1.0, 0.0)
    assert spread == pytest.approx(np.std([0, 1, 0, 0.5]))
    assert (across, down) == (0.75, 0.25)


@pytest.mark.parametrize(("n", "d"), [(60, 400), (400, 60), (30, 30), (500, 500)])
def test_components_are_the_leading_singular_vectors(n: int, d: int) -> None:
    """Few of many directions are sought by iteration, others at once: both are those of a singular value decomposition."""
    random = rng.stream("test.components", n)
    values = random.normal(size=(n, d)) * np.linspace(3, 0.1, d)
    values = values - values.mean(axis=0)
    turn = features._components(torch.from_numpy(values), 5).numpy()
    right = np.linalg.svd(values, full_matrices=False)[2][:5]
    assert np.abs((turn * right.T).sum(axis=0)) == pytest.approx(np.ones(5), abs=1e-8)
    assert (turn[np.abs(turn).argmax(axis=0), np.arange(5)] > 0).all()


def test_inputs_without_any_spread_have_components_too() -> None:
    assert features._components(torch.zeros(500, 600, dtype=torch.float64), 4).isfinite().all()


def test_a_basis_in_single_precision_gives_what_double_precision_gives() -> None:
    random = rng.stream("test.basis", 0)
    parts = tuple(torch.from_numpy(random.normal(3, 2, (300, d)) ** 2) for d in (20, 90, 6))
    basis = Basis.fit(parts, torch.zeros(300, 4))  # type: ignore[arg-type]
    whole = torch.cat([step(part) for step, part in zip(basis.steps, parts, strict=True)], dim=1)
    expected = basis.last(whole).clamp(-basis.limit, basis.limit)
    single = basis(tuple(part.float() for part in parts))  # type: ignore[arg-type]
    assert single.dtype == torch.float32
    assert torch.allclose(single.double(), expected, atol=1e-5 * float(expected.abs().max()))
