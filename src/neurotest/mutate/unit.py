"""Inputs in [0, 1], where they are mutated and compared: there and back, and distances (L0, L2, Linf)."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from neurotest.devices import exact

NORMS = ("l0", "l2", "linf")
# Values in [0, 1] that differ by less are equal. Scaling a float32 value from a target's bounds to [0, 1] and back rounds by some
# 1e-7, so a smaller limit would count rounding as change; the smallest change of 8-bit data is 1/255, so there any limit below
# gives the same; a limit as large as half of that would call small changes of floating-point data none at all.
SAME = 1e-6


def to_unit(x: Tensor, bounds: tuple[float, float]) -> Tensor:
    """From a target's bounds to [0, 1]."""
    low, high = bounds
    return x if bounds == (0.0, 1.0) else (x - low) / (high - low)


def from_unit(x: Tensor, bounds: tuple[float, float]) -> Tensor:
    """And back."""
    low, high = bounds
    return x if bounds == (0.0, 1.0) else x * (high - low) + low


def changed(x: Tensor, seed: Tensor) -> Tensor:
    """Which values of x differ from those of its seed: bool, of x's shape."""
    return (x - seed).abs() > SAME


def distances(x: Tensor, seed: Tensor) -> NDArray[np.float64]:
    """(n, 3): L0 as the share of values that are `changed`, L2 and Linf of each pair, for values in [0, 1]."""
    apart = exact((x - seed).flatten(1).abs())
    columns = [(apart > SAME).double().mean(1), apart.square().sum(1).sqrt(), apart.amax(1)]
    return np.asarray(torch.stack(columns, dim=1).cpu().numpy())
