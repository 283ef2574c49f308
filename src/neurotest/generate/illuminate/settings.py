"""How illumination works, and for how long."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from neurotest.checks import count
from neurotest.errors import BadInput
from neurotest.generate.illuminate.changes import WAYS, Change, ways
from neurotest.registry import register

BACKWARD = 2  # what a backward pass is counted as, in forward passes


@register(
    "generator",
    "illuminate",
    paper="ours; archives of cells come from MAP-Elites (Mouret and Clune, 2015), steps to the border from DeepFool (CVPR 2016)",
    cost="about ten forward passes per cell, a backward pass counted as two",
    differs="Cells are (true class, predicted class, way of change), and the quality of a cell is how small the change is.",
)
@dataclass(frozen=True, kw_only=True)
class Illuminate:
    """Fill an archive with one fault per (true class, predicted class, way of change), the smallest change that was found.

    changes: `all`, or some of `shading`, `bend`, `noise`, joined by +. steps: towards the aimed class, at most. batch: cells that
    are aimed at together.
    """

    name: ClassVar[str] = "illuminate"
    changes: str = "all"
    steps: int = 8
    batch: int = 32

    def __post_init__(self) -> None:
        count("steps", self.steps, "8")
        count("batch", self.batch, "32")
        names = [way.name for way in WAYS]
        if self.changes != "all" and any(part not in names for part in str(self.changes).split("+")):
            raise BadInput(f"changes={self.changes!r}: expected all, or some of {', '.join(names)} joined by +.")

    def ways(self, shape: tuple[int, ...]) -> tuple[Change, ...]:
        """The chosen ways that inputs of this shape allow."""
        chosen = tuple(way for way in ways(shape) if self.changes == "all" or way.name in self.changes.split("+"))
        if not chosen:
            raise BadInput(f"changes={self.changes!r}: inputs of shape {shape} are no images of 8 x 8 or more; use noise.")
        return chosen
