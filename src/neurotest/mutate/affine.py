"""Affine operators of the fuzzers' rule lists: pixels, factors and degrees as they are written there."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from neurotest.mutate.operators import Rotation, Scale, _Affine, _identity, about_centre, warp

__all__ = ["Paste", "Rotation", "Slant", "Translation"]


class Translation(_Affine):
    """Move by whole pixels (right, down); black comes in."""

    def matrix(self, parameters: Tensor, height: int, width: int) -> Tensor:
        return about_centre(_identity(len(parameters), parameters), parameters[:, :2], height, width)


class Slant(_Affine):
    """Shear along x by a factor."""

    def matrix(self, parameters: Tensor, height: int, width: int) -> Tensor:
        linear = _identity(len(parameters), parameters)
        linear[:, 0, 1] = parameters[:, 0]
        return about_centre(linear, torch.zeros_like(parameters[:, :1]).expand(-1, 2), height, width)


@dataclass(frozen=True)
class Paste(Scale):
    """Shrink about the centre with cubic interpolation onto a canvas that is `white` or black."""

    white: bool = True

    def apply(self, x: Tensor, parameters: Tensor) -> Tensor:
        from kornia.geometry.transform import warp_affine

        matrices = self.matrix(parameters, x.shape[2], x.shape[3]).to(x)
        shown = 1 - x if self.white else x  # the warp fills with zeros
        moved: Tensor = warp_affine(
            shown, matrices, (x.shape[2], x.shape[3]), mode="bicubic", padding_mode="zeros", align_corners=False
        )
        moved = moved.clamp(0, 1)
        return 1 - moved if self.white else moved


def warp_all(x: Tensor, matrices: Tensor) -> Tensor:
    """One call for every affine item of a batch."""
    return warp(x, matrices.to(x))
