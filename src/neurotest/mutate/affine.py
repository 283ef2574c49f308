"""Affine operators of the fuzzers' rule lists: pixels, factors and degrees as they are written there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from neurotest.mutate.operators import Affine, Scale, about_centre, identity


class Translation(Affine):
    """Move by a number of pixels (right, down); black comes in."""

    integers = True

    def matrix(self, parameters: Tensor, height: int, width: int) -> Tensor:
        return about_centre(identity(len(parameters), parameters), height, width, parameters[:, :2])


class Slant(Affine):
    """Shear along x by a factor."""

    def matrix(self, parameters: Tensor, height: int, width: int) -> Tensor:
        linear = identity(len(parameters), parameters)
        linear[:, 0, 1] = parameters[:, 0]
        return about_centre(linear, height, width)


@dataclass(frozen=True)
class Paste(Scale):
    """Shrink about the centre with cubic interpolation onto a canvas that is `white` or black."""

    white: bool = True
    batched: ClassVar[bool] = False

    def apply(self, x: Tensor, parameters: Tensor) -> Tensor:
        from kornia.geometry.transform import warp_affine

        size = (x.shape[2], x.shape[3])
        inverted = 1 - x if self.white else x  # the warp fills with zeros
        moved: Tensor = warp_affine(
            inverted, self.matrix(parameters, *size).to(x), size, mode="bicubic", padding_mode="zeros", align_corners=False
        )
        moved = moved.clamp(0, 1)
        return 1 - moved if self.white else moved
