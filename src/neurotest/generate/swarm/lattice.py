"""Lattices: values so far apart that each moves hidden neurons of its own are flipped together, and a map of what the neurons owe
says at once which of these flips help."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from neurotest import rng
from neurotest.generate.swarm.ball import Ball
from neurotest.generate.swarm.measure import Measure
from neurotest.mutate.space import from_unit

# Of the flips that help, best first, so many are tried together. Chosen on test images with even numbers.
SHARES = (1.0, 0.5, 0.25, 0.12)
STEPS = (0.25, 0.5, 1.0, 2.0)  # in an L2 ball: steps along the slope, in radii
LITTLE = 0.05  # how far a survey moves a value there
ROUNDING = 1e-4  # of the largest change: less comes from other orders of summation in other batches


@dataclass(frozen=True, eq=False)
class Footprint:
    """Which rows (first, last) and columns of the map each row and column of the input reaches, and how far apart values must
    lie so that no two reach the same place."""

    rows: Tensor  # (height, 2)
    columns: Tensor  # (width, 2)
    spacing: int

    @classmethod
    def of(cls, measure: Measure) -> Footprint | None:
        """Measured: one row after the other is changed in random inputs. None: there is no map, or no place is far enough."""
        shape = tuple(measure.problem.seeds.shape[1:])
        if not measure.local or len(shape) != 3:
            return None
        noise = torch.rand((2, *shape), generator=rng.torch_stream("swarm.footprint", 0)).to(measure.problem.seeds)
        rows, columns = (_reached(measure, noise, axis) for axis in (2, 3))
        spacing = max(_spacing(rows), _spacing(columns))
        return cls(rows, columns, spacing) if 2 * spacing <= min(shape[1:]) else None


def _reached(measure: Measure, noise: Tensor, axis: int) -> Tensor:
    """(side, 2): first and last line of the map that differs when a line of the input does; (0, -1): none does."""
    side = noise.shape[axis]
    lines = torch.arange(side, device=noise.device)
    here = (lines[:, None] == lines[None, :]).view(side, 1, 1, *((side, 1) if axis == 2 else (1, side)))
    moved = torch.where(here, 1 - noise[None], noise[None]).flatten(0, 1)  # (side * 2, *shape)
    base = measure.maps(from_unit(noise, measure.problem.target.bounds)).repeat(side, *[1] * 3)
    away = (measure.maps(from_unit(moved, measure.problem.target.bounds)) - base).abs()
    differs = (away > ROUNDING * away.max()).any(1).any(2 if axis == 2 else 1)
    measure.forwards += len(noise) + len(moved)
    hit = differs.view(side, len(noise), -1).any(1)  # (side, lines of the map)
    first = hit.int().argmax(1)
    last = hit.shape[1] - 1 - hit.flip(1).int().argmax(1)
    some = hit.any(1)
    return torch.stack([torch.where(some, first, 0), torch.where(some, last, -1)], 1)


def _spacing(reached: Tensor) -> int:
    """The smallest distance at which no two lines reach the same line of the map."""
    side = len(reached)
    reaches = reached[:, 1] >= 0
    if not bool(reaches.any()):
        return side
    for apart in range(1, side):
        free = (reached[:-apart, 1] < reached[apart:, 0]) | ~reaches[:-apart] | ~reaches[apart:]
        if bool(free.all()):
            return apart
    return side


@dataclass(eq=False)
class Lattice:
    """Every value is at a bound of the ball; a survey flips each once, a lattice at a time, and the best flips are joined."""

    inside: ClassVar[bool] = True  # whether surveyed positions lie in the ball, so that they may be faults
    seeds: Tensor  # (n, c, h, w)
    ball: Ball
    footprint: Footprint
    fixed: bool = False
    signs: Tensor = field(init=False)
    best: Tensor = field(init=False)
    helps: Tensor = field(init=False)  # what a flip of each value does to the fitness

    def __post_init__(self) -> None:
        self.signs, self.best, self.helps = torch.zeros_like(self.seeds), self.seeds.clone(), torch.zeros_like(self.seeds)

    def start(self, generator: torch.Generator) -> Tensor:
        """Stripes of random sign, or the seeds themselves."""
        if not self.fixed:
            stripes = torch.randint(0, 2, (len(self.seeds), 1, 1, self.seeds.shape[-1]), generator=generator) * 2 - 1
            self.signs = stripes.to(self.seeds).expand_as(self.seeds).clone()
            self.best = self.ball.corner(self.signs, self.seeds)
        return self.best

    @property
    def count(self) -> int:
        """Lattices that cover the input."""
        return int(self.seeds.shape[1]) * self.footprint.spacing**2

    @property
    def turn(self) -> Tensor:
        return torch.where(self.signs == 0, 1.0, -self.signs)

    def _place(self, number: int) -> tuple[int, slice, slice]:
        apart = self.footprint.spacing
        channel, rest = divmod(number, apart**2)
        return channel, slice(rest // apart, None, apart), slice(rest % apart, None, apart)

    def tried(self) -> Tensor:
        """What each value becomes when it is its turn."""
        return self.ball.corner(self.turn, self.seeds)

    def survey(self, numbers: Sequence[int]) -> Tensor:
        """(n, lattices, *shape): the best position with all values of a lattice flipped."""
        turned = self.tried()
        made = self.best[:, None].repeat(1, len(numbers), 1, 1, 1)
        for i, number in enumerate(numbers):
            channel, down, across = self._place(number)
            made[:, i, channel, down, across] = turned[:, channel, down, across]
        return made

    def learn(self, numbers: Sequence[int], maps: Tensor) -> None:
        """Fitness by place (n, lattices, h', w'): each flip gets what its footprint holds."""
        total = torch.nn.functional.pad(maps.double().cumsum(-1).cumsum(-2), (1, 0, 1, 0))
        for i, number in enumerate(numbers):
            channel, down, across = self._place(number)
            (top, bottom), (left, right) = (
                part.unbind(1) for part in (self.footprint.rows[down], self.footprint.columns[across])
            )
            above, below = total[:, i][:, top], total[:, i][:, bottom + 1]
            found = below[..., right + 1] - below[..., left] - above[..., right + 1] + above[..., left]
            self.helps[:, channel, down, across] = found.to(self.helps)

    def joined(self) -> tuple[Tensor, Tensor]:
        """Signs and positions (n, shares, *shape) with shares of the flips that help, the best ones."""
        nowhere = self.signs == 0
        gain = torch.where(nowhere, self.helps.abs(), self.helps).flatten(1)
        turned = torch.where(nowhere & (self.helps < 0), -self.turn, self.turn)
        order = gain.sort(1, descending=True).values
        many = (order > 0).sum(1, keepdim=True)
        made = []
        for share in SHARES:
            last = (many * share).ceil().long().sub(1).clamp_min(0)
            chosen = (gain >= order.gather(1, last)) & (gain > 0)
            made.append(torch.where(chosen.view_as(self.signs), turned, self.signs))
        signs = torch.stack(made, 1)
        base = self.seeds.repeat_interleave(len(SHARES), 0)
        return signs, self.ball.corner(signs.flatten(0, 1), base).view_as(signs)

    def settle(self, rows: Tensor, signs: Tensor, positions: Tensor) -> None:
        self.signs[rows], self.best[rows] = signs, positions

    def keep(self, rows: Tensor) -> None:
        for name in ("seeds", "signs", "best", "helps"):
            setattr(self, name, getattr(self, name)[rows])


class Slope(Lattice):
    """The same in an L2 ball, where no value has a bound of its own: a survey moves each a little, and steps follow the slope."""

    inside: ClassVar[bool] = False

    def start(self, generator: torch.Generator) -> Tensor:
        return self.best

    @property
    def little(self) -> Tensor:
        return torch.where(self.best > 0.5, -LITTLE, LITTLE)

    def tried(self) -> Tensor:
        return self.best + self.little

    def joined(self) -> tuple[Tensor, Tensor]:
        """Positions (n, steps, *shape) along the slope, twice: there are no signs."""
        slope = self.helps / self.little
        held = ((slope > 0) & (self.best >= 1)) | ((slope < 0) & (self.best <= 0))
        way = torch.where(held, 0.0, slope).flatten(1)
        way = (way / way.norm(dim=1, keepdim=True).clamp_min(1e-12)).view_as(self.seeds)
        made = [self.ball.project(self.best + step * self.ball.radius * way, self.seeds) for step in STEPS]
        x = torch.stack(made, 1)
        return x, x
