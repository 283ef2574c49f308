"""Random changes of the same size as a method's, as its control."""

from __future__ import annotations

import torch
from torch import Tensor

from neurotest import rng


def shuffle(seed: Tensor, x: Tensor, positions: list[int], random: int) -> Tensor:
    """The changes x - seed at random places with random signs, reversed where they would leave [0, 1]."""
    size = (x - seed).flatten(1).abs()
    out = torch.empty_like(size)
    base = seed.flatten(1)
    for i, position in enumerate(positions):
        generator = rng.torch_stream("attack.control", random, position)
        places = torch.randperm(size.shape[1], generator=generator).to(size.device)
        sign = (torch.randint(0, 2, (size.shape[1],), generator=generator) * 2 - 1).to(size)
        change = size[i, places] * sign
        outside = (base[i] + change < 0) | (base[i] + change > 1)
        out[i] = base[i] + torch.where(outside, -change, change)
    return out.clamp(0, 1).view_as(seed)
