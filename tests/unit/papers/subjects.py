"""A small network that tells three animals apart, with inputs."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from neurotest.data.source import ArraySource
from neurotest.target import Target

CLASSES = ["cat", "dog", "cow"]


def animals() -> tuple[Target, ArraySource, ArraySource]:
    torch.manual_seed(3)
    layers = (nn.Conv2d(1, 6, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(150, 12), nn.ReLU(), nn.Linear(12, 3))
    target = Target(nn.Sequential(*layers).eval(), shape=(1, 12, 12), mean=[0.3], std=[1.0], classes=CLASSES)
    x = np.random.default_rng(0).integers(0, 256, (60, 1, 12, 12)).astype(np.uint8)
    x[:, :, :6] //= np.arange(1, 61, dtype=np.uint8)[:, None, None, None] % 4 + 1
    with torch.no_grad():
        logits = target.logits(target.prepare(x))
        layers[6].bias -= logits.mean(0)  # type: ignore[operator]  # so that every class is predicted
        labels = (logits - logits.mean(0)).argmax(1).numpy()
    return target, ArraySource(x[:30], labels[:30]), ArraySource(x[30:], labels[30:])
