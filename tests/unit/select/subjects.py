"""What the tests of selection share: two small networks, their inputs, and how two selections are compared."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from neurotest import rng
from neurotest.data.source import ArraySource, Source
from neurotest.mutate.nss import nss_pool
from neurotest.select import Selection
from neurotest.target import Target

N = 40


class Net(nn.Module):
    """Weights are multiples of 1/8, so on inputs that are multiples of 1/16 every sum is exact in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.act, self.pool = nn.Conv2d(1, 2, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)
        self.fc1, self.drop, self.fc2 = nn.Linear(18, 6), nn.Dropout(0.5), nn.Linear(6, 3)
        self._seen = 0
        random = torch.Generator().manual_seed(1)
        with torch.no_grad():
            for weight in self.parameters():
                weight.copy_(torch.randint(-8, 9, weight.shape, generator=random) / 8)

    def forward(self, x: Tensor) -> Tensor:
        self._seen += len(x)
        x = self.pool(self.act(self.conv(x))).flatten(1)
        return self.fc2(self.drop(self.act(self.fc1(x))))


def target(**description: object) -> Target:
    return Target(Net().eval(), **{"shape": (1, 6, 6), **description})


def images(n: int = N, seed: int = 0) -> np.ndarray:
    return (rng.stream("test.images", seed).integers(0, 17, (n, 1, 6, 6)) / 16).astype(np.float32)


def labels(n: int = N) -> np.ndarray:
    return rng.stream("test.labels", 0).integers(0, 3, n)


def exact_pool() -> Source:
    return ArraySource(images(), labels(), originals=ArraySource(images(seed=1)))


def mutated_pool() -> Source:
    x = rng.stream("test.eight", 0).integers(0, 256, (N, 1, 6, 6), dtype=np.uint8)
    return nss_pool(source=ArraySource(x, labels(), spec="zoo:toy/test"), seed=0)


TRAIN = ArraySource(images(30, seed=2), labels(30))
# What some methods cannot do without, and no method minds.
INPUTS: dict[str, Any] = {
    "train": TRAIN,
    "labels": {position: int(label) for position, label in enumerate(labels()) if position % 3 == 0},
}


def same_order(a: Selection, b: Selection) -> bool:
    return np.array_equal(a.order, b.order) and np.array_equal(a.all_scores, b.all_scores)


def centred() -> Target:
    """Takes vectors of six numbers; its biases are such that every class is predicted. Weights are multiples of 1/8: on inputs
    that are multiples of 1/16 every sum is exact in any order."""
    random = np.random.default_rng(0)
    first, last = nn.Linear(6, 8), nn.Linear(8, 3)
    with torch.no_grad():
        for layer in (first, last):
            layer.weight.copy_(torch.from_numpy(random.integers(-24, 25, layer.weight.shape) / 8))
        first.bias.copy_(-first.weight.sum(dim=1) / 2)
        last.bias.zero_()
        typical = torch.from_numpy(random.integers(0, 17, (500, 6)) / 16).float()
        last.bias.copy_((-16 * last(first(typical).relu()).double().mean(dim=0)).round() / 16)
    return Target(nn.Sequential(first, nn.ReLU(), last).eval(), shape=(6,))
