"""Changes that images go through on their way to a network: coarse pixels, hidden parts, gamma; noise, JPEG, fog."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from neurotest import registry, rng
from neurotest.errors import BadInput
from neurotest.mutate.base import Family, Mutations
from neurotest.mutate.operators import Floats, RangeOperator, SizeOperator, WhiteNoise, column

NUMBERS = 2.0**53  # of noises that can be told apart
SQUARE = 8  # pixels that a JPEG transforms together
TALLEST, LARGEST = 65_000, 1 << 22  # rows and pixels of a JPEG with many images


@dataclass(frozen=True, kw_only=True)
class _Numbered(RangeOperator):
    """One value of a range, and a number from which everything else of the change is drawn."""

    low: float
    high: float
    neutral: ClassVar[tuple[float, ...]] = (0.0,)

    def at(self, uniforms: Floats) -> Floats:
        return np.column_stack([self.low + (self.high - self.low) * uniforms[:, 0], np.floor(uniforms[:, 1] * NUMBERS)])


@dataclass(frozen=True, kw_only=True)
class _NormalNoise(_Numbered):
    """x + normal noise; parameters: spread, number of the noise."""

    low: float = 0.1
    high: float = 0.3

    def apply(self, x: Tensor, parameters: Tensor) -> Tensor:
        return WhiteNoise().apply(x, parameters)


@dataclass(frozen=True, kw_only=True)
class _Occlusion(_Numbered):
    """A square of one grey hides a part; parameters: its side as a share of the smaller side, number of place and grey."""

    low: float = 0.25
    high: float = 0.5

    def apply(self, x: Tensor, parameters: Tensor) -> Tensor:
        height, width = x.shape[2:]
        shares, numbers = parameters[:, :2].cpu().double().numpy().T
        sizes = np.minimum((shares * min(height, width)).astype(np.int64), min(height, width))
        streams = rng.streams("mutate.occlusion", map(int, numbers.tolist()))
        down, right, grey = np.array([random.random(3) for random in streams]).reshape(-1, 3).T
        inside = _between(down, sizes, height)[:, :, None] & _between(right, sizes, width)[:, None, :]  # (n, h, w)
        hidden, greys = (torch.from_numpy(a).to(x.device) for a in (inside, grey))
        return torch.where(hidden[:, None], greys.to(x).view(-1, 1, 1, 1), x)


def _between(place: Floats, sizes: np.ndarray, length: int) -> np.ndarray:
    """(n, length) which of so many pixels a part of this size hides that lies at this share of the room there is."""
    first = (place * (length - sizes)).astype(np.int64)[:, None]
    here = np.arange(length)
    return np.asarray((here >= first) & (here < first + sizes[:, None]))


@dataclass(frozen=True, kw_only=True)
class _Coarse(SizeOperator):
    """Squares of `sizes` pixels take the mean of what they cover; a rest at the right and lower border stays."""

    sizes: tuple[int, ...] = (2, 3, 4)

    def with_size(self, x: Tensor, size: int) -> Tensor:
        rows, columns = x.shape[2] // size, x.shape[3] // size
        out = x.clone()
        if rows and columns:
            whole = x[:, :, : rows * size, : columns * size]
            means = whole.unflatten(3, (columns, size)).unflatten(2, (rows, size)).mean(dim=(3, 5))
            out[:, :, : rows * size, : columns * size] = means.repeat_interleave(size, 2).repeat_interleave(size, 3)
        return out


@dataclass(frozen=True, kw_only=True)
class _Gamma(RangeOperator):
    """x to the power g: half of the draws brighten (g from `bright`), half darken (g from `dark`)."""

    bright: tuple[float, float] = (0.2, 0.6)
    dark: tuple[float, float] = (2.0, 5.0)
    neutral = (1.0,)

    def at(self, uniforms: Floats) -> Floats:
        twice = 2 * uniforms[:, :1]
        (a, b), (c, d) = self.bright, self.dark
        return np.where(twice < 1, a + (b - a) * twice, c + (d - c) * (twice - 1))

    def apply(self, x: Tensor, parameters: Tensor) -> Tensor:
        return x.clamp(0, 1) ** column(parameters, x)


@dataclass(frozen=True, kw_only=True)
class _Fog(RangeOperator):
    """a x + (1 - a) light: contrast is lost towards one grey; parameters: a, light."""

    kept: tuple[float, float] = (0.15, 0.5)
    light: tuple[float, float] = (0.3, 0.8)
    neutral = (1.0, 0.0)

    def at(self, uniforms: Floats) -> Floats:
        (a, b), (c, d) = self.kept, self.light
        return np.column_stack([a + (b - a) * uniforms[:, 0], c + (d - c) * uniforms[:, 1]])

    def apply(self, x: Tensor, parameters: Tensor) -> Tensor:
        kept, light = column(parameters, x), column(parameters[:, 1:], x)
        return kept * x + (1 - kept) * light


@dataclass(frozen=True, kw_only=True)
class _Jpeg(RangeOperator):
    """Through a JPEG file of low quality and back; parameter: the quality. Grey and RGB images."""

    low: int = 5
    high: int = 25  # not reached
    neutral = (100.0,)
    integers = True

    def at(self, uniforms: Floats) -> Floats:
        return np.floor(self.low + (self.high - self.low) * uniforms[:, :1])

    def apply(self, x: Tensor, parameters: Tensor) -> Tensor:
        if x.shape[1] not in (1, 3):
            raise BadInput("unsuitable", "channels", f"jpeg needs grey or RGB images, not {x.shape[1]} channels.")
        pixels = x.clamp(0, 1).mul(255).round().to(torch.uint8).permute(0, 2, 3, 1).cpu().numpy()  # (n, h, w, c)
        back, qualities = np.empty_like(pixels), parameters[:, 0].cpu().numpy().astype(np.int64)
        for quality in np.unique(qualities).tolist():
            mine = np.flatnonzero(qualities == quality)
            if x.shape[1] == 1:
                back[mine, :, :, 0] = _grey_files(pixels[mine, :, :, 0], quality)
            else:  # colours are stored coarser and smoothed across squares when read: no two images in one file
                back[mine] = [_through_file(one, quality) for one in pixels[mine]]
        return torch.from_numpy(back).to(x).div_(255).permute(0, 3, 1, 2)


def _through_file(pixels: np.ndarray, quality: int) -> np.ndarray:
    """(h, w) or (h, w, 3) of 8 bits, written as a JPEG and read again."""
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=quality)
    return np.asarray(Image.open(file))


def _grey_files(pixels: np.ndarray, quality: int) -> np.ndarray:
    """(n, h, w) through JPEG files, many below each other in each: a grey JPEG's squares of 8 x 8 know nothing of each other.

    What sticks out beyond the last whole square is filled up by repeating the border, as is done with a single image.
    """
    n, height, width = pixels.shape
    tall, wide = -(-height // SQUARE) * SQUARE, -(-width // SQUARE) * SQUARE
    filled = np.pad(pixels, ((0, 0), (0, tall - height), (0, wide - width)), mode="edge")
    each = max(1, min(TALLEST // tall, LARGEST // (tall * wide)))
    parts = [filled[i : i + each].reshape(-1, wide) for i in range(0, n, each)]
    back = np.concatenate([_through_file(part, quality) for part in parts]).reshape(n, tall, wide)
    return np.asarray(back[:, :height, :width])


class _Range(Mutations):
    """Base of sets of operators that draw from ranges, each equally often."""

    operators: ClassVar[dict[str, Callable[[], RangeOperator]]]

    def _families(self) -> Sequence[Family]:
        made = {name: make() for name, make in self.operators.items()}
        return [Family(name, one, (), one.neutral, seeded=isinstance(one, _Numbered)) for name, one in made.items()]


@registry.register("mutation", "views", paper="", cost="about a twentieth of a LeNet-5 forward pass per input")
class ViewMutations(_Range):
    """Coarse pixels (squares of 2 to 4), a grey square over a part (a quarter to half the side), gamma (0.2 to 0.6, 2 to 5)."""

    operators: ClassVar = {"coarse": _Coarse, "occlusion": _Occlusion, "gamma": _Gamma}


@registry.register(
    "mutation",
    "corruptions",
    paper="after Hendrycks and Dietterich, ICLR 2019",
    cost="mostly JPEG: 0.1 ms per small image",
    differs="Three of the corruptions, with ranges of our own.",
)
class CorruptionMutations(_Range):
    """Normal noise (spread 0.1 to 0.3), JPEG (quality 5 to 24), and a fog-like loss of contrast."""

    operators: ClassVar = {"noise": _NormalNoise, "jpeg": _Jpeg, "fog": _Fog}
