"""Changes of no particular kind, for training alone: random curves of brightness, filters, warps and pasted parts.

Nothing is judged by them. They are there because a network that has learned thirteen neat operators has not learned the next one.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from neurotest.mutate.base import Family, Mutations
from neurotest.mutate.operators import Floats, RangeOperator

NUMBERS = 2.0**53
GOLDEN = 0x9E3779B97F4A7C15


def _uniforms(numbers: NDArray[np.float64], count: int) -> Floats:
    """(n, count) numbers in [0, 1) that follow from a whole number each: splitmix64 counted on from it, scrambled."""
    with np.errstate(over="ignore"):
        z = _scrambled(numbers.astype(np.uint64))[:, None] + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(GOLDEN)
        return np.asarray((_scrambled(z) >> np.uint64(11)) / NUMBERS)


def _scrambled(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    with np.errstate(over="ignore"):
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


@dataclass(frozen=True, kw_only=True)
class _Broad(RangeOperator):
    """Parameters: how strong (0: unchanged), and the number from which everything else follows."""

    low: float
    high: float
    values: ClassVar[int]  # uniform numbers that one change takes
    neutral: ClassVar[tuple[float, ...]] = (0.0,)

    def draw(self, random: np.random.Generator, n: int) -> Floats:
        return self.at(random.random((n, 2)))

    def at(self, uniforms: Floats) -> Floats:
        return np.column_stack([self.low + (self.high - self.low) * uniforms[:, 0], np.floor(uniforms[:, 1] * NUMBERS)])

    def apply(self, x: Tensor, parameters: Tensor) -> Tensor:
        drawn = _uniforms(parameters[:, 1].cpu().double().numpy(), self.values)
        strength = parameters[:, 0].to(x).view(-1, 1)
        return self.changed(x, strength, torch.from_numpy(drawn).to(x))

    @abstractmethod
    def changed(self, x: Tensor, strength: Tensor, drawn: Tensor) -> Tensor:
        """x (n, c, h, w), strength (n, 1), drawn (n, values)."""


@dataclass(frozen=True, kw_only=True)
class _Tone(_Broad):
    """Brightness through a rising curve: straight pieces between five heights, drawn and sorted."""

    low: float = 0.4
    high: float = 1.0
    values: ClassVar[int] = 5

    def changed(self, x: Tensor, strength: Tensor, drawn: Tensor) -> Tensor:
        pieces = self.values - 1
        heights = torch.lerp(torch.linspace(0, 1, self.values).to(x).expand_as(drawn), drawn.sort(1).values, strength)
        place = x.clamp(0, 1).flatten(1) * pieces
        below = place.floor().clamp_max(pieces - 1)
        left = heights.gather(1, below.long())
        right = heights.gather(1, below.long() + 1)
        return torch.lerp(left, right, place - below).view_as(x)


@dataclass(frozen=True, kw_only=True)
class _Filter(_Broad):
    """A mean of the neighbours within two pixels, weights drawn, mixed in or, for a third of the draws, taken away."""

    low: float = 0.4
    high: float = 1.0
    values: ClassVar[int] = 26

    def changed(self, x: Tensor, strength: Tensor, drawn: Tensor) -> Tensor:
        n, channels, height, width = x.shape
        weights = -torch.log1p(-drawn[:, :25])
        weights = (weights.square() / weights.square().sum(1, keepdim=True)).view(n, 1, 5, 5)
        kernels = weights.repeat_interleave(channels, 0)
        padded = functional.pad(x, [2] * 4, mode="replicate").view(1, n * channels, height + 4, width + 4)
        mean = functional.conv2d(padded, kernels, groups=n * channels).view_as(x)
        share = torch.where(drawn[:, 25:] < 1 / 3, -1.5 * strength, strength).view(n, 1, 1, 1)
        return torch.lerp(x, mean, share)


@dataclass(frozen=True, kw_only=True)
class _Warp(_Broad):
    """Every point is moved, neighbours alike: by offsets drawn on a grid of 4 x 4, strength in tenths of the width."""

    low: float = 0.5
    high: float = 1.5
    values: ClassVar[int] = 32

    def changed(self, x: Tensor, strength: Tensor, drawn: Tensor) -> Tensor:
        n, _, height, width = x.shape
        offsets = (2 * drawn - 1).view(n, 2, 4, 4) * (0.2 * strength).view(n, 1, 1, 1)
        field = functional.interpolate(offsets, size=(height, width), mode="bicubic", align_corners=True)
        rows, columns = torch.meshgrid(*(torch.linspace(-1, 1, size) for size in (height, width)), indexing="ij")
        grid = torch.stack([columns, rows], dim=2).to(x) + field.permute(0, 2, 3, 1)
        return functional.grid_sample(x, grid, mode="bilinear", padding_mode="zeros", align_corners=True)


@dataclass(frozen=True, kw_only=True)
class _Paste(_Broad):
    """Three squares of a sixth to a third of the side are covered by another part of the same image."""

    low: float = 1.0
    high: float = 2.0
    values: ClassVar[int] = 12

    def changed(self, x: Tensor, strength: Tensor, drawn: Tensor) -> Tensor:
        out, side = x.clone(), min(x.shape[2:])
        for i, (share, row) in enumerate(zip(strength[:, 0].tolist(), drawn.tolist(), strict=True)):
            size = round(share * side / 6)
            if not size:
                continue
            for down, right, other_down, other_right in (row[0:4], row[4:8], row[8:12]):
                top, left = int(down * (x.shape[2] - size + 1)), int(right * (x.shape[3] - size + 1))
                a, b = int(other_down * (x.shape[2] - size + 1)), int(other_right * (x.shape[3] - size + 1))
                out[i, :, top : top + size, left : left + size] = x[i, :, a : a + size, b : b + size]
        return out


@dataclass(frozen=True, kw_only=True)
class BroadMutations(Mutations):
    """Tone, filter, warp and paste, each equally often."""

    def _families(self) -> Sequence[Family]:
        operators = {"tone": _Tone(), "filter": _Filter(), "warp": _Warp(), "paste": _Paste()}
        return [Family(name, one, (), one.neutral, seeded=True) for name, one in operators.items()]
