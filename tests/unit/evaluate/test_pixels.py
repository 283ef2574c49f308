"""Distances, SSIM and variation of known images."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.ndimage import correlate1d
from tests.refusals import refused

from neurotest.evaluate.metrics import distances, ssim, total_variation

pytestmark = pytest.mark.by_hand


def images(n: int = 3, side: int = 16, channels: int = 1) -> torch.Tensor:
    return torch.rand(n, channels, side, side, generator=torch.Generator().manual_seed(0))


def test_distances_by_hand() -> None:
    x = torch.zeros(1, 1, 2, 2)
    y = torch.tensor([[[[0.3, 0.0], [0.0, -0.4]]]])
    numbers = distances(y, x)
    assert (numbers["l0"][0], numbers["l2"][0], numbers["linf"][0]) == pytest.approx((0.5, 0.5, 0.4))
    with refused("wrong-shape", "originals"):
        distances(images(2), images(3))


def test_variation_by_hand() -> None:
    x = torch.tensor([[[[0.0, 1.0], [0.5, 0.5]]]])
    assert total_variation(x)[0] == pytest.approx((0.5 + 0.5 + 1.0 + 0.0) / 4)
    assert total_variation(torch.full((1, 3, 4, 4), 0.7))[0] == 0
    with refused("unsuitable", "shape"):
        total_variation(torch.zeros(2, 5))


def test_ssim_of_equal_images_is_1_and_falls_with_noise() -> None:
    x = images(channels=3)
    assert ssim(x, x) == pytest.approx(np.ones(3), abs=1e-6)
    noise = torch.randn(x.shape, generator=torch.Generator().manual_seed(1))
    little, much = ssim((x + 0.02 * noise).clamp(0, 1), x), ssim((x + 0.3 * noise).clamp(0, 1), x)
    assert (little < 1).all()
    assert (much < little).all()
    assert ssim(images(2, side=6), images(2, side=6)) == pytest.approx(np.ones(2), abs=1e-6)  # smaller than the window


def test_ssim_as_the_formula_says() -> None:
    x, y = images(1), images(2)[1:]
    kernel = np.exp(-((np.arange(11) - 5) ** 2) / (2 * 1.5**2))
    kernel /= kernel.sum()

    def smooth(v: np.ndarray) -> np.ndarray:
        return correlate1d(correlate1d(v, kernel, axis=0, mode="mirror"), kernel, axis=1, mode="mirror")

    a, b = x[0, 0].double().numpy(), y[0, 0].double().numpy()
    m1, m2 = smooth(a), smooth(b)
    v1, v2, both = smooth(a * a) - m1**2, smooth(b * b) - m2**2, smooth(a * b) - m1 * m2
    c1, c2 = 0.01**2, 0.03**2
    expected = ((2 * m1 * m2 + c1) * (2 * both + c2) / ((m1**2 + m2**2 + c1) * (v1 + v2 + c2))).mean()
    assert ssim(x, y)[0] == pytest.approx(expected, abs=1e-4)
