"""How particles move on sound: each adds a short tone, at a place in time and frequency; the tones that help are joined."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from neurotest.generate.swarm.ball import Ball
from neurotest.generate.swarm.moves import PerSeed, Stream

# Chosen on spoken digits with even numbers.
BLOCK = 64  # samples from one tone to the next in time; so many frequencies
LOUD = 0.25  # of the radius, a tone that is added
TURN = 60  # tones that are tried before neurons are weighed anew


class Plane:
    """Sounds of one length as a plane (frequencies, times) of tones, orthonormal but for what is cut off at the end.

    The modified discrete cosine transform: a tone lasts two blocks, under half a period of a sine, and blocks overlap, the last
    with the first.
    """

    def __init__(self, samples: int, block: int = BLOCK) -> None:
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

    def amounts(self, sound: Tensor) -> Tensor:
        """(n, samples) -> (n, frequencies, times)"""
        padded = torch.nn.functional.pad(sound, (0, self.times * self.block - self.samples))
        blocks = padded.view(len(sound), self.times, self.block)
        both = torch.cat([blocks, blocks.roll(-1, dims=1)], dim=2)
        return (both @ self.tones.T.to(sound)).transpose(1, 2)


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
    plane: Plane = field(init=False)
    amounts: Tensor = field(init=False)  # (n, frequencies * times)
    best: Tensor = field(init=False)
    order: Tensor = field(init=False)  # (n, TURN) tones to try
    radius: Tensor = field(init=False)  # (n, 1)
    tried: Tensor = field(init=False)  # (n, particles) the tone that each particle adds
    added: Tensor = field(init=False)  # (n, particles) and how much of it

    def __post_init__(self) -> None:
        self.plane = Plane(self.seeds.shape[-1])
        self.amounts = self.seeds.new_zeros(len(self.seeds), self.plane.block * self.plane.times)
        self.best, self.radius = self.seeds.clone(), self.ball.length(self.seeds)
        self.order = torch.zeros((len(self.seeds), 0), dtype=torch.long, device=self.seeds.device)

    def start(self, generator: torch.Generator) -> Tensor:
        return self.best

    def begin(self, generator: torch.Generator) -> None:
        """Choose the tones of this turn."""
        self.sweep, self.place = self.sweep + 1, 0
        drawn = torch.rand(self.amounts.shape, generator=generator).to(self.seeds).clamp_min_(1e-30).log_()
        # The largest of log(u) / weight are draws without putting back, as likely as their weights.
        self.order = (drawn / self.plane.weights(self.rate).to(drawn)).topk(min(TURN, drawn.shape[1]), dim=1).indices

    def learn(self, gain: Tensor) -> None:
        """Tones are drawn alike all the time: drawing more where they moved the fitness was no better."""

    @property
    def over(self) -> bool:
        return self.place >= self.order.shape[1]

    def propose(self, stream: Stream) -> Tensor:
        """(seeds, up to particles, *shape)"""
        self.tried = self.order[:, self.place : self.place + self.particles]
        self.place += self.particles
        sign = torch.randint(0, 2, self.tried.shape, generator=stream()).to(self.amounts) * 2 - 1
        self.added = sign * LOUD * self.radius
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
        size = amounts.norm(dim=1, keepdim=True).clamp_min(1e-12)
        inside: Tensor = amounts * (self.radius[rows] / size).clamp_max(1)
        return inside

    def set_best(self, rows: Tensor, amounts: Tensor, positions: Tensor) -> None:
        self.amounts[rows], self.best[rows] = amounts, positions
