"""What a step may change: the light of the whole image, one rectangle, or small patches that go black."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from neurotest.errors import BadInput

Constraint = Literal["light", "occlusion", "blackout", "free"]
CONSTRAINTS = ("light", "occlusion", "blackout", "free")
SIDES = {"occlusion": 10, "blackout": 6}  # of the rectangle, as published for 28 x 28 images


def rectangles(shape: tuple[int, ...], side: int, uniforms: NDArray[np.float64], like: Tensor) -> Tensor:
    """A rectangle per row of uniform numbers (n, 2), all inside the image: (n, 1, h, w) of 0 and 1."""
    height, width = shape[-2:]
    tall, wide = min(side, height), min(side, width)
    top = torch.from_numpy(np.floor(uniforms[:, 0] * (height - tall + 1))).to(like).view(-1, 1, 1, 1)
    left = torch.from_numpy(np.floor(uniforms[:, 1] * (width - wide + 1))).to(like).view(-1, 1, 1, 1)
    rows = torch.arange(height).to(like).view(1, 1, -1, 1)
    columns = torch.arange(width).to(like).view(1, 1, 1, -1)
    inside = (rows >= top) & (rows < top + tall) & (columns >= left) & (columns < left + wide)
    return inside.to(like)


def constrain(gradient: Tensor, constraint: Constraint, inside: Tensor | None) -> Tensor:
    """What is left of a gradient (n, *shape); `inside` is each row's rectangle.

    light: its mean everywhere. occlusion: itself inside the rectangle. blackout: -1 inside the rectangle where its mean there
    is below 0, else nothing.
    """
    if constraint == "free":
        return gradient
    if constraint == "light":
        mean = gradient.flatten(1).mean(1)
        return mean.view(-1, *[1] * (gradient.ndim - 1)).expand_as(gradient)
    assert inside is not None
    if constraint == "occlusion":
        return gradient * inside
    darker = (gradient * inside).flatten(1).sum(1) < 0
    return -(inside * darker.to(gradient).view(-1, 1, 1, 1)).expand_as(gradient)


def check(constraint: str, shape: tuple[int, ...]) -> None:
    if constraint in SIDES and len(shape) != 3:
        raise BadInput(
            f"constraint={constraint!r} needs images (channels, height, width), not inputs of shape {shape}: use light or free."
        )
