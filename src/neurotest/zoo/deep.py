"""Deep networks for 32x32 colour images: VGG-16 with batch normalisation and MobileNetV2."""

from __future__ import annotations

from itertools import pairwise

from torch import Tensor, nn

from neurotest.zoo.blocks import Normalise, Pixels


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
