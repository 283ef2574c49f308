"""Changes after which a car should steer as before: a slightly turned camera, light, rain, fog (metamorphic relations of
DeepTest)."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from neurotest import registry, rng
from neurotest.mutate.base import Family, RuleMutations, single
from neurotest.mutate.operators import Add, Blur, Contrast, Operator, Rotation, column

SLANTS = (-0.4, 0.0, 0.4)  # columns by which rain falls aside in a row
DROP, BRIGHT = 0.5, 0.85  # how much of what is behind a drop it hides, and its own light
LENGTH = 8  # a drop is an eighth of the image long
FOOT = 0.25  # at the foot of an image there is so much of the fog: what is there is near
LIGHT = 0.75  # of the fog


class _Rain(Operator):
    """Bright streaks, all falling the same way; parameters: how much of the image they start on, number of the rain."""

    def apply(self, x: Tensor, parameters: Tensor) -> Tensor:
        height, width = x.shape[2:]
        shares, numbers = parameters[:, 0].tolist(), map(int, parameters[:, 1].tolist())
        drops, slants = [], []
        for share, random in zip(shares, rng.streams("mutate.rain", numbers), strict=True):
            slants.append(int(random.integers(len(SLANTS))))
            drops.append(torch.from_numpy(random.random((height, width)) < share))
        starts = torch.stack(drops).to(x).unsqueeze(1)  # (n, 1, h, w)
        lines = torch.stack([_line(max(3, height // LENGTH), slant) for slant in SLANTS]).to(x).unsqueeze(1)
        fallen = functional.conv2d(starts, lines, padding="same")  # (n, slants, h, w)
        wet = fallen[torch.arange(len(x)), torch.tensor(slants)].clamp_max(1).unsqueeze(1)
        return x * (1 - DROP * wet) + DROP * BRIGHT * wet


@functools.cache
def _line(length: int, slant: float) -> Tensor:
    """A streak in the middle of a square."""
    side = length | 1
    square = torch.zeros(side, side)
    for row in range(length):
        square[row, round(side // 2 + slant * (row - side // 2))] = 1
    return square


class _DepthFog(Operator):
    """A veil of one light grey, thickest in the upper half, where things are far; parameter: how much of it hides them there."""

    def apply(self, x: Tensor, parameters: Tensor) -> Tensor:
        height = x.shape[2]
        near = ((torch.arange(height, dtype=torch.float64) + 0.5) / height * 2 - 1).clamp_min(
            0
        )  # 0 above the middle, 1 at the foot
        veil = column(parameters, x) * (1 - (1 - FOOT) * near).to(x).view(1, 1, -1, 1)
        return x * (1 - veil) + LIGHT * veil


@registry.register(
    "mutation",
    "weather",
    paper="after Tian et al., DeepTest, ICSE 2018",
    cost="about a tenth of a LeNet-5 forward pass per mutant",
    differs="DeepTest also shifts, scales and shears, after which a driver would steer otherwise; and it turns by up to 30 "
    "degrees, here it is 3. Its rain and fog are layers of an image editor; ours are drawn.",
)
class WeatherMutations(RuleMutations):
    """Rotation by at most 3 degrees (once per lineage), brightness, contrast, slight blur, rain, fog: a road stays the same
    road."""

    def _families(self) -> Sequence[Family]:
        return (
            Family("rotation", Rotation(), single((-3, -2, -1, 1, 2, 3)), (0.0,), once=True),
            Family("brightness", Add(), single((-45, -30, -15, 15, 30, 45)), (0.0,)),
            Family("contrast", Contrast(), single((0.7, 0.8, 0.9, 1.1, 1.2, 1.3)), (1.0,)),
            Family("blur", Blur(), single((1, 4)), (0.0,)),
            Family("rain", _Rain(), single((0.005, 0.01, 0.02, 0.03)), (0.0,), seeded=True, exempt=True),
            Family("fog", _DepthFog(), single((0.15, 0.25, 0.35, 0.45, 0.55)), (0.0,), exempt=True),
        )
