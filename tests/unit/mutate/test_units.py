"""Strengths in units of the image: those of the papers on images of their size, the same share of any other."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.refusals import refused
from torch import Tensor

from neurotest import registry
from neurotest.mutate.base import Draws
from neurotest.mutate.chain import Mutation, draws_of
from neurotest.mutate.operators import Blur
from neurotest.mutate.rules import Rules95, _contrast_of, _SharedBlur
from neurotest.mutate.validity import Validity

pytestmark = pytest.mark.by_hand

IMAGE = Rules95(units="image", contrast=1.0)


def images(n: int, size: int, channels: int = 1, seed: int = 0) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).integers(0, 256, (n, channels, size, size))).float() / 255


def every_rule(mutations: Rules95) -> Draws:
    return draws_of(mutations, [Mutation(family.name, rule) for family in mutations.families for rule in family.rules])


@pytest.mark.parametrize(("size", "channels"), [(28, 1), (32, 3)])
def test_on_images_of_the_papers_every_rule_is_theirs(size: int, channels: int) -> None:
    x = images(95, size, channels)
    published = Rules95()
    assert torch.equal(IMAGE.apply(x, every_rule(IMAGE)), published.apply(x, every_rule(published)))


@pytest.mark.parametrize(("size", "pixels"), [(8, 1), (16, 3), (28, 5), (32, 5), (64, 11), (224, 37)])
def test_shifts_by_hand(size: int, pixels: int) -> None:
    """A sixth of the size, in whole pixels: what was at 0 stands there, and black came in."""
    x = images(1, size)
    right = IMAGE.find("translation").rules[4]  # 5 pixels to the right in the papers
    moved = IMAGE.apply(x, draws_of(IMAGE, [Mutation("translation", right)]))
    assert torch.equal(moved[..., pixels:], x[..., :-pixels])
    assert float(moved[..., :pixels].abs().max()) == 0


def test_no_shift_of_small_digits_leaves_a_black_picture() -> None:
    x = torch.zeros(1, 1, 8, 8)
    x[..., 1:7, 3:5] = 1.0  # a one
    rules = [Mutation("translation", rule) for rule in IMAGE.find("translation").rules]
    out = IMAGE.apply(x.repeat(len(rules), 1, 1, 1), draws_of(IMAGE, rules))
    assert float(out.flatten(1).sum(1).min()) >= 10
    published = Rules95()
    rules = [Mutation("translation", rule) for rule in published.find("translation").rules]
    out = published.apply(x.repeat(len(rules), 1, 1, 1), draws_of(published, rules))
    assert float(out.flatten(1).sum(1).min()) == 0


@pytest.mark.parametrize("number", range(1, 10))
def test_a_blur_of_a_larger_image_is_that_of_the_smaller_one(number: int) -> None:
    """Every pixel of a 32 x 32 image four times in either direction: blurred at a quarter, it is the blurred small image."""
    small = images(2, 32)
    large = small.repeat_interleave(4, -2).repeat_interleave(4, -1)  # 128 pixels
    parameters = torch.full((2, 1), float(number))
    expected = Blur().apply(small, parameters)
    blurred = _SharedBlur().apply(large, parameters)
    middle = blurred.unflatten(-1, (32, 4)).unflatten(-3, (32, 4))[..., 1:3, :, 1:3].mean((-3, -1))
    assert torch.allclose(middle, expected, atol=0.12)  # interpolated between the middles of squares
    assert float((middle - expected).abs().mean()) < 0.03


def test_a_blur_of_a_small_image_by_hand() -> None:
    """On 10 pixels every pixel counts for 3 x 3: a mean over 3 keeps a third of a line of one pixel and more."""
    x = torch.zeros(1, 1, 10, 10)
    x[..., 5] = 1.0
    out = _SharedBlur().apply(x, torch.tensor([[1.0]]))  # mean of 3: thirds of the line lose 1/3, 0 and 1/3
    assert out[0, 0, 4].tolist() == pytest.approx([0, 0, 0, 0, 1 / 9, 7 / 9, 1 / 9, 0, 0, 0], abs=1e-6)
    assert float(Blur().apply(x, torch.tensor([[1.0]]))[0, 0, 4, 5]) == pytest.approx(1 / 3)


def test_brightness_is_a_share_of_the_contrast() -> None:
    x = torch.full((1, 1, 8, 8), 0.5)
    dim = Rules95(units="image", contrast=0.2)
    draws = draws_of(dim, [Mutation("brightness", (50.0,))])
    assert float(dim.apply(x, draws, levels=None)[0, 0, 0, 0]) == pytest.approx(0.5 + 0.2 * 50 / 255)


def test_contrast_is_learned_from_the_seeds() -> None:
    full = torch.linspace(0, 1, 28 * 28).reshape(1, 1, 28, 28)
    assert _contrast_of(full) == 1.0
    assert _contrast_of(0.3 + 0.1 * full) == 0.1
    assert _contrast_of(torch.zeros(1, 1, 8, 8)) == 0.05
    free = Rules95(units="image")
    assert free.fitted(0.2 * full) == Rules95(units="image", contrast=0.2)
    assert free.fitted(0.2 * full).unfitted() == free
    assert Rules95().fitted(0.2 * full) == Rules95()
    assert Rules95(units="image", contrast=0.5).fitted(full).contrast == 0.5


@given(size=st.integers(4, 80), channels=st.sampled_from([1, 3]))
@settings(max_examples=20, deadline=None)
def test_images_of_any_size_stay_images_and_alone_as_in_a_batch(size: int, channels: int) -> None:
    mutations = Rules95(units="image", contrast=1.0, bilateral=False)
    draws = every_rule(mutations)
    x = images(1, size, channels).repeat(len(draws), 1, 1, 1)
    out = mutations.apply(x, draws)
    assert out.shape == x.shape
    assert 0 <= float(out.min()) <= float(out.max()) <= 1
    for i in (1, 3, len(draws) - 3, len(draws) - 1):
        assert torch.equal(mutations.apply(x[i : i + 1], draws[i : i + 1]), out[i : i + 1])


def test_validity_follows_the_contrast() -> None:
    seed = torch.full((1, 1, 8, 8), 0.5)
    assert Validity().check(seed + 0.3, seed).tolist() == [True]
    assert Validity(contrast=0.5).check(seed + 0.3, seed).tolist() == [False]


@pytest.mark.parametrize(
    ("text", "refusal"),
    [
        ("rules95:units=metres", ("wrong-type", "units")),
        ("rules95:contrast=0.5", ("conflict", "contrast")),
        ("rules95:units=image,contrast=2", ("out-of-range", "contrast")),
    ],
)
def test_other_units_are_refused(text: str, refusal: tuple[str, str]) -> None:
    with refused(*refusal):
        registry.build("mutation", text)


def test_texts_of_earlier_runs_mean_what_they_meant() -> None:
    assert registry.build("mutation", "rules95") == Rules95(units="pixels")
    assert registry.text(IMAGE) == "rules95(units=image, contrast=1.0)"
    assert registry.build("mutation", registry.text(IMAGE)) == IMAGE
