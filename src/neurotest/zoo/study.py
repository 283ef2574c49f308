"""The MNIST networks of the coverage study (Harel-Canada et al., 2020), with its numbers of neurons."""

from __future__ import annotations

from collections import OrderedDict
from itertools import pairwise

from torch import nn


def fcnet(*widths: int) -> nn.Sequential:
    """Dense layers with dropout between them. Widths are such that all outputs together make the study's neurons."""
    layers: list[tuple[str, nn.Module]] = [("flatten", nn.Flatten())]
    for number, (before, after) in enumerate(pairwise((28 * 28, *widths)), start=1):
        layers += [(f"fc{number}", nn.Linear(before, after)), (f"relu{number}", nn.ReLU()), (f"drop{number}", nn.Dropout(0.2))]
    last = len(widths) + 1
    return nn.Sequential(OrderedDict([*layers, (f"fc{last}", nn.Linear(widths[-1], 10))]))


def fcnet5() -> nn.Sequential:
    """478 neurons in five dense layers (the study's text says five hidden ones, its numbers say four and the output)."""
    return fcnet(256, 128, 64, 20)


def fcnet10() -> nn.Sequential:
    """3,206 neurons in ten dense layers."""
    return fcnet(698, 612, 526, 440, 354, 268, 182, 96, 20)


def conv2d() -> nn.Sequential:
    """15,230 units: 20 maps of 24x24, 50 of 8x8, 500 and 10 dense."""
    return nn.Sequential(
        OrderedDict[str, nn.Module](
            conv1=nn.Conv2d(1, 20, 5), relu1=nn.ReLU(), pool1=nn.MaxPool2d(2),
            conv2=nn.Conv2d(20, 50, 5), relu2=nn.ReLU(), pool2=nn.MaxPool2d(2),
            flatten=nn.Flatten(), fc1=nn.Linear(50 * 4 * 4, 500), relu3=nn.ReLU(), fc2=nn.Linear(500, 10),
        )
    )  # fmt: skip


def conv1d() -> nn.Sequential:
    """35,410 units: the image as one row of 784 pixels, 20 maps of 780, 50 of 386, 500 and 10 dense.

    The last pooling is by 16: by 2, which gives the same neurons, the dense layer would have 4.8 million weights.
    """
    return nn.Sequential(
        OrderedDict[str, nn.Module](
            row=nn.Flatten(2), conv1=nn.Conv1d(1, 20, 5), relu1=nn.ReLU(), pool1=nn.MaxPool1d(2),
            conv2=nn.Conv1d(20, 50, 5), relu2=nn.ReLU(), pool2=nn.MaxPool1d(16),
            flatten=nn.Flatten(), fc1=nn.Linear(50 * 24, 500), relu3=nn.ReLU(), fc2=nn.Linear(500, 10),
        )
    )  # fmt: skip
