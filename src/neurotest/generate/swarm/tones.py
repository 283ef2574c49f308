"""How particles move on audio: by short tones, one by one, or in chords.

The tones of a chord are so far apart in time and pitch that each moves hidden neurons of its own, and a map of the fitness by
band and time says at once which of them help.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from neurotest import rng
from neurotest.generate.swarm.ball import Ball
from neurotest.generate.swarm.lattice import best_shares, surrounded
from neurotest.generate.swarm.measure import Measure
from neurotest.generate.swarm.moves import PerSeed, Stream
from neurotest.mutate.unit import from_unit

# Chosen on spoken digits with even numbers.
BLOCK_SAMPLES = 64  # samples from one tone to the next in time; so many frequencies
TONE_LOUDNESS = 0.25  # of the radius, a tone that is added
TURN_TONES = 60  # tones that are tried before neurons are weighed anew
CHORD_LOUDNESS = 0.1  # of the radius, a tone that is tried
MOST_CHORDS = 48  # chords of a turn
CHORD_SHARES = (1.0, 0.125)  # of the tones that help, the best ones
CHORD_STEPS = (0.25, 0.5, 1.0, 2.0)  # towards them, in radii
REACHED_SHARE = 0.15  # of the largest change of a line of the map: less is not counted as reached
FEWEST_TONES = 4  # tones of a chord, on average: with fewer, tones one by one are as good
REACH_NOISES = 2  # noises on which the reach of tones is measured


class _Plane:
    """Audio of one length as a plane (frequencies, times) of tones, orthonormal but for what is cut off at the end.

    The modified discrete cosine transform: a tone lasts two blocks, under half a period of a sine, and blocks overlap, the last
    with the first.
    """

    def __init__(self, samples: int, block: int = BLOCK_SAMPLES) -> None:
        self.samples, self.block = samples, min(block, samples)
        self.times = -(-samples // self.block)
        place = torch.arange(2 * self.block, dtype=torch.float64) + 0.5
        pitch = torch.arange(self.block, dtype=torch.float64)[:, None] + 0.5
        wave = torch.cos(math.pi / self.block * (place + self.block / 2) * pitch)
        window = math.sqrt(2 / self.block) * torch.sin(math.pi / (2 * self.block) * place)
        self.tones = (wave * window).float()  # (frequencies, samples of two blocks)

    def sound(self, amounts: Tensor) -> Tensor:
        """(n, frequencies, times) -> (n, samples)"""
        parts = amounts.transpose(1, 2) @ self.tones.to(amounts)  # (n, times, 2 blocks)
        out = parts[..., : self.block] + parts[..., self.block :].roll(1, dims=1)
        return out.flatten(1)[:, : self.samples]

    def weights(self, rate: int) -> Tensor:
        """(frequencies * times,) how likely each tone is tried: evenly on the mel scale, as networks and people hear."""
        pitch = (torch.arange(self.block) + 0.5) * rate / (2 * self.block)
        return (700 / (700 + pitch)).repeat_interleave(self.times)


def _shrunk(amounts: Tensor, radius: Tensor) -> Tensor:
    """Amounts (n, ...) of tones, no longer than the radius (n, ...) of each."""
    size = amounts.flatten(1).norm(dim=1).clamp_min(1e-12).view_as(radius)
    inside: Tensor = amounts * (radius / size).clamp_max(1)
    return inside


@dataclass(eq=False)
class Tones(PerSeed):
    """Every particle adds another tone to the seed's best position, louder or softer at random; beyond the ball all shrink."""

    per_seed: ClassVar[tuple[str, ...]] = ("seeds", "amounts", "best", "order", "radius")
    seeds: Tensor  # (n, samples) or (n, 1, samples)
    ball: Ball
    particles: int
    rate: int
    sweep: int = -1
    place: int = 0
    plane: _Plane = field(init=False)
    amounts: Tensor = field(init=False)  # (n, frequencies * times)
    best: Tensor = field(init=False)
    order: Tensor = field(init=False)  # (n, TURN) tones to try
    radius: Tensor = field(init=False)  # (n, 1)
    tried: Tensor = field(init=False)  # (n, particles) the tone that each particle adds
    added: Tensor = field(init=False)  # (n, particles) and how much of it

    def __post_init__(self) -> None:
        self.plane = _Plane(self.seeds.shape[-1])
        self.amounts = self.seeds.new_zeros(len(self.seeds), self.plane.block * self.plane.times)
        self.best, self.radius = self.seeds.clone(), self.ball.length(self.seeds)
        self.order = torch.zeros((len(self.seeds), 0), dtype=torch.long, device=self.seeds.device)

    def start(self, generator: torch.Generator) -> Tensor:
        return self.best

    def begin(self, generator: torch.Generator) -> None:
        """Choose the tones of this turn: all alike; drawing more where they moved the fitness was no better."""
        self.sweep, self.place = self.sweep + 1, 0
        drawn = torch.rand(self.amounts.shape, generator=generator).to(self.seeds).clamp_min_(1e-30).log_()
        # The largest of log(u) / weight are draws without putting back, as likely as their weights.
        self.order = (drawn / self.plane.weights(self.rate).to(drawn)).topk(min(TURN_TONES, drawn.shape[1]), dim=1).indices

    @property
    def over(self) -> bool:
        return self.place >= self.order.shape[1]

    def propose(self, stream: Stream) -> Tensor:
        """(seeds, up to particles, *shape)"""
        self.tried = self.order[:, self.place : self.place + self.particles]
        self.place += self.particles
        sign = torch.randint(0, 2, self.tried.shape, generator=stream()).to(self.amounts) * 2 - 1
        self.added = sign * TONE_LOUDNESS * self.radius
        now = self.amounts[:, None].repeat(1, self.tried.shape[1], 1)
        now.scatter_add_(2, self.tried[:, :, None], self.added[:, :, None])
        flat = self.positions(now.flatten(0, 1), self.seeds.repeat_interleave(self.tried.shape[1], 0))
        return flat.view(len(now), -1, *self.seeds.shape[1:])

    def positions(self, amounts: Tensor, seeds: Tensor) -> Tensor:
        """The seeds with these tones, inside the ball and on its levels."""
        change = self.plane.sound(amounts.view(len(amounts), self.plane.block, self.plane.times))
        return self.ball.project(seeds + change.view_as(seeds), seeds)

    def flip(self, rows: Tensor, which: Tensor) -> Tensor:
        """Amounts of seeds `rows` with the tone of their particle `which`."""
        picked = torch.zeros(len(rows), self.tried.shape[1], dtype=torch.bool, device=rows.device)
        picked[torch.arange(len(rows), device=rows.device), which] = True
        return self.join(rows, picked)

    def join(self, rows: Tensor, better: Tensor) -> Tensor:
        """Amounts of seeds `rows` with all tones that helped (rows, p)."""
        amounts = self.amounts[rows].scatter_add(1, self.tried[rows], torch.where(better, self.added[rows], 0.0))
        return _shrunk(amounts, self.radius[rows])

    def set_best(self, rows: Tensor, amounts: Tensor, positions: Tensor) -> None:
        self.amounts[rows], self.best[rows] = amounts, positions


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
        plane = _Plane(int(measure.problem.seeds.shape[-1]))
        noise = torch.randn((REACH_NOISES, plane.block, plane.times), generator=rng.torch_stream("swarm.reach", 0)) * 0.01
        lines = [_reached(measure, plane, noise.to(measure.problem.seeds), axis) for axis in (1, 2)]
        both = [cls._of(lines[0][turned], lines[1][1 - turned], bool(turned)) for turned in (0, 1)]
        best = min(both, key=len)
        return best if len(best) * FEWEST_TONES <= plane.block * plane.times else None

    @classmethod
    def _of(cls, bands: Tensor, frames: Tensor, turned: bool) -> Reach:
        return cls(bands, frames, _groups(bands), _groups(frames), turned)

    def __len__(self) -> int:
        """Chords that try every tone once, in one direction."""
        return len(self.pitches) * len(self.moments)


def _reached(measure: Measure, plane: _Plane, noise: Tensor, axis: int) -> list[Tensor]:
    """Two of (side, 2): first and last row, and column, of the map that a line of the plane moves; (0, -1): none."""
    base = _map(measure, plane, noise)
    reached: tuple[list[tuple[int, int]], ...] = ([], [])
    for line in range(noise.shape[axis]):
        moved = noise.clone()
        moved.select(axis, line).mul_(-3)
        change = (_map(measure, plane, moved) - base).abs().amax((0, 1))  # (rows, columns)
        for lines, most in zip(reached, (change.amax(1), change.amax(0)), strict=True):
            at = torch.nonzero(most > REACHED_SHARE * most.max())[:, 0]
            lines.append((int(at[0]), int(at[-1])) if len(at) else (0, -1))
    return [torch.tensor(lines, device=noise.device) for lines in reached]


def _map(measure: Measure, plane: _Plane, amounts: Tensor) -> Tensor:
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
    plane: _Plane = field(init=False)
    amounts: Tensor = field(init=False)  # (n, frequencies, times) of the best position
    best: Tensor = field(init=False)
    radius: Tensor = field(init=False)  # (n, 1, 1)
    signs: Tensor = field(init=False)  # (n, frequencies, times) the direction that is tried first
    helps: Tensor = field(init=False)  # (n, 2, frequencies, times) what a tone does to the fitness, in either direction
    chords: list[int] = field(init=False)  # of this turn

    def __post_init__(self) -> None:
        self.plane = _Plane(int(self.seeds.shape[-1]))
        self.amounts = self.seeds.new_zeros(len(self.seeds), self.plane.block, self.plane.times)
        self.best, self.radius = self.seeds.clone(), self.ball.length(self.seeds)[:, :, None]
        self.signs = torch.ones_like(self.amounts)
        self.helps = self._nothing()

    def _nothing(self) -> Tensor:
        return self.amounts.new_zeros(len(self.amounts), 2, *self.amounts.shape[1:])

    @staticmethod
    def cost(reach: Reach) -> int:
        """Forward passes of a turn: neurons are weighed, chords are tried, steps are judged."""
        return 3 + min(MOST_CHORDS, 2 * len(reach)) + len(CHORD_SHARES) * len(CHORD_STEPS)

    def start(self, generator: torch.Generator) -> Tensor:
        return self.best

    def begin(self, generator: torch.Generator) -> None:
        """Draw the chords of this turn and the directions of their tones."""
        self.chords = torch.randperm(2 * len(self.reach), generator=generator)[:MOST_CHORDS].tolist()
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
        tone = CHORD_LOUDNESS * self.radius * self.signs
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
        candidates = []
        for best in best_shares(gain, CHORD_SHARES):
            direction = torch.where(best, gain * signs, 0.0)
            direction = (direction / direction.norm(dim=1, keepdim=True).clamp_min(1e-12)).view_as(self.amounts)
            candidates += [_shrunk(self.amounts + step * self.radius * direction, self.radius) for step in CHORD_STEPS]
        amounts = torch.stack(candidates, 1)
        x = self.seeds[:, None] + self._sounds(amounts)
        base = self.seeds.repeat_interleave(len(candidates), 0)
        return amounts, self.ball.project(x.flatten(0, 1), base).view_as(x)

    def set_best(self, rows: Tensor, amounts: Tensor, positions: Tensor) -> None:
        self.amounts[rows], self.best[rows] = amounts, positions
