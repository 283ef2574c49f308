"""Plain torch architectures. The LeNets are DeepSensor's: `same` padding, 7,206 / 69,362 / 107,786 parameters.

Networks that look at a road are NVIDIA's DAVE-2 as DeepXplore has it, and two small ones for drawn roads.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional


class Pixels(NamedTuple):
    """Mean and standard deviation of a data set's training images per channel, for images in 0 .. 1."""

    mean: tuple[float, ...]
    std: tuple[float, ...]

    @property
    def channels(self) -> int:
        return len(self.mean)


class Normalise(nn.Module):
    """Images in 0 .. 1 as the network likes them: zero mean, unit spread.

    It stands inside the network, so that a target needs no separate preprocessing: bounds, mutations and saved inputs are
    about pixels, and an exported network brings its normalisation along.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, pixels: Pixels) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(pixels.mean).view(-1, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(pixels.std).view(-1, 1, 1), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.mean) / self.std


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


def _fcnet(*widths: int) -> nn.Sequential:
    """Dense layers with dropout between them. Widths are such that all outputs together make the neurons of
    the coverage study (Harel-Canada et al., 2020)."""
    layers: list[tuple[str, nn.Module]] = [("flatten", nn.Flatten())]
    for number, (before, after) in enumerate(pairwise((28 * 28, *widths)), start=1):
        layers += [(f"fc{number}", nn.Linear(before, after)), (f"relu{number}", nn.ReLU()), (f"drop{number}", nn.Dropout(0.2))]
    last = len(widths) + 1
    return nn.Sequential(OrderedDict([*layers, (f"fc{last}", nn.Linear(widths[-1], 10))]))


def _conv2d() -> nn.Sequential:
    """15,230 units: 20 maps of 24x24, 50 of 8x8, 500 and 10 dense."""
    return nn.Sequential(
        OrderedDict[str, nn.Module](
            conv1=nn.Conv2d(1, 20, 5), relu1=nn.ReLU(), pool1=nn.MaxPool2d(2),
            conv2=nn.Conv2d(20, 50, 5), relu2=nn.ReLU(), pool2=nn.MaxPool2d(2),
            flatten=nn.Flatten(), fc1=nn.Linear(50 * 4 * 4, 500), relu3=nn.ReLU(), fc2=nn.Linear(500, 10),
        )
    )  # fmt: skip


def _conv1d() -> nn.Sequential:
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


class Pad(nn.Module):
    """The shortcut without parameters: every second pixel, new channels filled with zeros."""

    def __init__(self, new: int) -> None:
        super().__init__()
        self.new = new

    def forward(self, x: Tensor) -> Tensor:
        return functional.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, self.new // 2, self.new - self.new // 2))


class Block(nn.Module):
    """Two 3x3 convolutions around a shortcut."""

    def __init__(self, before: int, after: int, stride: int, *, projected: bool) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride, padding=1, bias=projected)
        self.norm1 = nn.BatchNorm2d(after)
        self.relu1 = nn.ReLU()
        self.conv2 = nn.Conv2d(after, after, 3, padding=1, bias=projected)
        self.norm2 = nn.BatchNorm2d(after)
        self.shortcut: nn.Module = nn.Identity()
        if before != after:
            self.shortcut = nn.Conv2d(before, after, 1, stride) if projected else Pad(after - before)
        self.relu2 = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.norm2(self.conv2(self.relu1(self.norm1(self.conv1(x)))))
        return self.relu2(torch.add(out, self.shortcut(x)))  # type: ignore[no-any-return]


class ResNet(nn.Module):
    """`projected` shortcuts are 1x1 convolutions and every convolution has a bias: 273,066 parameters with n = 3 on colour
    images, DeepSensor's ResNet-20. Without, shortcuts have no parameters: the coverage study's ResNet-56 (n = 9)."""

    def __init__(self, n: int, pixels: Pixels, *, projected: bool) -> None:
        super().__init__()
        self.normalise = Normalise(pixels)
        self.conv = nn.Conv2d(pixels.channels, 16, 3, padding=1, bias=projected)
        self.norm = nn.BatchNorm2d(16)
        self.relu = nn.ReLU()
        self.stage1 = self._stage(n, 16, 16, projected=projected)
        self.stage2 = self._stage(n, 16, 32, projected=projected)
        self.stage3 = self._stage(n, 32, 64, projected=projected)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.flatten = nn.Flatten()
        self.fc = nn.Linear(64, 10)

    @staticmethod
    def _stage(n: int, before: int, after: int, *, projected: bool) -> nn.Sequential:
        first = Block(before, after, 1 if before == after else 2, projected=projected)
        return nn.Sequential(first, *(Block(after, after, 1, projected=projected) for _ in range(n - 1)))

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu(self.norm(self.conv(self.normalise(x))))
        x = self.stage3(self.stage2(self.stage1(x)))
        return self.fc(self.flatten(self.pool(x)))  # type: ignore[no-any-return]


class VGG16BN(nn.Module):
    """Thirteen 3x3 convolutions, three dense layers, each followed by batch normalisation (the last one too): 33,663,070
    parameters, DeepSensor's VGG16."""

    MAPS = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))

    def __init__(self, pixels: Pixels) -> None:
        super().__init__()
        self.normalise = Normalise(pixels)
        layers: list[nn.Module] = []
        before = pixels.channels
        for stage in self.MAPS:
            for after in stage:
                layers += [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU()]
                before = after
            layers.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*layers, nn.Flatten())
        dense: list[nn.Module] = []
        for before, after in pairwise((512, 4096, 4096, 10)):
            dense += [nn.Linear(before, after), nn.BatchNorm1d(after), nn.ReLU()]
        self.classifier = nn.Sequential(*dense[:-1])

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.features(self.normalise(x)))  # type: ignore[no-any-return]


def _convolution(before: int, after: int, kernel: int = 1, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    layer = nn.Conv2d(before, after, kernel, stride, padding=kernel // 2, groups=groups, bias=False)
    return [layer, nn.BatchNorm2d(after), nn.ReLU6()]


class Inverted(nn.Module):
    """An inverted residual: widen, filter each channel, narrow without activation, add."""

    def __init__(self, before: int, after: int, widen: int, stride: int) -> None:
        super().__init__()
        width = before * widen
        wider = _convolution(before, width) if widen > 1 else []
        self.body = nn.Sequential(*wider, *_convolution(width, width, 3, stride, width), *_convolution(width, after)[:-1])
        self.adds = stride == 1 and before == after

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.body(x)
        return x + out if self.adds else out


class MobileNetV2(nn.Module):
    """Sandler et al. (2018) at width 1 with ten classes: 2,236,682 parameters. Two of its five strides are 1 here, because
    32x32 images would be 1x1 long before the end."""

    STAGES = ((1, 16, 1, 1), (6, 24, 2, 1), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))

    def __init__(self, pixels: Pixels) -> None:
        super().__init__()
        self.normalise = Normalise(pixels)
        layers: list[nn.Module] = _convolution(pixels.channels, 32, 3)
        before = 32
        for widen, after, blocks, stride in self.STAGES:
            for number in range(blocks):
                layers.append(Inverted(before, after, widen, stride if number == 0 else 1))
                before = after
        layers += _convolution(before, 1280)
        self.features = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.dropout = nn.Dropout(0.2)
        self.fc = nn.Linear(1280, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.dropout(self.features(self.normalise(x))))  # type: ignore[no-any-return]


# -- networks that look at a road and return one number


class Centred(nn.Module):
    """Images in 0 .. 1 as -0.5 .. 0.5."""

    def forward(self, x: Tensor) -> Tensor:
        return x - 0.5


class Scaled(nn.Module):
    """The answer in the unit of the regression value: training works on numbers of about 1."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = scale

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale

    def extra_repr(self) -> str:
        return f"scale={self.scale:g}"


Convolution = tuple[int, int, int]  # maps, side of the window, stride


class Steering(nn.Module):
    """Convolutions, dense layers, one number. dropout: before each dense layer, as many as are given."""

    def __init__(
        self, channels: int, convolutions: Sequence[Convolution], dense: Sequence[int], *, scale: float = 1.0, pool: int = 1,
        dropout: Sequence[float] = (),
    ) -> None:  # fmt: skip
        super().__init__()
        self.centre = Centred()
        maps: list[nn.Module] = []
        for (before, *_), (after, side, stride) in pairwise([(channels, 0, 0), *convolutions]):
            maps += [nn.Conv2d(before, after, side, stride), nn.ReLU(), *([nn.MaxPool2d(pool)] if pool > 1 else [])]
        self.maps = nn.Sequential(*maps)
        self.flatten = nn.Flatten()
        layers: list[nn.Module] = []
        for number, (before, after) in enumerate(pairwise(dense)):
            layers += [nn.Linear(before, after), nn.ReLU()]
            layers += [nn.Dropout(dropout[number])] if number < len(dropout) else []
        self.dense = nn.Sequential(*layers, nn.Linear(dense[-1], 1))
        self.scale = Scaled(scale)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.scale(self.dense(self.flatten(self.maps(self.centre(x)))))
        return out


DAVE2: tuple[Convolution, ...] = ((24, 5, 2), (36, 5, 2), (48, 5, 2), (64, 3, 1), (64, 3, 1))
TURN = 5.0  # what a usual turn is, in pixels


def _dave2() -> Steering:
    """82,669 units on frames of 100 x 100, as the coverage study counts them. The published one ends in 2 atan, for radians."""
    return Steering(3, DAVE2, (1600, 1164, 100, 50, 10), scale=TURN)


def _dave2n() -> Steering:
    """DAVE2-Norminit: the same, its dense layers started from normal weights. DeepXplore's have a spread of 0.1 whatever the
    width of the layer; these are He's, which learn at the rate of the other two."""
    network = _dave2()
    for layer in network.dense:
        if isinstance(layer, nn.Linear):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
    return network


def _dave2d() -> Steering:
    """DAVE2-Dropout: three convolutions with pooling, dropout between the dense layers."""
    convolutions = ((16, 3, 1), (32, 3, 1), (64, 3, 1))
    return Steering(3, convolutions, (256, 500, 100, 20), scale=TURN, pool=3, dropout=(0.5, 0.25))


# By the word of a data set, whose images they normalise.
BUILD: dict[str, Callable[[str], nn.Module]] = {
    "lenet1": lambda _: _lenet((4, 12), ()),
    "lenet4": lambda _: _lenet((6, 16), (84,)),
    "lenet5": lambda _: _lenet((6, 16), (120, 84)),
    "resnet20": lambda family: ResNet(3, PIXELS[family], projected=True),
    "resnet56": lambda family: ResNet(9, PIXELS[family], projected=False),
    "vgg16bn": lambda family: VGG16BN(PIXELS[family]),
    "mobilenetv2": lambda family: MobileNetV2(PIXELS[family]),
    # 478 neurons (the study's text says five hidden layers, its numbers say four and the output) and 3,206
    "fcnet5": lambda _: _fcnet(256, 128, 64, 20),
    "fcnet10": lambda _: _fcnet(698, 612, 526, 440, 354, 268, 182, 96, 20),
    "conv1d": lambda _: _conv1d(),
    "conv2d": lambda _: _conv2d(),
    "dave": lambda _: Steering(1, ((8, 5, 2), (16, 5, 2), (24, 3, 1)), (504, 32)),
    "pooled": lambda _: Steering(1, ((8, 3, 1), (16, 3, 1), (16, 3, 1)), (128, 24), pool=2),
    "dave2": lambda _: _dave2(),
    "dave2n": lambda _: _dave2n(),
    "dave2d": lambda _: _dave2d(),
}


def build(family: str, architecture: str) -> nn.Module:
    """An architecture with fresh weights for the inputs of a data set, in training mode."""
    if architecture in BUILD:
        return BUILD[architecture](family)
    from neurotest.zoo.audio import HEARING  # built of blocks above

    return HEARING[architecture]()
