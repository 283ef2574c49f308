"""Plain torch architectures. The LeNets are DeepSensor's: `same` padding, 7,206 / 69,362 / 107,786 parameters."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from torch import nn

from neurotest.zoo.blocks import Pixels
from neurotest.zoo.deep import VGG16BN, MobileNetV2
from neurotest.zoo.resnet import resnet20, resnet56
from neurotest.zoo.study import conv1d, conv2d, fcnet5, fcnet10

# Of the training images, in 0 .. 1.
PIXELS: dict[str, Pixels] = {
    "mnist": Pixels((0.1307,), (0.3081,)),
    "fashion": Pixels((0.2860,), (0.3530,)),
    "cifar10": Pixels((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
}


def _lenet(maps: tuple[int, int], dense: tuple[int, ...]) -> nn.Sequential:
    """Two 5x5 convolutions with pooling on 28x28 grey images, then dense layers to ten classes."""
    layers: list[tuple[str, nn.Module]] = []
    before = 1
    for number, channels in enumerate(maps, start=1):
        layers += [
            (f"conv{number}", nn.Conv2d(before, channels, 5, padding=2)),
            (f"relu{number}", nn.ReLU()),
            (f"pool{number}", nn.MaxPool2d(2)),
        ]
        before = channels
    layers.append(("flatten", nn.Flatten()))
    before *= 7 * 7
    for number, width in enumerate(dense, start=1):
        layers += [(f"fc{number}", nn.Linear(before, width)), (f"relu{number + 2}", nn.ReLU())]
        before = width
    layers.append((f"fc{len(dense) + 1}", nn.Linear(before, 10)))
    return nn.Sequential(OrderedDict(layers))


BUILD: dict[str, Callable[[Pixels], nn.Module]] = {
    "lenet1": lambda _: _lenet((4, 12), ()),
    "lenet4": lambda _: _lenet((6, 16), (84,)),
    "lenet5": lambda _: _lenet((6, 16), (120, 84)),
    "resnet20": resnet20,
    "resnet56": resnet56,
    "vgg16bn": VGG16BN,
    "mobilenetv2": MobileNetV2,
    "fcnet5": lambda _: fcnet5(),
    "fcnet10": lambda _: fcnet10(),
    "conv1d": lambda _: conv1d(),
    "conv2d": lambda _: conv2d(),
}


def build(family: str, architecture: str) -> nn.Module:
    """An architecture with fresh weights for the images of a data set, in training mode."""
    return BUILD[architecture](PIXELS[family])
