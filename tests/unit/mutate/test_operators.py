"""The seven operators, each by hand on small images."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from neurotest import rng
from neurotest.mutate.operators import BoxBlur, Brightness, Contrast, Operator, Rotation, Scale, Shear, Shift

pytestmark = pytest.mark.by_hand

CLOSE = 1e-5


def images(n: int = 1, c: int = 1, h: int = 6, w: int = 8) -> Tensor:
    return torch.rand(n, c, h, w, generator=torch.Generator().manual_seed(2))


def rows(*values: float | tuple[float, ...]) -> Tensor:
    return torch.tensor([v if isinstance(v, tuple) else (v,) for v in values], dtype=torch.float32)


def drawn(operator: Any, n: int = 10_000) -> np.ndarray:
    return operator.draw(rng.stream("test", 0), n)


# -- pixels


@pytest.mark.parametrize("right", [-2, 0, 3])
@pytest.mark.parametrize("down", [-1, 0, 2])
def test_a_shift_by_whole_pixels_is_slicing(right: int, down: int) -> None:
    x = images()
    expected = torch.zeros_like(x)
    expected[..., max(0, down) : 6 + min(0, down), max(0, right) : 8 + min(0, right)] = x[
        ..., max(0, -down) : 6 - max(0, down), max(0, -right) : 8 - max(0, right)
    ]
    assert torch.allclose(Shift().apply(x, rows((right / 8, down / 6))), expected, atol=CLOSE)


def test_half_a_pixel_is_the_mean_of_two() -> None:
    x = images(h=4, w=4)
    moved = Shift().apply(x, rows((0.5 / 4, 0.0)))
    assert torch.allclose(moved[..., 1:], (x[..., 1:] + x[..., :-1]) / 2, atol=CLOSE)
    assert torch.allclose(moved[..., 0], x[..., 0] / 2, atol=CLOSE)  # what comes in from outside is black


@pytest.mark.parametrize(("degrees", "turns"), [(90.0, 1), (-90.0, -1), (180.0, 2), (0.0, 0)])
def test_a_rotation_by_right_angles(degrees: float, turns: int) -> None:
    for side in (6, 7):
        x = images(h=side, w=side)
        assert torch.allclose(Rotation().apply(x, rows(degrees)), torch.rot90(x, turns, (2, 3)), atol=CLOSE)


def test_a_rotation_is_about_the_centre_of_an_oblong_image_too() -> None:
    x = images(h=5, w=9)
    assert torch.allclose(Rotation().apply(x, rows(180.0)), x.flip(2, 3), atol=CLOSE)


def test_doubling_and_halving_a_square() -> None:
    x = torch.zeros(1, 1, 8, 8)
    x[..., 3:5, 3:5] = 1
    doubled = Scale().apply(x, rows(2.0))
    assert doubled[..., 3:5, 3:5].min() == pytest.approx(1, abs=CLOSE)
    assert float(doubled.sum()) == pytest.approx(4 * float(x.sum()), rel=0.01)
    assert Scale().apply(torch.ones(1, 1, 8, 8), rows(0.5))[0, 0].sum().item() == pytest.approx(16, rel=0.3)


@pytest.mark.parametrize(("operator", "neutral"), [(Scale(), 1.0), (Shear(), 0.0), (Rotation(), 0.0)])
def test_neutral_affine_parameters_change_nothing(operator: Operator, neutral: float) -> None:
    x = images(n=2, c=3)
    assert torch.allclose(operator.apply(x, rows(neutral, neutral)), x, atol=CLOSE)


def test_a_shear_slants_along_x_and_keeps_the_middle_row() -> None:
    """At 45 degrees each row moves by as many pixels as it lies from the middle."""
    x = images(h=5, w=9)
    sheared = Shear().apply(x, rows(45.0))
    assert torch.allclose(sheared[..., 2, :], x[..., 2, :], atol=CLOSE)
    for row in range(5):
        shift = row - 2
        for column in range(9):
            expected = x[0, 0, row, column - shift] if 0 <= column - shift < 9 else 0.0
            assert sheared[0, 0, row, column] == pytest.approx(float(expected), abs=CLOSE)


def test_contrast_multiplies() -> None:
    x = images(n=2, c=3)
    assert torch.allclose(Contrast().apply(x, rows(0.5, 1.5)), torch.stack([x[0] * 0.5, x[1] * 1.5]))


def test_brightness_adds_half_of_what_is_above_one() -> None:
    x = images(n=3)
    assert torch.allclose(Brightness().apply(x, rows(0.5, 1.0, 1.5)), torch.stack([x[0] - 0.25, x[1], x[2] + 0.25]), atol=1e-7)


@pytest.mark.parametrize("size", [2, 3, 5, 7])
def test_blur_of_a_constant_is_the_constant(size: int) -> None:
    x = torch.full((1, 2, 9, 9), 0.3)
    assert torch.allclose(BoxBlur().apply(x, rows(float(size))), x, atol=1e-6)


@pytest.mark.parametrize("size", [2, 3, 5, 7])
def test_blur_of_a_point_is_a_square(size: int) -> None:
    x = torch.zeros(1, 1, 15, 15)
    x[0, 0, 7, 7] = 1
    blurred = BoxBlur().apply(x, rows(float(size)))[0, 0]
    places = blurred.nonzero()
    assert len(places) == size * size
    assert (places.max(0).values - places.min(0).values).tolist() == [size - 1, size - 1]
    assert torch.allclose(blurred[blurred > 0], torch.tensor(1 / size**2), atol=1e-7)


def test_blur_at_the_border_repeats_the_border() -> None:
    x = torch.tensor([[1.0, 0.0, 0.0]]).view(1, 1, 1, 3).expand(1, 1, 3, 3)
    assert BoxBlur().apply(x, rows(3.0))[0, 0].tolist() == [pytest.approx([2 / 3, 1 / 3, 0.0], abs=1e-6)] * 3


def test_blur_takes_one_window_per_item() -> None:
    x = images(n=4, h=9, w=9)
    together = BoxBlur().apply(x, rows(2.0, 7.0, 2.0, 3.0))
    for i, size in enumerate((2.0, 7.0, 2.0, 3.0)):
        assert torch.allclose(together[i], BoxBlur().apply(x[i : i + 1], rows(size))[0], atol=1e-6)


@pytest.mark.parametrize("operator", [Shift(), Rotation(), Scale(), Shear(), Contrast(), Brightness(), BoxBlur()], ids=repr)
def test_channels_are_changed_alike(operator: Operator) -> None:
    x = images(n=4, c=1, h=9, w=9)
    parameters = torch.from_numpy(drawn(operator, 4)).float()
    grey = operator.apply(x, parameters)
    assert torch.allclose(operator.apply(x.repeat(1, 3, 1, 1), parameters), grey.repeat(1, 3, 1, 1), atol=1e-6)


@pytest.mark.parametrize("operator", [Shift(), Rotation(), Scale(), Shear(), Contrast(), Brightness(), BoxBlur()], ids=repr)
def test_the_input_is_left_alone(operator: Operator) -> None:
    x = images(n=4, h=9, w=9)
    before = x.clone()
    operator.apply(x, torch.from_numpy(drawn(operator, 4)).float())
    assert torch.equal(x, before)


# -- draws


@pytest.mark.parametrize(
    ("operator", "low", "high", "signed", "columns"),
    [
        (Shift(), 0.05, 0.15, True, 2),
        (Rotation(), 5, 25, True, 1),
        (Scale(), 0.8, 1.2, False, 1),
        (Shear(), 15, 30, True, 1),
        (Contrast(), 0.5, 1.5, False, 1),
        (Brightness(), 0.5, 1.5, False, 1),
    ],
    ids=lambda value: type(value).__name__ if hasattr(value, "draw") else None,
)
def test_ranges_of_ten_thousand_draws(operator: Operator, low: float, high: float, signed: bool, columns: int) -> None:
    values = drawn(operator)
    assert values.shape == (10_000, columns)
    size = np.abs(values) if signed else values
    assert low <= size.min() < low + 0.01 * (high - low)
    assert high - 0.01 * (high - low) < size.max() <= high
    assert size.mean() == pytest.approx((low + high) / 2, abs=0.02 * (high - low))  # about 7 standard errors
    assert size.std() == pytest.approx((high - low) / math.sqrt(12), rel=0.03)
    if signed:
        assert np.mean(values > 0, axis=0) == pytest.approx(np.full(columns, 0.5), abs=0.02)


def test_signs_and_sizes_of_a_shift_are_drawn_per_axis() -> None:
    values = drawn(Shift())
    quadrants = np.unique((values > 0) @ [1, 2], return_counts=True)[1]
    assert len(quadrants) == 4
    assert quadrants.min() > 2300
    assert abs(np.corrcoef(np.abs(values).T)[0, 1]) < 0.04


def test_windows_of_the_blur() -> None:
    sizes, counts = np.unique(drawn(BoxBlur()), return_counts=True)
    assert sizes.tolist() == [2, 3, 5, 7]
    assert counts.min() > 2300
