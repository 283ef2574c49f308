"""Image operators on batches (n, c, h, w) in [0, 1], one parameter row per item; the pixels are moved by kornia.

An operator holds settings only. Affine ones give a matrix, so that all affine items of a batch are warped in one call; those of
a range draw their parameters themselves.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Floats = NDArray[np.float64]


class Operator(ABC):
    """One way to change images."""

    integers: ClassVar[bool] = False  # whether the parameters are integers
    mildest_first: ClassVar[tuple[float, ...] | None] = None  # where the parameter names a kind: the kinds that can be ordered

    @abstractmethod
    def apply(self, x: Tensor, parameters: Tensor) -> Tensor:
        """Change (n, c, h, w) by parameter rows (n, p)."""


class Affine(Operator):
    """Base of the affine operators: a subclass says its matrix. batched: several of them may be warped in one call."""

    batched: ClassVar[bool] = True

    @abstractmethod
    def matrix(self, parameters: Tensor, height: int, width: int) -> Tensor:
        """Pixel matrices (n, 2, 3)."""

    def apply(self, x: Tensor, parameters: Tensor) -> Tensor:
        return warp(x, self.matrix(parameters, x.shape[2], x.shape[3]))


class RangeOperator(Operator):
    """Base of the operators whose parameters are drawn from a range, from a generator or out of uniform numbers."""

    neutral: ClassVar[tuple[float, ...]]  # the row that changes nothing

    def draw(self, random: np.random.Generator, n: int) -> Floats:
        """Parameter rows (n, p)."""
        return self.at(random.random((n, 2)))

    @abstractmethod
    def at(self, uniforms: Floats) -> Floats:
        """The rows (n, p) that stand at uniform numbers (n, 2) of the distribution `draw` draws from."""


@dataclass(frozen=True, kw_only=True)
class _Uniform(RangeOperator):
    low: float
    high: float

    def draw(self, random: np.random.Generator, n: int) -> Floats:
        return random.uniform(self.low, self.high, (n, 1))

    def at(self, uniforms: Floats) -> Floats:
        return self.low + (self.high - self.low) * uniforms[:, :1]


@dataclass(frozen=True, kw_only=True)
class _Signed(RangeOperator):
    """Size and sign are drawn."""

    low: float
    high: float

    def draw(self, random: np.random.Generator, n: int) -> Floats:
        size = (n, len(self.neutral))
        return np.asarray(random.uniform(self.low, self.high, size) * random.choice([-1.0, 1.0], size))

    def at(self, uniforms: Floats) -> Floats:
        twice = 2 * uniforms[:, : len(self.neutral)]
        return np.where(twice < 1, -1.0, 1.0) * (self.low + (self.high - self.low) * (twice % 1))


@dataclass(frozen=True, kw_only=True)
class SizeOperator(RangeOperator):
    """Base of the operators that are drawn a size in pixels: a subclass changes images of one size."""

    sizes: tuple[int, ...]
    neutral = (1.0,)
    integers = True

    def at(self, uniforms: Floats) -> Floats:
        return np.asarray(self.sizes, dtype=np.float64)[(uniforms[:, :1] * len(self.sizes)).astype(np.int64)]

    def apply(self, x: Tensor, parameters: Tensor) -> Tensor:
        out, sizes = x.clone(), parameters[:, 0].to(x)
        for size in map(int, sizes.unique().tolist()):
            mine = sizes == size
            out[mine] = self.with_size(x[mine], size)
        return out

    @abstractmethod
    def with_size(self, x: Tensor, size: int) -> Tensor: ...


def _about_centre(linear: Tensor, height: int, width: int, shift: Tensor | None = None) -> Tensor:
    """The pixel matrices (n, 2, 3) of x -> linear (x - centre) + centre + shift; centre is that of the pixel grid."""
    centre = linear.new_tensor([(width - 1) / 2, (height - 1) / 2])
    # Written out: a matrix product may round otherwise in another batch, and an item replayed alone must have the same pixels.
    offset = centre - (linear[:, :, 0] * centre[0] + linear[:, :, 1] * centre[1])  # (n, 2)
    offset = offset if shift is None else offset + shift
    return torch.cat([linear, offset.unsqueeze(2)], dim=2)


def _identity(like: Tensor) -> Tensor:
    return torch.eye(2, dtype=like.dtype, device=like.device).repeat(len(like), 1, 1)


def _slanted(factors: Tensor, height: int, width: int) -> Tensor:
    linear = _identity(factors)
    linear[:, 0, 1] = factors
    return _about_centre(linear, height, width)


def column(parameters: Tensor, x: Tensor) -> Tensor:
    """The first parameter of every item, to be multiplied with or added to x."""
    return parameters[:, 0].to(x).view(-1, *(1,) * (x.ndim - 1))


def warp(x: Tensor, matrices: Tensor, mode: str = "bilinear") -> Tensor:
    """Zeros come in."""
    from kornia.geometry.transform import warp_affine

    return warp_affine(x, matrices, (x.shape[2], x.shape[3]), mode=mode, padding_mode="zeros", align_corners=False)


@dataclass(frozen=True, kw_only=True)
class Shift(_Signed, Affine):
    """Move by a share of the size on each axis, sign and size drawn per axis."""

    low: float = 0.05
    high: float = 0.15
    neutral = (0.0, 0.0)

    def matrix(self, parameters: Tensor, height: int, width: int) -> Tensor:
        size = parameters.new_tensor([width, height])
        return _about_centre(_identity(parameters), height, width, parameters[:, :2] * size)


@dataclass(frozen=True, kw_only=True)
class Rotation(_Signed, Affine):
    """Turn about the centre by degrees, either way."""

    low: float = 5.0
    high: float = 25.0
    neutral = (0.0,)

    def matrix(self, parameters: Tensor, height: int, width: int) -> Tensor:
        angle = torch.deg2rad(parameters[:, 0])
        cosine, sine = angle.cos(), angle.sin()
        linear = torch.stack([torch.stack([cosine, sine], 1), torch.stack([-sine, cosine], 1)], 1)  # counter-clockwise as seen
        return _about_centre(linear, height, width)


@dataclass(frozen=True, kw_only=True)
class Scale(_Uniform, Affine):
    """Enlarge or shrink about the centre."""

    low: float = 0.8
    high: float = 1.2
    neutral = (1.0,)

    def matrix(self, parameters: Tensor, height: int, width: int) -> Tensor:
        return _about_centre(_identity(parameters) * parameters[:, :1, None], height, width)


@dataclass(frozen=True, kw_only=True)
class Shear(_Signed, Affine):
    """Slant along x by degrees, either way."""

    low: float = 15.0
    high: float = 30.0
    neutral = (0.0,)

    def matrix(self, parameters: Tensor, height: int, width: int) -> Tensor:
        return _slanted(torch.deg2rad(parameters[:, 0]).tan(), height, width)


# In the fuzzers' rule lists, in pixels and factors as they are written there:


class Translation(Affine):
    """Move by a number of pixels (right, down); black comes in."""

    integers = True

    def matrix(self, parameters: Tensor, height: int, width: int) -> Tensor:
        return _about_centre(_identity(parameters), height, width, parameters[:, :2])


class ShareTranslation(Affine):
    """Move by a share of the size (right, down), rounded to whole pixels; black comes in."""

    def matrix(self, parameters: Tensor, height: int, width: int) -> Tensor:
        pixels = (parameters[:, :2] * parameters.new_tensor([width, height])).round()
        return _about_centre(_identity(parameters), height, width, pixels)


class Slant(Affine):
    """Shear along x by a factor."""

    def matrix(self, parameters: Tensor, height: int, width: int) -> Tensor:
        return _slanted(parameters[:, 0], height, width)


@dataclass(frozen=True)
class Paste(Scale):
    """Shrink about the centre with cubic interpolation onto a canvas that is `white` or black."""

    white: bool = True
    batched: ClassVar[bool] = False

    def apply(self, x: Tensor, parameters: Tensor) -> Tensor:
        inverted = 1 - x if self.white else x  # the warp fills with zeros
        moved = warp(inverted, self.matrix(parameters, x.shape[2], x.shape[3]).to(x), "bicubic").clamp(0, 1)
        return 1 - moved if self.white else moved


@dataclass(frozen=True, kw_only=True)
class Contrast(_Uniform):
    """x * a."""

    low: float = 0.5
    high: float = 1.5
    neutral = (1.0,)

    def apply(self, x: Tensor, parameters: Tensor) -> Tensor:
        return x * column(parameters, x)


@dataclass(frozen=True, kw_only=True)
class Brightness(_Uniform):
    """x + (b - 1) / 2: adding b itself, as the usual reading has it, whitens the image."""

    low: float = 0.5
    high: float = 1.5
    neutral = (1.0,)

    def apply(self, x: Tensor, parameters: Tensor) -> Tensor:
        return x + (column(parameters, x) - 1) / 2


@dataclass(frozen=True, kw_only=True)
class BoxBlur(SizeOperator):
    """Mean over a square window, border replicated; the window's size is drawn from `sizes`."""

    sizes: tuple[int, ...] = (2, 3, 5, 7)

    def draw(self, random: np.random.Generator, n: int) -> Floats:
        return random.choice(np.asarray(self.sizes, dtype=np.float64), (n, 1))

    def with_size(self, x: Tensor, size: int) -> Tensor:
        from kornia.filters import box_blur

        return box_blur(x, (size, size), border_type="replicate")
