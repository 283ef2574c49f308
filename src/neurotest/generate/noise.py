"""How far an output is from its seed, and the control: random changes of the same size."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from neurotest import rng

SAME = 1e-6  # smaller changes are rounding: such an output is its seed, and no fault


def distances(x: Tensor, seed: Tensor) -> NDArray[np.float64]:
    """L0 (share of values that differ), L2 and Linf of each pair in [0, 1]: (n, 3)."""
    away = (x - seed).flatten(1).abs().double()
    found = torch.stack([(away > 1e-7).double().mean(1), away.square().sum(1).sqrt(), away.amax(1)], dim=1)
    return np.asarray(found.cpu().numpy())


def shuffle(seed: Tensor, x: Tensor, positions: list[int], random: int) -> Tensor:
    """The control: the same changes at random places with random signs, turned round where they would leave [0, 1]."""
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
