"""Image operators on batches (n, c, h, w) in [0, 1], one parameter row per item; the pixels are moved by kornia.

An operator draws parameters and applies them; it holds settings only. Affine ones give a matrix instead, so that all
affine items of a batch are warped in one call.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor


class Operator(Protocol):
    """`draw` gives (n, p) parameters; `apply` changes (n, c, h, w) by them."""

    @property
    def family(self) -> str: ...

    def draw(self, random: np.random.Generator, n: int) -> np.ndarray: ...

    def apply(self, x: Tensor, parameters: Tensor) -> Tensor: ...


def _signed(random: np.random.Generator, low: float, high: float, size: tuple[int, ...]) -> np.ndarray:
    return np.asarray(random.uniform(low, high, size) * random.choice([-1.0, 1.0], size))


def about_centre(linear: Tensor, shift: Tensor, height: int, width: int) -> Tensor:
    """The pixel matrices (n, 2, 3) of x -> linear (x - centre) + centre + shift; centre is that of the pixel grid."""
    centre = linear.new_tensor([(width - 1) / 2, (height - 1) / 2])
    # Written out: a matrix product may round otherwise in another batch, and an item replayed alone must have the same pixels.
    offset = centre - (linear[:, :, 0] * centre[0] + linear[:, :, 1] * centre[1]) + shift  # (n, 2)
    return torch.cat([linear, offset.unsqueeze(2)], dim=2)


def warp(x: Tensor, matrices: Tensor) -> Tensor:
    """Bilinear, zero fill."""
    from kornia.geometry.transform import warp_affine

    return warp_affine(x, matrices, (x.shape[2], x.shape[3]), mode="bilinear", padding_mode="zeros", align_corners=False)


class _Affine:
    """Base of the affine operators: a subclass says its matrix."""

    family = "affine"

    def matrix(self, parameters: Tensor, height: int, width: int) -> Tensor:
        raise NotImplementedError

    def apply(self, x: Tensor, parameters: Tensor) -> Tensor:
        return warp(x, self.matrix(parameters, x.shape[2], x.shape[3]))


def _identity(n: int, like: Tensor) -> Tensor:
    return torch.eye(2, dtype=like.dtype, device=like.device).repeat(n, 1, 1)


@dataclass(frozen=True, kw_only=True)
class Shift(_Affine):
    """Move by a share of the size on each axis, sign and size drawn per axis."""

    low: float = 0.05
    high: float = 0.15

    def draw(self, random: np.random.Generator, n: int) -> np.ndarray:
        return _signed(random, self.low, self.high, (n, 2))

    def matrix(self, parameters: Tensor, height: int, width: int) -> Tensor:
        size = parameters.new_tensor([width, height])
        return about_centre(_identity(len(parameters), parameters), parameters[:, :2] * size, height, width)


@dataclass(frozen=True, kw_only=True)
class Rotation(_Affine):
    """Turn about the centre by degrees, either way."""

    low: float = 5.0
    high: float = 25.0

    def draw(self, random: np.random.Generator, n: int) -> np.ndarray:
        return _signed(random, self.low, self.high, (n, 1))

    def matrix(self, parameters: Tensor, height: int, width: int) -> Tensor:
        angle = torch.deg2rad(parameters[:, 0])
        cosine, sine = angle.cos(), angle.sin()
        linear = torch.stack([torch.stack([cosine, sine], 1), torch.stack([-sine, cosine], 1)], 1)  # counter-clockwise as seen
        return about_centre(linear, torch.zeros_like(parameters[:, :1]).expand(-1, 2), height, width)


@dataclass(frozen=True, kw_only=True)
class Scale(_Affine):
    """Enlarge or shrink about the centre."""

    low: float = 0.8
    high: float = 1.2

    def draw(self, random: np.random.Generator, n: int) -> np.ndarray:
        return random.uniform(self.low, self.high, (n, 1))

    def matrix(self, parameters: Tensor, height: int, width: int) -> Tensor:
        linear = _identity(len(parameters), parameters) * parameters[:, :1, None]
        return about_centre(linear, torch.zeros_like(parameters[:, :1]).expand(-1, 2), height, width)


@dataclass(frozen=True, kw_only=True)
class Shear(_Affine):
    """Slant along x by degrees, either way."""

    low: float = 15.0
    high: float = 30.0

    def draw(self, random: np.random.Generator, n: int) -> np.ndarray:
        return _signed(random, self.low, self.high, (n, 1))

    def matrix(self, parameters: Tensor, height: int, width: int) -> Tensor:
        linear = _identity(len(parameters), parameters)
        linear[:, 0, 1] = torch.deg2rad(parameters[:, 0]).tan()
        return about_centre(linear, torch.zeros_like(parameters[:, :1]).expand(-1, 2), height, width)


@dataclass(frozen=True, kw_only=True)
class Contrast:
    """x * a."""

    low: float = 0.5
    high: float = 1.5
    family = "contrast"

    def draw(self, random: np.random.Generator, n: int) -> np.ndarray:
        return random.uniform(self.low, self.high, (n, 1))

    def apply(self, x: Tensor, parameters: Tensor) -> Tensor:
        return x * parameters[:, 0].view(-1, 1, 1, 1)


@dataclass(frozen=True, kw_only=True)
class Brightness:
    """x + (b - 1) / 2: adding b itself, as the usual reading has it, whitens the image."""

    low: float = 0.5
    high: float = 1.5
    family = "brightness"

    def draw(self, random: np.random.Generator, n: int) -> np.ndarray:
        return random.uniform(self.low, self.high, (n, 1))

    def apply(self, x: Tensor, parameters: Tensor) -> Tensor:
        return x + (parameters[:, 0].view(-1, 1, 1, 1) - 1) / 2


@dataclass(frozen=True, kw_only=True)
class BoxBlur:
    """Mean over a square window, border replicated; the window's size is drawn from `sizes`."""

    sizes: tuple[int, ...] = (2, 3, 5, 7)
    family = "blur"

    def draw(self, random: np.random.Generator, n: int) -> np.ndarray:
        return random.choice(np.asarray(self.sizes, dtype=np.float64), (n, 1))

    def apply(self, x: Tensor, parameters: Tensor) -> Tensor:
        from kornia.filters import box_blur

        out = x.clone()
        for size in parameters[:, 0].unique().tolist():  # kornia takes one window per call
            mine = parameters[:, 0] == size
            out[mine] = box_blur(x[mine], (int(size), int(size)), border_type="replicate")
        return out
