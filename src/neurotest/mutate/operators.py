"""Image operators on batches (n, c, h, w) in [0, 1], one parameter row per item; the pixels are moved by kornia.

An operator holds settings only. Affine ones give a matrix, so that all affine items of a batch are warped in one call; those of
a range draw their parameters themselves.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from neurotest import rng

Floats = NDArray[np.float64]
BILATERAL = 10  # the number of the one blur that costs more than all others together


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


def shifted(pixels: Tensor, height: int, width: int) -> Tensor:
    """The matrices (n, 2, 3) that move by pixels (n, 2), right and down."""
    return _about_centre(_identity(pixels), height, width, pixels)


def slanted(factors: Tensor, height: int, width: int) -> Tensor:
    """Those that shear along x by factors (n,)."""
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
        return shifted(parameters[:, :2] * size, height, width)


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
        return slanted(torch.deg2rad(parameters[:, 0]).tan(), height, width)


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


@dataclass(frozen=True)
class Add(Operator):
    """Brightness: x + b / 255 of the `contrast`, the range of values in the data."""

    contrast: float = 1.0
    integers: ClassVar[bool] = True

    def apply(self, x: Tensor, parameters: Tensor) -> Tensor:
        return x + self.contrast * column(parameters, x) / 255


class Blur(Operator):
    """Blurs by number: 1 to 3 mean of 3, 4, 5; 4 to 6 Gaussian of 3, 5, 7; 7 and 8 median of 3, 5; 9 mean of 6; 10 bilateral.

    Border pixels are repeated (zeros for the median, mirrored by the bilateral).
    """

    mildest_first = (1.0, 4.0, 7.0, 2.0, 5.0, 3.0, 8.0, 6.0, 9.0, 10.0)

    def apply(self, x: Tensor, parameters: Tensor) -> Tensor:
        from kornia.filters import bilateral_blur, filter2d, median_blur

        out, numbers = x.clone(), parameters[:, 0].to(x)
        linear = torch.isin(numbers, torch.tensor(LINEAR, dtype=numbers.dtype, device=x.device))
        if bool(linear.any()):  # all of them in one call: each item's window stands in the middle of one of 7 x 7
            kernels = torch.stack([_kernel(int(n)) for n in numbers[linear].tolist()]).to(x)
            out[linear] = filter2d(x[linear], kernels, border_type="replicate")
        for number in numbers[~linear].unique().tolist():  # kornia takes one window per call
            mine = numbers == number
            if number == BILATERAL:
                out[mine] = _with_room(x[mine], 9, lambda part: bilateral_blur(part, (9, 9), 75 / 255, (75.0, 75.0)))
            else:
                window = MEDIANS[number]
                out[mine] = _with_room(x[mine], window[0], functools.partial(median_blur, kernel_size=window))
        return out


def _with_room(x: Tensor, window: int, blur: Callable[[Tensor], Tensor]) -> Tensor:
    """Blur images that may be smaller than the window: those cannot be mirrored, so their border is repeated."""
    border = window // 2
    if border < min(x.shape[-2:]):
        return blur(x)
    height, width = x.shape[-2:]
    wide = torch.nn.functional.pad(x, [border] * 4, mode="replicate")
    return blur(wide)[..., border : border + height, border : border + width]


LINEAR, MEDIANS = (1, 2, 3, 4, 5, 6, 9), {7: (3, 3), 8: (5, 5)}


@functools.cache
def _kernel(number: int) -> Tensor:
    from kornia.filters import get_gaussian_kernel2d

    size = {1: 3, 2: 4, 3: 5, 4: 3, 5: 5, 6: 7, 9: 6}[number]
    sigma = 0.3 * ((size - 1) * 0.5 - 1) + 0.8  # the width that goes with a window when none is given
    window = torch.full((size, size), 1 / size**2) if number in (1, 2, 3, 9) else get_gaussian_kernel2d(size, (sigma, sigma))[0]
    whole = torch.zeros(7, 7)
    first = (7 - size) // 2
    whole[first : first + size, first : first + size] = window
    return whole


def streams(purpose: str, parameters: Tensor) -> Iterator[np.random.Generator]:
    """One for each item: that of the number that was drawn for it, the second parameter."""
    return rng.streams(purpose, map(int, parameters[:, 1].tolist()))


def normal_noise(purpose: str, parameters: Tensor, x: Tensor, kind: type[np.floating[Any]]) -> Tensor:
    """Of the shape of x, drawn in this precision, each item from its own stream."""
    noise = np.empty(tuple(x.shape), dtype=kind)
    for random, one in zip(streams(purpose, parameters), noise, strict=True):
        random.standard_normal(out=one, dtype=kind)
    return torch.from_numpy(noise).to(x)


class WhiteNoise(Operator):
    """x + normal noise; parameters: spread, number of the noise."""

    def apply(self, x: Tensor, parameters: Tensor) -> Tensor:
        return x + column(parameters, x) * normal_noise("mutate.noise", parameters, x, np.float32)
