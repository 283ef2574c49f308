"""Lists of rules that fuzzers draw from: rules95, rules98, DeepHunter's and TensorFuzz's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from neurotest import registry
from neurotest.checks import setting
from neurotest.devices import exact
from neurotest.errors import BadInput
from neurotest.levels import Levels
from neurotest.mutate.base import Family, RuleMutations, single
from neurotest.mutate.operators import (
    BILATERAL,
    Add,
    Affine,
    Blur,
    Contrast,
    Operator,
    Rotation,
    Scale,
    WhiteNoise,
    shifted,
    slanted,
    streams,
    warp,
)
from neurotest.mutate.style import AdaIN, Style, StyleImages, StyleTransfer

MOVES = ((-5, -5), (-5, 0), (0, -5), (0, 0), (5, 0), (0, 5), (5, 5))
PIXEL_SHARE = 1 / 30  # of the size, instead of a pixel: 5 of them are 5 pixels of 28 and of 32
RANGE_QUANTILES = (0.001, 0.999)  # quantiles between which the values of the data lie
ENOUGH_VALUES = 2_000_000  # values that show the range
USUAL = 30  # pixels of the images that fuzzers were made for: 28 of MNIST, 32 of CIFAR-10


class _Translation(Affine):
    """Move by a number of pixels (right, down); black comes in."""

    integers = True

    def matrix(self, parameters: Tensor, height: int, width: int) -> Tensor:
        return shifted(parameters[:, :2], height, width)


class _ShareTranslation(Affine):
    """Move by a share of the size (right, down), rounded to whole pixels; black comes in."""

    def matrix(self, parameters: Tensor, height: int, width: int) -> Tensor:
        pixels = (parameters[:, :2] * parameters.new_tensor([width, height])).round()
        return shifted(pixels, height, width)


class _Slant(Affine):
    """Shear along x by a factor."""

    def matrix(self, parameters: Tensor, height: int, width: int) -> Tensor:
        return slanted(parameters[:, 0], height, width)


@dataclass(frozen=True)
class _Paste(Scale):
    """Shrink about the centre with cubic interpolation onto a canvas that is `white` or black."""

    white: bool = True
    batched: ClassVar[bool] = False

    def apply(self, x: Tensor, parameters: Tensor) -> Tensor:
        inverted = 1 - x if self.white else x  # the warp fills with zeros
        moved = warp(inverted, self.matrix(parameters, x.shape[2], x.shape[3]).to(x), "bicubic").clamp(0, 1)
        return 1 - moved if self.white else moved


class _SharedBlur(Blur):
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


def _noise(parameters: Tensor, x: Tensor, make: Callable[[np.random.Generator, Tensor], Tensor]) -> Tensor:
    """One item after the other, each from its own stream."""
    return torch.stack([make(random, one) for random, one in zip(streams("mutate.noise", parameters), x, strict=True)])


class _PixelChange(Operator):
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


class _Noise(Operator):
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


def _contrast_of(x: Tensor) -> float:
    """The range of values in images (n, ...) in [0, 1], in steps of 0.05: 1 if they use all of it."""
    values = x.flatten()
    values = exact(values[:: max(1, len(values) // ENOUGH_VALUES)])
    low, high = torch.quantile(values, torch.tensor(RANGE_QUANTILES, dtype=values.dtype)).tolist()
    return max(0.05, round(20 * float(high - low)) / 20)


@registry.register(
    "mutation",
    "rules95",
    paper="NeuraL-Coverage, ICSE 2023; NSGen, section 5.2",
    cost="about a third of a LeNet-5 forward pass per mutant, the bilateral blur several times that",
    differs="71 affine and 24 pixel rules, three of which change nothing. NSGen's text counts style among the 95; its code does "
    "not: that is `rules98`. The code draws rules equally often, so that 63 % are rotations (`choice=rule`); here families "
    "are. Smaller images are placed on white, as published; `white=false` is kinder to data with a black background. Warps "
    "and blurs are kornia's, which differ from OpenCV's in the last digits. Campaigns use `units=image` unless told "
    "otherwise: shifts, blurs and brightness in shares of the image instead of pixels and grey levels; on images of 28 to 32 "
    "pixels that use their whole range the two are equal, value for value.",
)
class Rules95(RuleMutations):
    """Translation (7), scale (4), rotation (60), each once per lineage; contrast (7), brightness (7), blur (10).

    white: what surrounds a shrunk image. bilateral: whether the tenth blur, the slow one, is among the rules. units: `pixels` as
    published (shifts of 5 pixels, blurs over up to 9, 10 to 70 of 255 grey levels brighter), or `image` (shifts of a sixth of the
    size, blurs as wide beside the image, brightness in shares of the contrast). contrast: the range of values in the data; none:
    learned from the seeds.
    """

    white: bool = True
    bilateral: bool = True
    units: Literal["pixels", "image"] = "pixels"
    contrast: float | None = setting(None, "the range of values in the data, 1 for all of it", above=0, most=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.contrast is not None and self.units == "pixels":
            raise BadInput(
                "conflict", "contrast", f"contrast={self.contrast}: belongs to units=image; published strengths are absolute."
            )

    def fitted(self, x: Tensor) -> Rules95:
        if self.units == "pixels" or self.contrast is not None:
            return self
        return replace(self, contrast=_contrast_of(x))

    def unfitted(self) -> Rules95:
        return replace(self, contrast=None)

    def _families(self) -> Sequence[Family]:
        image, contrast = self.units == "image", self.contrast or 1.0
        translation: Affine = _ShareTranslation() if image else _Translation()
        unit, blur = (PIXEL_SHARE, _SharedBlur()) if image else (1.0, Blur())
        return (
            Family("translation", translation, tuple((a * unit, b * unit) for a, b in MOVES), (0.0, 0.0), once=True),
            Family("scale", _Paste(white=self.white), single((0.8, 0.85, 0.9, 0.95)), (1.0,), once=True),
            Family("rotation", Rotation(), single(range(-30, 30)), (0.0,), once=True),
            Family("contrast", Contrast(), single([0.8 + 0.2 * i for i in range(7)]), (1.0,)),
            Family("brightness", Add(contrast), single(range(10, 80, 10)), (0.0,)),
            Family("blur", blur, single(range(1, 11 if self.bilateral else BILATERAL)), (0.0,)),
        )


@registry.register(
    "mutation",
    "rules98",
    paper="NSGen, section 5.2",
    cost="as rules95; style costs about as much as a blur",
    differs="The paper transfers style with AdaIN and 5,935 paintings, which need downloaded weights. Ours are weight-free (Lab "
    "colour statistics, Fourier amplitudes, procedural textures, drawn equally often) with style images made from numbers; "
    "in Python `Rules98(transfers=(AdaIN(encoder, decoder),))` uses the real one.",
)
class Rules98(Rules95):
    """rules95 and style transfer at strengths 0.4, 0.6 and 0.8.

    styles: a folder of style images (default: generated ones). transfers: other transfers, for example AdaIN.
    """

    opens: ClassVar[tuple[str, ...]] = ("styles",)

    styles: str | None = None
    transfers: tuple[StyleTransfer | AdaIN, ...] | None = field(default=None, compare=False)

    def _families(self) -> Sequence[Family]:
        transfers = self.transfers or tuple(entry.make for entry in registry.entries("style transfer").values())
        images = StyleImages() if self.styles is None else StyleImages.of(self.styles)
        style = Family("style", Style(transfers, images), single((0.4, 0.6, 0.8)), (0.0,), seeded=True, exempt=True)
        return (*super()._families(), style)


def _tenths(first: int, last: int) -> tuple[tuple[float, ...], ...]:
    return single([i / 10 for i in range(first, last + 1)])


@registry.register(
    "mutation",
    "deephunter",
    paper="Xie et al., DeepHunter, ISSTA 2019",
    cost="as rules95 without its bilateral blur",
    differs="The amplitudes of the three kinds of noise are ours. As in the released code everything but pixel changes and noise "
    "is allowed once per lineage and not checked.",
)
class DeepHunterMutations(RuleMutations):
    """Translation, scale, shear, rotation, contrast, brightness, blur (once per lineage), pixel change and noise."""

    formerly: ClassVar[tuple[str, ...]] = ("DeepHunterSpace",)

    def _families(self) -> Sequence[Family]:
        return (
            Family("translation", _Translation(), tuple((float(t), float(t)) for t in range(-3, 3)), (0.0, 0.0), once=True),
            Family("scale", _Paste(white=False), _tenths(7, 11), (1.0,), once=True),
            Family("shear", _Slant(), _tenths(-6, 5), (0.0,), once=True),
            Family("rotation", Rotation(), single(range(-50, 50)), (0.0,), once=True),
            Family("contrast", Contrast(), _tenths(5, 12), (1.0,), once=True),
            Family("brightness", Add(), single(range(-20, 20)), (0.0,), once=True),
            Family("blur", Blur(), single(range(1, 10)), (0.0,), once=True),
            Family("pixels", _PixelChange(), single(range(1, 10)), (0.0,), seeded=True),
            Family("noise", _Noise(), single((1, 2, 3)), (0.0,), seeded=True),
        )


@registry.register(
    "mutation", "tensorfuzz", paper="Odena et al., TensorFuzz, ICML 2019", cost="one normal number per value", main="sigma"
)
class TensorFuzzMutations(RuleMutations):
    """White noise of spread `sigma`, clipped; `constraint` keeps every value that close to the seed. Takes any shape of input."""

    sigma: float = setting(0.2, "TensorFuzz uses 0.2", above=0)
    constraint: float | None = setting(None, "or none", above=0)
    formerly: ClassVar[tuple[str, ...]] = ("TensorFuzzSpace",)

    def _families(self) -> Sequence[Family]:
        return (Family("noise", WhiteNoise(), ((self.sigma,),), (0.0,), seeded=True, exempt=True),)

    @property
    def needs_root(self) -> bool:
        return self.constraint is not None

    def _finish(self, x: Tensor, root: Tensor | None, levels: Levels | None) -> Tensor:
        if self.constraint is not None and root is not None:
            x = torch.minimum(torch.maximum(x, root - self.constraint), root + self.constraint)
        return super()._finish(x, root, levels)

    def check(self, shape: tuple[int, ...]) -> None:
        return None
