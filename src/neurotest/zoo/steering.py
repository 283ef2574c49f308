"""Networks that look at a road and return one number: NVIDIA's DAVE-2 as DeepXplore has it, and two small ones for drawn
roads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from torch import Tensor, nn


class Centred(nn.Module):
    """Pictures in 0 .. 1 as -0.5 .. 0.5."""

    def forward(self, x: Tensor) -> Tensor:
        return x - 0.5


class Scaled(nn.Module):
    """The answer in the unit of the quantity: training works on numbers of about 1."""

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
PIXELS = 5.0  # what a usual turn is, in pixels


def dave2() -> Steering:
    """82,669 units on frames of 100 x 100, as the coverage study counts them. The published one ends in 2 atan, for radians."""
    return Steering(3, DAVE2, (1600, 1164, 100, 50, 10), scale=PIXELS)


def dave2n() -> Steering:
    """DAVE2-Norminit: the same, its dense layers started from normal weights. DeepXplore's have a spread of 0.1 whatever the
    width of the layer; these are He's, which learn at the rate of the other two."""
    network = dave2()
    for layer in network.dense:
        if isinstance(layer, nn.Linear):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
    return network


def dave2d() -> Steering:
    """DAVE2-Dropout: three convolutions with pooling, dropout between the dense layers."""
    convolutions = ((16, 3, 1), (32, 3, 1), (64, 3, 1))
    return Steering(3, convolutions, (256, 500, 100, 20), scale=PIXELS, pool=3, dropout=(0.5, 0.25))


STEERING: dict[str, Callable[[], nn.Module]] = {
    "dave": lambda: Steering(1, ((8, 5, 2), (16, 5, 2), (24, 3, 1)), (504, 32)),
    "pooled": lambda: Steering(1, ((8, 3, 1), (16, 3, 1), (16, 3, 1)), (128, 24), pool=2),
    "dave2": dave2,
    "dave2n": dave2n,
    "dave2d": dave2d,
}
