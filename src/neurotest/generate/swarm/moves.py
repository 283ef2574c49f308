"""How particles move: tiles that are flipped, or the papers' velocities. They propose positions, the swarm judges them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from neurotest.generate.swarm.ball import Ball
from neurotest.generate.swarm.settings import Settings

# Sides of tiles as shares of the input's side: 7, 4, 2 and 1 of 28 pixels. Chosen on test images with even numbers.
SIDES = (1 / 4, 1 / 7, 1 / 14, 0.0)
Stream = Callable[[], torch.Generator]  # the draws of a round, made only if they are needed


class PerSeed:
    """Moves whose tensors named in `per_seed` have one row per seed."""

    per_seed: ClassVar[tuple[str, ...]]

    def keep(self, rows: Tensor) -> None:
        """Drop all other seeds."""
        for name in self.per_seed:
            setattr(self, name, getattr(self, name)[rows])


@dataclass(eq=False)
class Velocity(PerSeed):
    """Particle swarm optimisation: v = w v + c1 r1 (own best - x) + c2 r2 (swarm's best - x); x = x + v, projected."""

    per_seed: ClassVar[tuple[str, ...]] = ("seeds", "x", "v", "own", "best")
    seeds: Tensor
    ball: Ball
    settings: Settings
    rounds: int
    number: int = 0
    x: Tensor = field(init=False)
    v: Tensor = field(init=False)
    own: Tensor = field(init=False)
    best: Tensor = field(init=False)

    def __post_init__(self) -> None:
        many = (len(self.seeds), self.settings.particles, *self.seeds.shape[1:])
        self.x = self.seeds[:, None].expand(many).clone()
        self.v = torch.zeros(many, device=self.seeds.device)
        self.own, self.best = self.x.clone(), self.seeds.clone()

    @property
    def fastest(self) -> float:
        return self.settings.speed if self.settings.speed is not None else self.ball.speed

    def _uniform(self, generator: torch.Generator) -> Tensor:
        return (torch.rand(self.x.shape, generator=generator) * 2 - 1).to(self.x)

    def _projected(self, x: Tensor) -> Tensor:
        flat = x.flatten(0, 1)
        return self.ball.project(flat, self.seeds.repeat_interleave(x.shape[1], dim=0)).view_as(x)

    def propose(self, stream: Stream) -> Tensor:
        settings, generator = self.settings, stream()
        if self.number == 0:
            step = self.v = self._uniform(generator) * self.fastest
            if settings.start == "random":
                step = self._uniform(generator) * self.ball.speed
        else:
            first, last = settings.inertia
            weight = (first - last) * (self.rounds - self.number) / self.rounds + last
            size = self.x.shape if settings.per_value else (*self.x.shape[:2], *[1] * (self.x.ndim - 2))
            to_own, to_best = (torch.rand(size, generator=generator).to(self.x) for _ in range(2))
            self.v.mul_(weight).add_(settings.own * to_own * (self.own - self.x))
            self.v.add_(settings.shared * to_best * (self.best[:, None] - self.x))
            step = self.v.clamp_(-self.fastest, self.fastest)
        self.x = self._projected(self.x + step)
        self.number += 1
        return self.x

    def learn(self, better: Tensor) -> None:
        """better (seeds, particles): where a particle beat its own best. The swarm's best is set by `set_best`."""
        mask = better.view(*better.shape, *[1] * (self.x.ndim - 2))
        self.own = torch.where(mask, self.x, self.own)

    def set_best(self, rows: Tensor, which: Tensor) -> None:
        """Particle which[i] of seed rows[i] is the best so far."""
        self.best[rows] = self.x[rows, which]


@dataclass(eq=False)
class Tiles(PerSeed):
    """Each particle flips another tile of the best position; flips that help are joined.

    A sweep takes every tile of one size once, in random order, then comes the next smaller size; after the last the two smallest
    sizes again, on another grid. The start is stripes of random sign (linf), or nothing (l2, where unused values save length).
    """

    per_seed: ClassVar[tuple[str, ...]] = ("seeds", "signs", "best", "order", "high", "low")
    seeds: Tensor
    ball: Ball
    particles: int
    fixed: bool = False
    sweep: int = -1
    place: int = 0

    signs: Tensor = field(init=False)
    best: Tensor = field(init=False)
    tiles: Tensor = field(init=False)  # (values,) number of each value's tile
    order: Tensor = field(init=False)  # (seeds, tiles)
    at: Tensor = field(init=False)  # (seeds, particles, *shape) the tile each particle flips
    flipped: Tensor = field(init=False)  # what its signs become
    high: Tensor = field(init=False)  # the bounds of each value, unless the ball is l2
    low: Tensor = field(init=False)

    def __post_init__(self) -> None:
        self.signs = torch.zeros_like(self.seeds)
        self.best = self.seeds.clone()
        self.order = torch.zeros((len(self.seeds), 0), dtype=torch.long, device=self.seeds.device)
        up = torch.ones_like(self.seeds)
        self.high, self.low = self.ball.corner(up, self.seeds), self.ball.corner(-up, self.seeds)

    def start(self, generator: torch.Generator) -> Tensor:
        """The first positions: one per seed."""
        if not self.ball.round and not self.fixed:
            self.signs, self.best = self.ball.stripes(self.seeds, generator)
        return self.best

    def begin(self, generator: torch.Generator) -> None:
        """Cut a new grid and shuffle its tiles."""
        self.sweep, self.place = self.sweep + 1, 0
        share = SIDES[self.sweep] if self.sweep < len(SIDES) else SIDES[-2 + self.sweep % 2]
        self.tiles = grid(tuple(self.seeds.shape[1:]), share, generator).to(self.seeds.device)
        count = int(self.tiles.max()) + 1
        self.order = torch.rand((len(self.seeds), count), generator=generator).argsort(1).to(self.seeds.device)

    @property
    def over(self) -> bool:
        return self.place >= self.order.shape[1]

    def propose(self, stream: Stream) -> Tensor:
        """(seeds, up to particles, *shape): the last ones of a sweep may be fewer."""
        which = self.order[:, self.place : self.place + self.particles]  # (seeds, p)
        self.place += self.particles
        self.at = (self.tiles[None, None, :] == which[:, :, None]).view(*which.shape, *self.seeds.shape[1:])
        single = (*which.shape, *[1] * (self.seeds.ndim - 1))
        if self.ball.round:
            turn = torch.randint(1, 3, which.shape, generator=stream()).to(self.signs).view(single)
            self.flipped = (self.signs[:, None] + 1 + turn) % 3 - 1  # to one of the two other values of -1, 0, 1
            tried = torch.where(self.at, self.flipped, self.signs[:, None])
            return self.ball.corner(tried.flatten(0, 1), self.seeds.repeat_interleave(which.shape[1], 0)).view(tried.shape)
        # The majority of a tile decides, so that all of it gets one sign.
        total = torch.zeros((len(which), self.order.shape[1]), device=which.device)
        total.index_add_(1, self.tiles, self.signs.flatten(1))
        self.flipped = torch.where(total.gather(1, which) > 0, -1.0, 1.0).view(single)
        bound = torch.where(self.flipped > 0, self.high[:, None], self.low[:, None])
        return torch.where(self.at, bound, self.best[:, None])

    def positions(self, signs: Tensor, seeds: Tensor) -> Tensor:
        """The corners of these signs."""
        return self.ball.corner(signs, seeds)

    def flip(self, rows: Tensor, which: Tensor) -> Tensor:
        """Signs of seeds `rows` after the flip of their particle `which`."""
        return torch.where(self.at[rows, which], self.flipped[rows, which], self.signs[rows])

    def join(self, rows: Tensor, better: Tensor) -> Tensor:
        """Signs of seeds `rows` with all flips that helped (rows, p)."""
        mask = better.view(*better.shape, *[1] * (self.seeds.ndim - 1))
        now = self.signs[rows]
        return now + torch.where(mask & self.at[rows], self.flipped[rows] - now[:, None], 0.0).sum(1)

    def set_best(self, rows: Tensor, signs: Tensor, positions: Tensor) -> None:
        self.signs[rows], self.best[rows] = signs, positions


def grid(shape: tuple[int, ...], share: float, generator: torch.Generator) -> Tensor:
    """Which tile each value belongs to: (values,). Channels lie together in a tile; a vector is cut into pieces.

    share: of the side of an image; a vector's pieces hold the same share of its values as an image's tiles.
    """
    high, wide = (1, shape[-1]) if len(shape) < 3 else (shape[-2], shape[-1])
    rows = _cut(high, share, generator)
    columns = _cut(wide, share if high > 1 else share**2, generator)
    tiles = rows[:, None] * (int(columns.max()) + 1) + columns[None, :]
    _, dense = torch.unique(tiles, return_inverse=True)
    numbers: Tensor = dense.flatten().repeat(math.prod(shape) // (high * wide))
    return numbers


def _cut(length: int, share: float, generator: torch.Generator) -> Tensor:
    side = min(length, max(1, round(length * share)))
    offset = int(torch.randint(0, side, (1,), generator=generator))
    return (torch.arange(length) + offset) // side
