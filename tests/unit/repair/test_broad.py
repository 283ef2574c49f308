"""Changes for training alone: by hand, against plain loops, and item by item."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from neurotest.mutate.base import Draws
from neurotest.repair.operators import BroadMutations, Operators, _Filter, _Paste, _Tone, _uniforms, _Warp

OPERATORS = (_Tone(), _Filter(), _Warp(), _Paste())


def images(n: int, shape: tuple[int, ...] = (2, 9, 12)) -> Tensor:
    return torch.rand((n, *shape), generator=torch.Generator().manual_seed(0))


def test_uniform_numbers_follow_from_their_number_and_are_spread_evenly() -> None:
    numbers = np.arange(2000, dtype=np.float64)
    drawn = _uniforms(numbers, 5)
    assert np.array_equal(drawn[7:8], _uniforms(np.array([7.0]), 5))
    assert drawn.min() >= 0
    assert drawn.max() < 1
    assert len(np.unique(drawn)) == drawn.size
    counts = np.histogram(drawn, bins=10, range=(0, 1))[0]
    assert (np.abs(counts - 1000) < 6 * np.sqrt(900)).all()
    assert np.abs(np.corrcoef(drawn.T) - np.eye(5)).max() < 6 / np.sqrt(2000)


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda one: type(one).__name__)
def test_no_strength_is_no_change(operator: _Tone) -> None:
    x = images(3)
    parameters = torch.tensor([[0.0, 5.0]] * 3, dtype=torch.float64)
    assert torch.allclose(operator.apply(x, parameters), x, atol=1e-5)


def test_a_tone_curve_by_hand() -> None:
    """Heights 0.1, 0.1, 0.5, 0.9, 0.9 in any order: a quarter gives 0.1, three eighths 0.3, a half 0.5, one 0.9."""
    x = torch.tensor([0.0, 0.25, 0.375, 0.5, 1.0]).view(1, 1, 1, 5)
    drawn = torch.tensor([[0.9, 0.1, 0.5, 0.1, 0.9]])
    assert torch.allclose(_Tone().changed(x, torch.ones(1, 1), drawn).flatten(), torch.tensor([0.1, 0.1, 0.3, 0.5, 0.9]))


def test_a_tone_curve_against_numpy() -> None:
    x, parameters = images(4), torch.from_numpy(_Tone().draw(np.random.default_rng(0), 4))
    changed = _Tone().apply(x, parameters)
    for i, (strength, number) in enumerate(parameters.tolist()):
        heights = np.sort(_uniforms(np.array([number]), 5)[0])
        heights = (1 - strength) * np.linspace(0, 1, 5) + strength * heights
        expected = np.interp(x[i].double().numpy(), np.linspace(0, 1, 5), heights)
        assert np.allclose(changed[i], expected, atol=1e-5)


def test_a_filter_leaves_one_grey_as_it_is_and_is_a_mean_of_neighbours() -> None:
    parameters = torch.from_numpy(_Filter(low=1, high=1).draw(np.random.default_rng(1), 6))
    grey = torch.full((6, 3, 8, 8), 0.4)
    assert torch.allclose(_Filter().apply(grey, parameters), grey, atol=1e-5)
    x = images(6)
    changed = _Filter().apply(x, parameters)
    weights = _uniforms(parameters[:, 1].numpy(), 26)
    for i in range(6):
        lengths = np.log1p(-weights[i, :25]) ** 2
        kernel = (lengths / lengths.sum()).reshape(5, 5)
        window = x[i, 1, 2:7, 3:8].double().numpy()  # around (4, 5)
        mean = float((kernel * window).sum())
        share = -1.5 if weights[i, 25] < 1 / 3 else 1.0
        assert float(changed[i, 1, 4, 5]) == pytest.approx(float(x[i, 1, 4, 5]) * (1 - share) + share * mean, abs=1e-5)


def test_a_warp_that_is_the_same_everywhere_moves_the_image() -> None:
    """Every offset 0.2 x strength of half the width: with 11 columns and strength 1 that is one column."""
    x = images(1, (1, 11, 11))
    drawn = torch.cat([torch.ones(1, 16), torch.full((1, 16), 0.5)], dim=1)  # to the right alone
    moved = _Warp().changed(x, torch.ones(1, 1), drawn)
    assert torch.allclose(moved[..., :-1], x[..., 1:], atol=1e-5)


def test_pasted_parts_are_parts_of_the_image() -> None:
    x = images(1, (1, 12, 12))
    drawn = torch.tensor([[0.0, 0.0, 0.99, 0.99] * 3])
    changed = _Paste().changed(x, torch.full((1, 1), 2.0), drawn)
    assert torch.equal(changed[..., :4, :4], x[..., 8:, 8:])
    assert torch.equal(changed[..., 4:, :], x[..., 4:, :])


@settings(deadline=None, max_examples=15)
@given(seed=st.integers(0, 99), n=st.integers(1, 7))
def test_a_batch_is_changed_item_by_item_and_stays_in_range(seed: int, n: int) -> None:
    mutations = BroadMutations()
    x, random = images(n), np.random.default_rng(seed)
    draws = mutations.draw(random, n)
    together = mutations.apply(x, draws, levels=None)
    assert float(together.min()) >= 0
    assert float(together.max()) <= 1
    for i in range(n):
        one = Draws(draws.names, draws.kind[i : i + 1], draws.parameters[i : i + 1])
        assert torch.allclose(mutations.apply(x[i : i + 1], one, levels=None), together[i : i + 1], atol=1e-5)


def test_broader_operators_keep_the_others_in_front() -> None:
    some = Operators.of_shape((1, 9, 9)).only(("blur", "fog"))
    assert some.broader().names == ("blur", "fog", "tone", "filter", "warp", "paste")
    vectors = Operators.of_shape((20,))
    assert vectors.broader() is vectors
