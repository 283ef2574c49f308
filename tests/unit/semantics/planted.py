"""Networks whose neurons are known because they were put there: oriented filters and colour detectors."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from neurotest.semantics.describe.probes import COLOURS
from neurotest.target import Target


def gabor(angle: float, period: float, side: int = 11, phase: float = 0.0) -> Tensor:
    """A filter for lines that run at `angle` (radians above the horizontal) and repeat every `period` pixels."""
    half = side // 2
    y, x = torch.meshgrid(torch.arange(-half, half + 1.0), torch.arange(-half, half + 1.0), indexing="ij")
    across = x * np.sin(angle) + y * np.cos(angle)
    wave = torch.cos(2 * np.pi * across / period + phase) * torch.exp(-(x**2 + y**2) / (2 * (side / 4) ** 2))
    wave = wave - wave.mean()
    return wave / wave.norm()


class Oriented(nn.Module):
    """One convolution of oriented filters on luminance, one neuron per (angle, period), and a reading of their means."""

    def __init__(self, angles: list[float], periods: list[float], channels: int) -> None:
        super().__init__()
        pairs = list(zip(angles, periods, strict=True))
        self.conv = nn.Conv2d(channels, len(pairs), 11, padding=5, bias=False, padding_mode="reflect")
        luma = torch.tensor([0.299, 0.587, 0.114]) if channels == 3 else torch.ones(channels)
        with torch.no_grad():
            self.conv.weight.copy_(torch.stack([gabor(a, p)[None] * luma[:, None, None] for a, p in pairs]))
        self.relu = nn.ReLU()
        self.fc = nn.Linear(len(pairs), 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.relu(self.conv(x)).mean(dim=(2, 3)))


class Coloured(nn.Module):
    """A neuron per colour that answers by nearness: 0.35 minus the summed distance of the channels, rectified."""

    def __init__(self, colours: list[tuple[float, float, float]]) -> None:
        super().__init__()
        count = len(colours)
        self.distance = nn.Conv2d(3, 6 * count, 1)
        self.near = nn.ReLU()
        self.sum = nn.Conv2d(6 * count, count, 1)
        self.colour = nn.ReLU()
        self.fc = nn.Linear(count, 2)
        with torch.no_grad():
            self.distance.weight.zero_()
            self.sum.weight.zero_()
            self.sum.bias.fill_(0.35)
            for n, colour in enumerate(colours):
                for channel, value in enumerate(colour):
                    for sign in (0, 1):
                        row = 6 * n + 2 * channel + sign
                        self.distance.weight[row, channel] = 1.0 - 2 * sign
                        self.distance.bias[row] = -value * (1.0 - 2 * sign)
                        self.sum.weight[n, row] = -1.0

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.colour(self.sum(self.near(self.distance(x)))).mean(dim=(2, 3)))


def target(module: nn.Module, shape: tuple[int, ...]) -> Target:
    return Target(module.eval(), shape=shape, spec="planted")


def oriented(seed: int, channels: int) -> tuple[Target, NDArray[np.int64], NDArray[np.float64]]:
    """32 oriented filters a little off in angle and period, with the direction and the period each was meant to have."""
    random = np.random.default_rng(seed)
    bins, periods = np.tile(np.arange(8), 4), np.repeat([4.0, 10.0, 4.0, 10.0], 8)
    angles = bins * np.pi / 8 + random.uniform(-0.08, 0.08, len(bins))
    module = Oriented(angles.tolist(), (periods * random.uniform(0.9, 1.1, len(bins))).tolist(), channels)
    return target(module, (channels, 32, 32)), bins, periods


def coloured(seed: int) -> tuple[Target, list[str]]:
    """Two detectors of every colour a little off, with the colours' names."""
    random = np.random.default_rng(seed)
    names = list(COLOURS) * 2
    colours = [tuple(np.clip(np.array(COLOURS[name]) + random.normal(0, 0.03, 3), 0, 1).tolist()) for name in names]
    return target(Coloured(colours), (3, 32, 32)), names
