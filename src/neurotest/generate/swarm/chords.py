"""Chords: tones so far apart in time and pitch that each moves hidden neurons of its own sound together, and a map of the fitness
by band and time says at once which of them help."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from neurotest import rng
from neurotest.generate.swarm.ball import Ball
from neurotest.generate.swarm.lattice import surrounded
from neurotest.generate.swarm.measure import Measure
from neurotest.generate.swarm.moves import PerSeed
from neurotest.generate.swarm.tones import Plane
from neurotest.mutate.space import from_unit

# Chosen on spoken digits with even numbers.
LOUD = 0.1  # of the radius, a tone that is tried
MOST = 48  # chords of a turn
SHARES = (1.0, 0.125)  # of the tones that help, the best ones
STEPS = (0.25, 0.5, 1.0, 2.0)  # towards them, in radii
NEAR = 0.15  # of the largest change of a line of the map: less is not counted as reached
FEWEST = 4  # tones of a chord, on average: with fewer, tones one by one are as good
NOISES = 2  # sounds on which the reach of tones is measured


@dataclass(frozen=True, eq=False)
class Reach:
    """Which bands (first, last) of the map each frequency of the plane reaches, and which frames each time; frequencies and times
    in groups of which no two reach the same place. turned: the map has frames as rows, bands as columns."""

    bands: Tensor  # (frequencies, 2)
    frames: Tensor  # (times, 2)
    pitches: list[Tensor]
    moments: list[Tensor]
    turned: bool

    @classmethod
    def of(cls, measure: Measure) -> Reach | None:
        """Measured by changing noises line by line. None: there is no map that keeps times and pitches apart."""
        if not measure.has_map:
            return None
        plane = Plane(int(measure.problem.seeds.shape[-1]))
        noise = torch.randn((NOISES, plane.block, plane.times), generator=rng.torch_stream("swarm.reach", 0)) * 0.01
        lines = [_reached(measure, plane, noise.to(measure.problem.seeds), axis) for axis in (1, 2)]
        both = [cls._of(lines[0][turned], lines[1][1 - turned], bool(turned)) for turned in (0, 1)]
        best = min(both, key=len)
        return best if len(best) * FEWEST <= plane.block * plane.times else None

    @classmethod
    def _of(cls, bands: Tensor, frames: Tensor, turned: bool) -> Reach:
        return cls(bands, frames, _groups(bands), _groups(frames), turned)

    def __len__(self) -> int:
        """Chords that try every tone once, in one direction."""
        return len(self.pitches) * len(self.moments)


def _reached(measure: Measure, plane: Plane, noise: Tensor, axis: int) -> list[Tensor]:
    """Two of (side, 2): first and last row, and column, of the map that a line of the plane moves; (0, -1): none."""
    base = _map(measure, plane, noise)
    reached: tuple[list[tuple[int, int]], ...] = ([], [])
    for line in range(noise.shape[axis]):
        moved = noise.clone()
        moved.select(axis, line).mul_(-3)
        change = (_map(measure, plane, moved) - base).abs().amax((0, 1))  # (rows, columns)
        for lines, most in zip(reached, (change.amax(1), change.amax(0)), strict=True):
            at = torch.nonzero(most > NEAR * most.max())[:, 0]
            lines.append((int(at[0]), int(at[-1])) if len(at) else (0, -1))
    return [torch.tensor(lines, device=noise.device) for lines in reached]


def _map(measure: Measure, plane: Plane, amounts: Tensor) -> Tensor:
    shape = (len(amounts), *measure.problem.seeds.shape[1:])
    measure.forwards += len(amounts)
    return measure.first_layer(from_unit((0.5 + plane.sound(amounts).view(shape)).clamp_(0, 1), measure.problem.target.bounds))


def _groups(reached: Tensor) -> list[Tensor]:
    """Lines in groups, as few as possible, of which no two reach the same line of the map."""
    groups: list[list[int]] = []
    ends: list[int] = []
    for line, (first, last) in enumerate(reached.tolist()):
        if last < first:
            continue
        free = next((number for number, end in enumerate(ends) if end < first), len(groups))
        if free == len(groups):
            groups.append([])
            ends.append(0)
        groups[free].append(line)
        ends[free] = last
    return [torch.tensor(group, device=reached.device) for group in groups]


@dataclass(eq=False)
class Chords(PerSeed):
    """A turn tries some chords, each tone in a direction of its own; steps towards the tones that help are judged."""

    per_seed: ClassVar[tuple[str, ...]] = ("seeds", "amounts", "best", "radius", "signs", "helps")
    draws: ClassVar[bool] = True
    inside: ClassVar[bool] = False  # a chord is louder than the ball allows
    seeds: Tensor  # (n, samples) or (n, 1, samples)
    ball: Ball
    reach: Reach
    plane: Plane = field(init=False)
    amounts: Tensor = field(init=False)  # (n, frequencies, times) of the best position
    best: Tensor = field(init=False)
    radius: Tensor = field(init=False)  # (n, 1, 1)
    signs: Tensor = field(init=False)  # (n, frequencies, times) the direction that is tried first
    helps: Tensor = field(init=False)  # (n, 2, frequencies, times) what a tone does to the fitness, in either direction
    chords: list[int] = field(init=False)  # of this turn

    def __post_init__(self) -> None:
        self.plane = Plane(int(self.seeds.shape[-1]))
        self.amounts = self.seeds.new_zeros(len(self.seeds), self.plane.block, self.plane.times)
        self.best, self.radius = self.seeds.clone(), self.ball.length(self.seeds)[:, :, None]
        self.signs = torch.ones_like(self.amounts)
        self.helps = self._nothing()

    def _nothing(self) -> Tensor:
        return self.amounts.new_zeros(len(self.amounts), 2, *self.amounts.shape[1:])

    @staticmethod
    def cost(reach: Reach) -> int:
        """Forward passes of a turn: neurons are weighed, chords are tried, steps are judged."""
        return 3 + min(MOST, 2 * len(reach)) + len(SHARES) * len(STEPS)

    def start(self, generator: torch.Generator) -> Tensor:
        return self.best

    def begin(self, generator: torch.Generator) -> None:
        """Draw the chords of this turn and the directions of their tones."""
        self.chords = torch.randperm(2 * len(self.reach), generator=generator)[:MOST].tolist()
        drawn = torch.randint(0, 2, self.amounts.shape, generator=generator) * 2 - 1
        self.signs, self.helps = drawn.to(self.amounts), self._nothing()

    @property
    def count(self) -> int:
        return len(self.chords)

    def _place(self, number: int) -> tuple[int, Tensor, Tensor]:
        """Which direction, frequencies and times."""
        way, rest = divmod(self.chords[number], len(self.reach))
        pitch, moment = divmod(rest, len(self.reach.moments))
        return way, self.reach.pitches[pitch], self.reach.moments[moment]

    def survey(self, numbers: Sequence[int]) -> Tensor:
        """(n, chords, *shape): the best position with all tones of a chord."""
        amounts = self.amounts[:, None].repeat(1, len(numbers), 1, 1)
        tone = LOUD * self.radius * self.signs
        for i, number in enumerate(numbers):
            way, pitches, moments = self._place(number)
            part = tone[:, pitches[:, None], moments]
            amounts[:, i, pitches[:, None], moments] += part if way == 0 else -part
        return (self.seeds[:, None] + self._sounds(amounts)).clamp_(0, 1)

    def _sounds(self, amounts: Tensor) -> Tensor:
        """(n, many, frequencies, times) -> (n, many, *shape)"""
        return self.plane.sound(amounts.flatten(0, 1)).view(*amounts.shape[:2], *self.seeds.shape[1:])

    def learn(self, numbers: Sequence[int], maps: Tensor) -> None:
        """Fitness by place (n, chords, rows, columns): each tone gets the sum over what it reaches."""
        for i, number in enumerate(numbers):
            way, pitches, moments = self._place(number)
            by_band = maps[:, i].transpose(1, 2) if self.reach.turned else maps[:, i]
            gain = surrounded(by_band, self.reach.bands[pitches], self.reach.frames[moments])
            self.helps[:, way, pitches[:, None], moments] = gain.to(self.helps)

    def join(self) -> tuple[Tensor, Tensor]:
        """Amounts (n, candidates, frequencies, times) and positions (n, candidates, *shape): steps towards tones that help."""
        gain, way = self.helps.max(1)
        gain, signs = gain.clamp_min(0).flatten(1), torch.where(way == 0, self.signs, -self.signs).flatten(1)
        order = gain.sort(1, descending=True).values
        helpful = (order > 0).sum(1, keepdim=True)
        candidates = []
        for share in SHARES:
            last = (helpful * share).ceil().long().sub(1).clamp_min(0)
            direction = torch.where(gain >= order.gather(1, last), gain * signs, 0.0)
            direction = (direction / direction.norm(dim=1, keepdim=True).clamp_min(1e-12)).view_as(self.amounts)
            candidates += [self._shrunk(self.amounts + step * self.radius * direction) for step in STEPS]
        amounts = torch.stack(candidates, 1)
        x = self.seeds[:, None] + self._sounds(amounts)
        base = self.seeds.repeat_interleave(len(candidates), 0)
        return amounts, self.ball.project(x.flatten(0, 1), base).view_as(x)

    def _shrunk(self, amounts: Tensor) -> Tensor:
        size = amounts.flatten(1).norm(dim=1).clamp_min(1e-12)[:, None, None]
        inside: Tensor = amounts * (self.radius / size).clamp_max(1)
        return inside

    def set_best(self, rows: Tensor, amounts: Tensor, positions: Tensor) -> None:
        self.amounts[rows], self.best[rows] = amounts, positions
