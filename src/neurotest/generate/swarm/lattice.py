"""Lattices: values so far apart that each moves hidden neurons of its own are flipped together, and a map of the fitness by
place says at once which of these flips help."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from neurotest import rng
from neurotest.devices import widest
from neurotest.generate.swarm.ball import Ball
from neurotest.generate.swarm.measure import Measure
from neurotest.generate.swarm.moves import PerSeed
from neurotest.mutate.unit import from_unit

# Of the flips that help, best first, so many are tried together. Chosen on test images with even numbers.
SHARES = (1.0, 0.5, 0.25, 0.12)
STEPS = (0.25, 0.5, 1.0, 2.0)  # in an L2 ball: steps along the slope, in radii
SURVEY_STEP = 0.05  # how far a survey moves a value there
ROUNDING = 1e-4  # of the largest change: less comes from other orders of summation in other batches


@dataclass(frozen=True, eq=False)
class Footprint:
    """Which rows (first, last) and columns of the map each row and column of the input reaches, and how far apart values must
    lie so that no two reach the same place."""

    rows: Tensor  # (height, 2)
    columns: Tensor  # (width, 2)
    spacing: int

    @classmethod
    def of(cls, measure: Measure, most: int = 1 << 62) -> Footprint | None:
        """Measured by changing random inputs line by line, `most` at once. None: no map, or no two places far enough apart."""
        shape = tuple(measure.problem.seeds.shape[1:])
        if not measure.has_map or len(shape) != 3:
            return None
        noise = torch.rand((2, *shape), generator=rng.torch_stream("swarm.footprint", 0)).to(measure.problem.seeds)
        rows, columns = (_reached(measure, noise, axis, most) for axis in (2, 3))
        spacing = max(_spacing(rows), _spacing(columns))
        return cls(rows, columns, spacing) if 2 * spacing <= min(shape[1:]) else None


def _reached(measure: Measure, noise: Tensor, axis: int, most: int) -> Tensor:
    """(side, 2): first and last line of the map that differs when a line of the input does; (0, -1): none does."""
    side = noise.shape[axis]
    lines = torch.arange(side, device=noise.device)
    base = measure.first_layer(from_unit(noise, measure.problem.target.bounds)).clone()
    largest = []
    for some in lines.split(max(1, most // len(noise))):
        here = (some[:, None] == lines[None, :]).view(len(some), 1, 1, *((side, 1) if axis == 2 else (1, side)))
        moved = torch.where(here, 1 - noise[None], noise[None]).flatten(0, 1)  # (lines * 2, *shape)
        change = measure.first_layer(from_unit(moved, measure.problem.target.bounds)) - base.repeat(len(some), 1, 1, 1)
        largest.append(change.abs().amax((1, 5 - axis)))  # (lines * 2, lines of the map)
    measure.forwards += len(noise) * (1 + side)
    change = torch.cat(largest)
    hit = (change > ROUNDING * change.max()).view(side, len(noise), -1).any(1)  # (side, lines of the map)
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


def surrounded(maps: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Sums of maps (n, h, w) over rectangles, whose first and last rows (r, 2) and columns (c, 2) are given: (n, r, c)."""
    total = torch.nn.functional.pad(maps.to(widest(maps.device)).cumsum(-1).cumsum(-2), (1, 0, 1, 0))
    (top, bottom), (left, right) = rows.unbind(1), columns.unbind(1)
    above, below = total[:, top], total[:, bottom + 1]
    return below[..., right + 1] - below[..., left] - above[..., right + 1] + above[..., left]


def best_shares(gain: Tensor, shares: Sequence[float]) -> Iterator[Tensor]:
    """For each share (n, m) bool: of the changes that help, gain above 0, that share with the greatest gains."""
    order = gain.sort(1, descending=True).values
    helpful = (order > 0).sum(1, keepdim=True)
    for share in shares:
        last = (helpful * share).ceil().long().sub(1).clamp_min(0)
        yield (gain >= order.gather(1, last)) & (gain > 0)


@dataclass(eq=False)
class Lattice(PerSeed):
    """Every value is at a bound of the ball; a survey flips each once, a lattice at a time, and the best flips are joined."""

    per_seed: ClassVar[tuple[str, ...]] = ("seeds", "signs", "best", "helps")
    draws: ClassVar[bool] = False  # whether every turn tries something else
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
            self.signs, self.best = self.ball.stripes(self.seeds, generator)
        return self.best

    @staticmethod
    def cost(footprint: Footprint, channels: int) -> int:
        """Forward passes of a turn: neurons are weighed, every lattice is flipped, the best flips are joined."""
        return 3 + channels * footprint.spacing**2 + len(SHARES)

    def begin(self, generator: torch.Generator) -> None:
        """Every turn flips the same lattices."""

    @property
    def count(self) -> int:
        """Lattices that cover the input."""
        return int(self.seeds.shape[1]) * self.footprint.spacing**2

    @property
    def flipped(self) -> Tensor:
        return torch.where(self.signs == 0, 1.0, -self.signs)

    def _place(self, number: int) -> tuple[int, slice, slice]:
        apart = self.footprint.spacing
        channel, rest = divmod(number, apart**2)
        return channel, slice(rest // apart, None, apart), slice(rest % apart, None, apart)

    def tried(self) -> Tensor:
        """What each value becomes when its lattice is flipped."""
        return self.ball.corner(self.flipped, self.seeds)

    def survey(self, numbers: Sequence[int]) -> Tensor:
        """(n, lattices, *shape): the best position with all values of a lattice flipped."""
        tried = self.tried()
        positions = self.best[:, None].repeat(1, len(numbers), 1, 1, 1)
        for i, number in enumerate(numbers):
            channel, down, across = self._place(number)
            positions[:, i, channel, down, across] = tried[:, channel, down, across]
        return positions

    def learn(self, numbers: Sequence[int], maps: Tensor) -> None:
        """Fitness by place (n, lattices, h', w'): each flip gets the sum over its footprint."""
        for i, number in enumerate(numbers):
            channel, down, across = self._place(number)
            gain = surrounded(maps[:, i], self.footprint.rows[down], self.footprint.columns[across])
            self.helps[:, channel, down, across] = gain.to(self.helps)

    def join(self) -> tuple[Tensor, Tensor]:
        """Signs and positions (n, shares, *shape) with shares of the flips that help, the best ones."""
        unset = self.signs == 0
        gain = torch.where(unset, self.helps.abs(), self.helps).flatten(1)
        flipped = torch.where(unset & (self.helps < 0), -self.flipped, self.flipped)
        parts = [torch.where(best.view_as(flipped), flipped, self.signs) for best in best_shares(gain, SHARES)]
        signs = torch.stack(parts, 1)
        base = self.seeds.repeat_interleave(len(SHARES), 0)
        return signs, self.ball.corner(signs.flatten(0, 1), base).view_as(signs)

    def set_best(self, rows: Tensor, signs: Tensor, positions: Tensor) -> None:
        self.signs[rows], self.best[rows] = signs, positions


class Slope(Lattice):
    """The same in an L2 ball, where no value has a bound of its own: a survey moves each a little, and steps follow the slope."""

    inside: ClassVar[bool] = False

    def start(self, generator: torch.Generator) -> Tensor:
        return self.best

    @property
    def survey_step(self) -> Tensor:
        return torch.where(self.best > 0.5, -SURVEY_STEP, SURVEY_STEP)

    def tried(self) -> Tensor:
        return self.best + self.survey_step

    def join(self) -> tuple[Tensor, Tensor]:
        """Positions (n, steps, *shape) along the slope, twice: there are no signs."""
        slope = self.helps / self.survey_step
        at_bound = ((slope > 0) & (self.best >= 1)) | ((slope < 0) & (self.best <= 0))
        direction = torch.where(at_bound, 0.0, slope).flatten(1)
        direction = (direction / direction.norm(dim=1, keepdim=True).clamp_min(1e-12)).view_as(self.seeds)
        length = self.ball.length(self.seeds).view(-1, *[1] * (self.seeds.ndim - 1))
        positions = [self.ball.project(self.best + step * length * direction, self.seeds) for step in STEPS]
        x = torch.stack(positions, 1)
        return x, x
