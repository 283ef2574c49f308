"""Pixel operators of the fuzzers' rule lists, on batches (n, c, h, w) in [0, 1] with one parameter row per item."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from neurotest import rng
from neurotest.mutate.operators import Operator, column

USUAL = 30  # pixels of the images that fuzzers were made for: 28 of MNIST, 32 of CIFAR-10
BILATERAL = 10  # the number of the one blur that costs more than all others together


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


class SharedBlur(Blur):
    """The same blurs, as wide beside the image as they are beside one of USUAL pixels.

    Larger images are blurred at that size, by means over squares and linear interpolation back; of smaller ones every pixel is a
    square of several.
    """

    def apply(self, x: Tensor, parameters: Tensor) -> Tensor:
        size, (height, width) = min(x.shape[-2:]), x.shape[-2:]
        if (times := round(USUAL / size)) > 1:
            wide = x.repeat_interleave(times, -2).repeat_interleave(times, -1)
            return torch.nn.functional.avg_pool2d(super().apply(wide, parameters), times)
        if (times := round(size / USUAL)) > 1:
            small = torch.nn.functional.adaptive_avg_pool2d(x, (round(height / times), round(width / times)))
            blurred = super().apply(small, parameters)
            return torch.nn.functional.interpolate(blurred, (height, width), mode="bilinear", align_corners=False)
        return super().apply(x, parameters)


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
        random.standard_normal(out=one, dtype=kind)  # type: ignore[arg-type]
    return torch.from_numpy(noise).to(x)


def _noise(parameters: Tensor, x: Tensor, make: Callable[[np.random.Generator, Tensor], Tensor]) -> Tensor:
    """One item after the other, each from its own stream."""
    return torch.stack([make(random, one) for random, one in zip(streams("mutate.noise", parameters), x, strict=True)])


class WhiteNoise(Operator):
    """x + normal noise; parameters: spread, number of the noise."""

    def apply(self, x: Tensor, parameters: Tensor) -> Tensor:
        return x + column(parameters, x) * normal_noise("mutate.noise", parameters, x, np.float32)


class PixelChange(Operator):
    """So many pixels get a value drawn between 0 and 1; parameters: how many, number of the noise."""

    integers = True

    def apply(self, x: Tensor, parameters: Tensor) -> Tensor:
        counts = iter(parameters[:, 0].tolist())

        def make(random: np.random.Generator, one: Tensor) -> Tensor:
            places = random.choice(one[0].numel(), min(int(next(counts)), one[0].numel()), replace=False)
            changed = one.flatten(1).clone()
            changed[:, torch.from_numpy(places).to(one.device)] = torch.from_numpy(random.random((len(one), len(places)))).to(one)
            return changed.view_as(one)

        return _noise(parameters, x, make)


class Noise(Operator):
    """Three kinds: 1 normal noise of spread 0.05, 2 salt and pepper on 0.4 % of the values, 3 speckle, x * (1 + normal 0.1)."""

    mildest_first = ()  # none is milder than another

    def apply(self, x: Tensor, parameters: Tensor) -> Tensor:
        kinds = iter(parameters[:, 0].tolist())

        def make(random: np.random.Generator, one: Tensor) -> Tensor:
            kind = int(next(kinds))
            if kind == 2:
                drawn = torch.from_numpy(random.random(tuple(one.shape))).to(one)
                return torch.where(drawn < 0.002, 0.0, torch.where(drawn > 0.998, 1.0, one))
            normal = torch.from_numpy(random.standard_normal(tuple(one.shape))).to(one)
            return one + 0.05 * normal if kind == 1 else one * (1 + 0.1 * normal)

        return _noise(parameters, x, make)
