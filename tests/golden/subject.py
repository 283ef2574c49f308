"""The network and the inputs the coverage and selection values were made with."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from tests.golden import arrays
from torch import Tensor, nn

from neurotest.target import Probe, Target, Want


class Subject(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.relu1, self.pool1 = nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)
        self.conv2, self.relu2, self.pool2 = nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2)
        self.fc1, self.relu3, self.drop1 = nn.Linear(400, 120), nn.ReLU(), nn.Dropout(0.25)
        self.fc2, self.relu4, self.drop2 = nn.Linear(120, 84), nn.ReLU(), nn.Dropout(0.25)
        self.fc3 = nn.Linear(84, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool1(self.relu1(self.conv1(x)))
        x = torch.flatten(self.pool2(self.relu2(self.conv2(x))), 1)
        x = self.drop2(self.relu4(self.fc2(self.drop1(self.relu3(self.fc1(x))))))
        logits: Tensor = self.fc3(x)
        return logits


@cache
def target() -> Target:
    module = Subject()
    module.load_state_dict({name: torch.from_numpy(value) for name, value in arrays("lenet5like_state").items()})
    return Target(module.eval(), shape=(1, 28, 28))


def inputs(split: str) -> Tensor:
    return torch.from_numpy(arrays("inputs")[f"x_{split}_u8"]).float() / 255


@cache
def channel_means(split: str) -> dict[str, np.ndarray]:
    """Set A of the golden values: 236 channel means before activations, as stored."""
    stored = arrays("acts_channelmean_preact")
    return {str(name): stored[f"{split}/{name}"] for name in stored["layer_order"]}


@cache
def joined(split: str) -> np.ndarray:
    return np.concatenate(list(channel_means(split).values()), axis=1)


@cache
def units(split: str) -> dict[str, np.ndarray]:
    """Set B: 1,804 single units after activations, from the network itself."""
    want = Want(layers="relu2,relu3,relu4", neuron="unit")
    with Probe(target(), want) as probe:
        return {name: values.numpy() for name, values in probe(inputs(split))[want].items()}


def activations(split: str, which: str) -> dict[str, np.ndarray]:
    return channel_means(split) if which == "A" else units(split)
