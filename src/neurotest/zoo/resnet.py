"""Residual networks for small images (He et al., 2016, section 4.2): 6n + 2 layers in three stages of n blocks."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from neurotest.zoo.blocks import Normalise, Pixels


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


def resnet20(pixels: Pixels) -> ResNet:
    return ResNet(3, pixels, projected=True)


def resnet56(pixels: Pixels) -> ResNet:
    return ResNet(9, pixels, projected=False)
