"""A small network whose output neurons are right by construction: a class is a quadrant that is bright."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from neurotest.data.source import ArraySource
from neurotest.target import Target

CLASSES = ("upper left", "upper right", "lower left", "lower right")


class Quadrants(nn.Module):
    """Means of the four quadrants; a fifth neuron of the hidden layer is dead."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = nn.AvgPool2d(4)
        self.flatten = nn.Flatten()
        self.hidden = nn.Linear(4, 5)
        self.relu = nn.ReLU()
        self.fc = nn.Linear(5, 4)
        with torch.no_grad():
            self.hidden.weight.zero_()
            self.hidden.weight[:4] = torch.eye(4)
            self.hidden.bias.copy_(torch.tensor([0.0, 0.0, 0.0, 0.0, -1.0]))
            self.fc.weight.zero_()
            self.fc.weight[:, :4] = torch.eye(4)
            self.fc.bias.zero_()

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.relu(self.hidden(self.flatten(self.pool(x)))) * 4)


def target(classes: tuple[str, ...] | None = CLASSES) -> Target:
    return Target(Quadrants().eval(), shape=(1, 8, 8), classes=classes)


def source(n: int = 40, *, labelled: bool = True, seed: int = 0) -> ArraySource:
    random = np.random.default_rng(seed)
    labels = np.arange(n) % 4
    x = random.uniform(0, 0.1, (n, 1, 8, 8)).astype(np.float32)
    for number, label in enumerate(labels):
        row, column = 4 * (label // 2), 4 * (label % 2)
        x[number, 0, row : row + 4, column : column + 4] += 0.5 + 0.3 * random.random()
    return ArraySource(x, labels if labelled else None, classes=CLASSES if labelled else None, spec="quadrants")
