"""The `nss` mutation set: what is drawn, that it can be replayed, and what comes out."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from neurotest import registry, rng
from neurotest.errors import BadInput
from neurotest.mutate.space import Draws, NssMutations, from_unit, round8, to_unit

NSS = NssMutations()


def draw(n: int, seed: int = 0) -> Draws:
    return NSS.draw(rng.stream("test.space", seed), n)


def pictures(n: int, seed: int = 0, c: int = 1, side: int = 12) -> Tensor:
    values = rng.stream("test.pictures", seed).integers(0, 256, (n, c, side, side), dtype=np.uint8)
    return torch.from_numpy(values).float().div_(255)


def test_it_is_registered() -> None:
    assert registry.build("mutation set", "nss") == NSS
    assert NSS.names == ("shift", "rotation", "scale", "shear", "contrast", "brightness", "blur")


def test_the_seven_are_drawn_alike() -> None:
    counts = np.bincount(draw(10_000).kind, minlength=7)
    expected = 10_000 / 7
    assert ((counts - expected) ** 2 / expected).sum() < 22.5  # chi-squared with 6 degrees of freedom, p = 0.001


def test_parameters_belong_to_their_operator() -> None:
    draws = draw(10_000)
    limits = {"shift": (0.05, 0.15), "rotation": (5, 25), "scale": (0.8, 1.2), "shear": (15, 30), "contrast": (0.5, 1.5)}
    limits |= {"brightness": (0.5, 1.5), "blur": (2, 7)}
    for number, name in enumerate(draws.names):
        mine = np.abs(draws.parameters[draws.kind == number])
        low, high = limits[name]
        assert (mine[:, 0] >= low).all()
        assert (mine[:, 0] <= high).all()
        assert (mine[:, 1] > 0).all() if name == "shift" else (mine[:, 1] == 0).all()


def test_draws_are_a_function_of_the_stream() -> None:
    assert np.array_equal(draw(50, 3).parameters, draw(50, 3).parameters)
    assert not np.array_equal(draw(50, 3).parameters, draw(50, 4).parameters)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 1000), n=st.integers(1, 20), channels=st.sampled_from([1, 3]))
def test_a_described_draw_replays_to_equal_pixels(seed: int, n: int, channels: int) -> None:
    """Through JSON, as a run stores it."""
    draws, x = draw(n, seed), pictures(n, seed, channels)
    described = json.loads(json.dumps([draws.describe(i) for i in range(n)]))
    again = Draws.of(NSS.names, described)
    assert torch.equal(NSS.apply(x, again), NSS.apply(x, draws))


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 1000))
@example(seed=368)  # a rotation whose matrix was rounded by the batch
def test_a_batch_equals_its_items_one_by_one(seed: int) -> None:
    """An item replayed alone must have the pixels, and so the content id, it had in its batch."""
    draws, x = draw(24, seed), pictures(24, seed)
    together = NSS.apply(x, draws)
    for i in range(24):
        assert torch.equal(NSS.apply(x[i : i + 1], draws[i : i + 1]), together[i : i + 1]), draws.describe(i)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 1000), channels=st.sampled_from([1, 3]))
def test_results_are_what_eight_bits_hold(seed: int, channels: int) -> None:
    x = pictures(30, seed, channels)
    out = NSS.apply(x, draw(30, seed))
    eight = (out * 255).round().to(torch.uint8)
    assert torch.equal(eight.float().div(255), out)  # exactly what reading the saved image gives
    assert out.min() >= 0
    assert out.max() <= 1
    assert not torch.equal(out, x)


def test_each_item_gets_its_own_operator() -> None:
    described = [
        {"operator": "contrast", "parameters": [0.5, 0.0]},
        {"operator": "brightness", "parameters": [1.5, 0.0]},
        {"operator": "shift", "parameters": [2 / 12, -1 / 12]},
    ]
    x = pictures(3)
    out = NSS.apply(x, Draws.of(NSS.names, described))
    assert torch.equal(out[0], round8(x[0] * 0.5))
    assert torch.equal(out[1], round8(x[1] + 0.25))
    assert torch.allclose(out[2, :, :-1, 2:], x[2, :, 1:, :-2], atol=1e-6)
    assert float(out[2, :, -1].max()) == float(out[2, :, :, :2].max()) == 0


def test_drawing_for_nobody() -> None:
    assert len(draw(0)) == 0
    assert NSS.apply(pictures(0), draw(0)).shape == (0, 1, 12, 12)


# -- refusals


def test_only_images_can_be_mutated() -> None:
    with pytest.raises(BadInput, match="mutations need images"):
        NSS.apply(torch.zeros(2, 5), draw(2))


def test_draws_must_fit_the_batch() -> None:
    with pytest.raises(BadInput, match="2 draws"):
        NSS.apply(pictures(3), draw(2))
    other = Draws(("blur", "noise"), np.zeros(3, np.int8), np.zeros((3, 2)))
    with pytest.raises(BadInput, match="noise"):
        NSS.apply(pictures(3), other)


@pytest.mark.parametrize(
    "record",
    [{"operator": "warp", "parameters": [1, 2]}, {"operator": "blur"}, {"operator": "blur", "parameters": [3]}, "blur", {}],
    ids=str,
)
def test_records_that_cannot_be_replayed(record: Any) -> None:
    with pytest.raises(BadInput, match="cannot replay"):
        Draws.of(NSS.names, [record])


# -- rounding and bounds


def test_rounding_clips_and_agrees_with_reading() -> None:
    assert round8(torch.tensor([-1.0, 0.0, 0.5, 1.0, 2.0])).tolist() == pytest.approx([0, 0, 128 / 255, 1, 1])
    every = torch.arange(256, dtype=torch.uint8).float().div(255)
    assert torch.equal(round8(every), every)


@given(low=st.floats(-300, 300), width=st.floats(0.1, 600))
def test_there_and_back(low: float, width: float) -> None:
    x = torch.linspace(low, low + width, 9)
    unit = to_unit(x, (low, low + width))
    assert float(unit.min()) > -1e-3
    assert float(unit.max()) < 1 + 1e-3
    assert torch.allclose(from_unit(unit, (low, low + width)), x, atol=1e-3)
