"""Measures of inputs without any network: how far from their originals, how alike, how rough."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from neurotest.errors import BadInput
from neurotest.mutate import distances as apart

Floats = NDArray[np.float64]
WINDOW, SPREAD = 11, 1.5  # as in the paper on SSIM
CHUNK = 256


def _pair(x: Tensor, original: Tensor) -> None:
    if x.shape != original.shape:
        raise BadInput(
            "wrong-shape",
            "originals",
            f"inputs of {tuple(x.shape)} against originals of {tuple(original.shape)}: each needs its own original.",
        )


def distances(x: Tensor, original: Tensor) -> dict[str, Floats]:
    """Per input the share of values that differ (l0), l2 and linf, for values in [0, 1]."""
    _pair(x, original)
    return dict(zip(apart.NAMES, apart.distances(x, original).T, strict=True))


def total_variation(x: Tensor) -> Floats:
    """Mean absolute difference of neighbouring pixels, down and across: (n,)."""
    _images(x)
    down, across = (x[:, :, 1:] - x[:, :, :-1]).abs(), (x[..., 1:] - x[..., :-1]).abs()
    variation = (down.flatten(1).sum(1) + across.flatten(1).sum(1)) / x[0].numel()
    return np.asarray(variation.cpu().double().numpy())


def ssim(x: Tensor, original: Tensor) -> Floats:
    """Structural similarity of each pair of images in [0, 1], mean over places and channels: 1 for equal ones."""
    from kornia.metrics import ssim as places

    _pair(x, original)
    _images(x)
    side = min(x.shape[2:])
    window = min(WINDOW, side if side % 2 else side - 1)
    parts = [
        places(x[i : i + CHUNK].float(), original[i : i + CHUNK].float(), window, max_val=1.0).flatten(1).mean(1)
        for i in range(0, len(x), CHUNK)
    ]
    return np.asarray(torch.cat(parts).cpu().double().numpy())


def _images(x: Tensor) -> None:
    if x.ndim != 4:
        raise BadInput(
            "unsuitable",
            "shape",
            f"inputs of shape {tuple(x.shape[1:])} are no images (channels, height, width): SSIM and variation need them.",
        )
