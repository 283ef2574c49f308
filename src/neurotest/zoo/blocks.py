"""Pieces several architectures share."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn


class Pixels(NamedTuple):
    """Mean and standard deviation of a data set's training images per channel, for images in 0 .. 1."""

    mean: tuple[float, ...]
    std: tuple[float, ...]

    @property
    def channels(self) -> int:
        return len(self.mean)


class Normalise(nn.Module):
    """Images in 0 .. 1 as the network likes them: zero mean, unit spread.

    It stands inside the network, so that a target needs no separate preprocessing: bounds, mutations and saved inputs are
    about pixels, and an exported network brings its normalisation along.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, pixels: Pixels) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(pixels.mean).view(-1, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(pixels.std).view(-1, 1, 1), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.mean) / self.std
