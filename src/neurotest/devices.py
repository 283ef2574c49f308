"""Arithmetic in float64 wherever a network runs: Apple's GPUs (`mps`) have none."""

from __future__ import annotations

from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

NO_FLOAT64 = ("mps",)


def exact(tensor: Tensor) -> Tensor:
    """A tensor in float64; one on a device that has no such numbers goes to the host first. Gradients flow back.

    >>> exact(torch.ones(1)).dtype
    torch.float64
    """
    return tensor.cpu().double() if tensor.device.type in NO_FLOAT64 else tensor.double()


def widest(device: torch.device) -> torch.dtype:
    """float64, or float32 on a device without it: for what a loop keeps beside the inputs, where copies would be felt."""
    return torch.float32 if device.type in NO_FLOAT64 else torch.float64


def placed(values: NDArray[Any], device: torch.device) -> Tensor:
    """An array on a device, in float32 where that has no float64."""
    tensor = torch.from_numpy(values)
    return tensor.to(device, widest(device) if tensor.dtype == torch.float64 else tensor.dtype)
