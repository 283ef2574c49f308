"""Log-mel features against a plain loop over frames and bands, in float64, written from Kaldi's definition."""

from __future__ import annotations

import math

import numpy as np
import torch

from neurotest.target.huggingface import LogMel, _mel_bank


def mel(hertz: float) -> float:
    return 1127 * math.log(1 + hertz / 700)


def by_loop(x: np.ndarray, bands: int) -> np.ndarray:
    window = [0.5 - 0.5 * math.cos(2 * math.pi * i / 399) for i in range(400)]
    step = (mel(8000) - mel(20)) / (bands + 1)
    rows = []
    for start in range(0, len(x) - 399, 160):
        frame = x[start : start + 400] - x[start : start + 400].mean()
        sharpened = [(frame[i] - 0.97 * frame[max(0, i - 1)]) * window[i] for i in range(400)]
        power = np.abs(np.fft.fft(sharpened, 512)[:257]) ** 2
        row = []
        for band in range(bands):
            centre = mel(20) + (band + 1) * step
            weights = [max(0.0, 1 - abs(mel(k * 16000 / 512) - centre) / step) for k in range(257)]
            row.append(math.log(max(float(np.dot(weights, power)), 2.0**-23)))
        rows.append(row)
    return np.array(rows)


def test_against_a_loop() -> None:
    x = np.random.default_rng(0).normal(0, 0.2, 1200)
    x[900:] = 0  # silence has the floor's logarithm
    expected = by_loop(x, 24)
    features = LogMel(bands=24, length=8, mean=-4.0, scale=9.0)(torch.from_numpy(x)[None, None])["input_values"]
    assert features.shape == (1, 8, 24)
    # float32: an energy is off by some 1e-6 of the loudest in its frame, of which the quietest band holds more than 1e-3
    np.testing.assert_allclose(features[0, : len(expected)].double(), (expected + 4) / 9, atol=2e-3)
    assert torch.equal(features[0, len(expected) :], torch.full((8 - len(expected), 24), 4 / 9))
    assert LogMel(bands=24, length=3)(torch.from_numpy(x)[None])["input_values"].shape == (1, 3, 24)


def test_gradients_reach_the_samples() -> None:
    x = torch.zeros(1, 1, 800)
    x[..., :400] = torch.rand(400, generator=torch.Generator().manual_seed(0)) - 0.5
    x.requires_grad_(True)
    LogMel(bands=8, length=4)(x)["input_values"].sum().backward()  # type: ignore[no-untyped-call]
    assert x.grad is not None
    assert x.grad.isfinite().all()
    assert (x.grad[..., :400] != 0).any()


def test_gradients_after_a_pass_that_keeps_none() -> None:
    """What is kept between passes was made where no gradients are."""
    _mel_bank.cache_clear()
    x = torch.rand(1, 800, generator=torch.Generator().manual_seed(0))
    features = LogMel(bands=8, length=4)
    with torch.inference_mode():
        features(x)
    x.requires_grad_(True)
    features(x)["input_values"].sum().backward()
    assert x.grad is not None
    assert (x.grad != 0).any()
