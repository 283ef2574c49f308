"""Settings of illumination, and the ways an input may be changed: smooth maps from a few parameters, the unchanged image at 0."""

from __future__ import annotations

from typing import ClassVar, Protocol

import torch
from torch import Tensor
from torch.nn import functional

from neurotest.checks import Settings, setting
from neurotest.errors import BadInput
from neurotest.registry import register

COARSE = 4  # pixels per knot of a shading
KNOTS = 4  # knots of a bend, along each side
FAR = 0.05  # a step changes no more than this, root mean square over the values
BEND = 0.1  # and a bend moves no knot by more than this share of half the image


class Change(Protocol):
    """One way. `clip` brings parameters back to their range; `most` is the longest step in parameters."""

    name: ClassVar[str]
    images: ClassVar[bool] = True  # whether it needs an image

    def start(self, seed: Tensor) -> Tensor: ...

    def make(self, seed: Tensor, theta: Tensor) -> Tensor: ...

    def clip(self, seed: Tensor, theta: Tensor) -> Tensor: ...

    def most(self, seed: Tensor) -> float: ...


class Noise(Change):
    """Every value for itself: the smallest changes there are, and nothing a camera would do."""

    name = "noise"
    images = False

    def start(self, seed: Tensor) -> Tensor:
        return torch.zeros_like(seed)

    def make(self, seed: Tensor, theta: Tensor) -> Tensor:
        return seed + theta

    def clip(self, seed: Tensor, theta: Tensor) -> Tensor:
        """Outside the graph: inside, a value at its bound would have no gradient."""
        return (seed + theta).clamp(0, 1) - seed

    def most(self, seed: Tensor) -> float:
        return float(FAR * seed[0].numel() ** 0.5)


class Shading(Change):
    """Light and shadow, the same for all colours: values on a coarse grid, smooth between them."""

    name = "shading"

    def start(self, seed: Tensor) -> Tensor:
        n, _, height, width = seed.shape
        return seed.new_zeros(n, 1, max(2, height // COARSE), max(2, width // COARSE))

    def make(self, seed: Tensor, theta: Tensor) -> Tensor:
        smooth = functional.interpolate(theta, seed.shape[2:], mode="bicubic", align_corners=True)
        return (seed + smooth).clamp(0, 1)

    def clip(self, seed: Tensor, theta: Tensor) -> Tensor:
        return theta.clamp(-1, 1)

    def most(self, seed: Tensor) -> float:
        return float(FAR * self.start(seed[:1]).numel() ** 0.5)


class Bend(Change):
    """The image bent: a few knots are moved, and everything between them follows smoothly."""

    name = "bend"

    def start(self, seed: Tensor) -> Tensor:
        return seed.new_zeros(len(seed), 2, KNOTS, KNOTS)

    def make(self, seed: Tensor, theta: Tensor) -> Tensor:
        height, width = seed.shape[2:]
        y = torch.linspace(-1, 1, height).to(seed).view(-1, 1).expand(height, width)
        x = torch.linspace(-1, 1, width).to(seed).view(1, -1).expand(height, width)
        moved = functional.interpolate(theta, (height, width), mode="bicubic", align_corners=True).permute(0, 2, 3, 1)
        grid = torch.stack([x, y], dim=-1)[None] + moved
        return functional.grid_sample(seed, grid, mode="bilinear", padding_mode="border", align_corners=True).clamp(0, 1)

    def clip(self, seed: Tensor, theta: Tensor) -> Tensor:
        return theta.clamp(-2 * BEND, 2 * BEND)

    def most(self, seed: Tensor) -> float:
        return float(BEND * (KNOTS * KNOTS) ** 0.5 / 2)


WAYS: tuple[Change, ...] = (Shading(), Bend(), Noise())


def ways(shape: tuple[int, ...]) -> tuple[Change, ...]:
    """The ways that inputs of this shape allow; only images can be shaded and bent."""
    image = len(shape) == 3 and min(shape[1:]) >= 2 * KNOTS
    return tuple(way for way in WAYS if image or not way.images)


BACKWARD = 2  # what a backward pass is counted as, in forward passes


@register(
    "generator",
    "illuminate",
    paper="ours; archives of cells come from MAP-Elites (Mouret and Clune, 2015), steps to the border from DeepFool (CVPR 2016)",
    cost="about ten forward passes per cell, a backward pass counted as two",
    differs="Cells are (true class, predicted class, way of change), and the quality of a cell is how small the change is.",
)
class Illuminate(Settings):
    """Fill an archive with one fault per (true class, predicted class, way of change), the smallest change that was found.

    changes: `all`, or some of `shading`, `bend`, `noise`, joined by +. steps: towards the aimed class, at most. batch: cells that
    are aimed at together.
    """

    name: ClassVar[str] = "illuminate"
    changes: str = "all"
    steps: int = setting(8, "8")
    batch: int = setting(32, "32")

    def __post_init__(self) -> None:
        super().__post_init__()
        names = [way.name for way in WAYS]
        if self.changes != "all" and any(part not in names for part in str(self.changes).split("+")):
            raise BadInput(
                "out-of-range", "changes", f"changes={self.changes!r}: expected all, or some of {', '.join(names)} joined by +."
            )

    def ways(self, shape: tuple[int, ...]) -> tuple[Change, ...]:
        """The chosen ways that inputs of this shape allow."""
        chosen = tuple(way for way in ways(shape) if self.changes == "all" or way.name in self.changes.split("+"))
        if not chosen:
            raise BadInput(
                "unsuitable",
                "changes",
                f"changes={self.changes!r}: inputs of shape {shape} are no images of 8 x 8 or more; use noise.",
            )
        return chosen
