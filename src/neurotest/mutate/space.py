"""The range [0, 1], in which inputs are mutated and compared, and what 8 bits hold of it."""

from __future__ import annotations

from torch import Tensor


def round8(x: Tensor) -> Tensor:
    """Clip to [0, 1] and round to what 8 bits hold: u / 255 in float32, exactly as reading the saved image gives it."""
    return x.clamp(0, 1).mul(255).round_().div_(255)


def to_unit(x: Tensor, bounds: tuple[float, float]) -> Tensor:
    """From a target's bounds to [0, 1]."""
    low, high = bounds
    return x if bounds == (0.0, 1.0) else (x - low) / (high - low)


def from_unit(x: Tensor, bounds: tuple[float, float]) -> Tensor:
    """And back."""
    low, high = bounds
    return x if bounds == (0.0, 1.0) else x * (high - low) + low
