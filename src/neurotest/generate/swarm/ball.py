"""The ball around each seed: where positions may lie, and the levels on which stored ones do. Everything is in [0, 1]."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from neurotest.levels import Levels
from neurotest.settings.generate import Norm


@dataclass(frozen=True)
class Ball:
    """norm and radius; positions are rounded to `levels`, where there are any, and stay inside."""

    norm: Norm
    radius: float
    levels: Levels | None

    @property
    def round(self) -> bool:
        """Whether it is a sphere: `l2`, and `snr`, where each seed has a radius of its own."""
        return self.norm in ("l2", "snr")

    def length(self, seed: Tensor) -> Tensor:
        """(n, 1) the radius around each seed."""
        if self.norm != "snr":
            return torch.full((len(seed), 1), self.radius, device=seed.device)
        loud: Tensor = (seed - 0.5).flatten(1).norm(dim=1, keepdim=True)  # silence is 1/2
        return loud * 10 ** (-self.radius / 20)

    @property
    def reach(self) -> float:
        """The largest change of a single value."""
        if self.norm in ("none", "snr"):
            return 1.0
        steps = self.levels.steps if self.levels and self.norm == "linf" else None
        return int(self.radius * steps + 1e-6) / steps if steps else self.radius

    @property
    def speed(self) -> float:
        """How far a value may move in one round."""
        return 10 ** (-self.radius / 20) if self.norm == "snr" else min(self.radius, 1.0)

    def project(self, u: Tensor, seed: Tensor) -> Tensor:
        """The positions as they are tested: inside the ball, the bounds and, on the levels of a file. Same shapes."""
        u = u.clamp(0, 1)
        if self.norm == "linf":
            u = torch.minimum(torch.maximum(u, seed - self.reach), seed + self.reach)
        elif self.round:
            u = self._shrink(u, seed)
        return self._on_grid(u, seed).clamp_(0, 1)

    def _shrink(self, u: Tensor, seed: Tensor) -> Tensor:
        change = (u - seed).flatten(1)
        size = change.norm(dim=1, keepdim=True).clamp_min(1e-12)
        inside: Tensor = seed + (change * (self.length(seed) / size).clamp_max(1)).view_as(seed)
        return inside

    def _on_grid(self, u: Tensor, seed: Tensor) -> Tensor:
        if self.levels is None:
            return u
        if not self.round:
            return self.levels.nearest(u)
        # Towards the seed: rounding to the nearest could leave the ball. Integers, because truncating floats is ten times slower.
        change = u - seed
        steps = self.levels.steps
        moved = change.mul(steps).add_(change.sign().mul_(1e-4)).int()
        return (seed * steps).round_().add_(moved).clamp_(max=self.levels.highest).div_(steps)

    def corner(self, signs: Tensor, seed: Tensor) -> Tensor:
        """The farthest position in the direction of signs (-1, 0, 1): at each value's bound, or on the sphere."""
        if not self.round:
            return self._on_grid((seed + signs * self.reach).clamp_(0, 1), seed)
        base = seed.flatten(1)
        direction = signs.flatten(1)
        step = radius = self.length(seed)
        for _ in range(3):  # values at their bound do not move, so the others go farther
            size = ((base + step * direction).clamp(0, 1) - base).norm(dim=1, keepdim=True)
            step = torch.where(size > 0, step * (radius / size.clamp_min(1e-12)), step).clamp_max(10.0)
        return self.project((base + step * direction).view_as(seed), seed)

    def stripes(self, seed: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Vertical stripes of random sign, and their corner."""
        shape = (len(seed), *[1] * (seed.ndim - 2), seed.shape[-1])
        signs = (torch.randint(0, 2, shape, generator=generator) * 2 - 1).to(seed).expand_as(seed).clone()
        return signs, self.corner(signs, seed)

    def noise(self, seed: Tensor, generator: torch.Generator) -> Tensor:
        """Random changes of the ball's own size: every value at its bound, or a Gaussian direction on the sphere."""
        if self.round:
            change = torch.randn(seed.shape, generator=generator).to(seed)
            size = change.flatten(1).norm(dim=1, keepdim=True).clamp_min(1e-12)
            return self.project(seed + change * (self.length(seed) / size).view(-1, *[1] * (seed.ndim - 1)), seed)
        return self.corner((torch.randint(0, 2, seed.shape, generator=generator) * 2 - 1).to(seed), seed)
