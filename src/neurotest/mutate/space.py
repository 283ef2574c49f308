"""The range [0, 1], in which inputs are mutated and compared."""

from __future__ import annotations

from torch import Tensor


def to_unit(x: Tensor, bounds: tuple[float, float]) -> Tensor:
    """From a target's bounds to [0, 1]."""
    low, high = bounds
    return x if bounds == (0.0, 1.0) else (x - low) / (high - low)


def from_unit(x: Tensor, bounds: tuple[float, float]) -> Tensor:
    """And back."""
    low, high = bounds
    return x if bounds == (0.0, 1.0) else x * (high - low) + low
