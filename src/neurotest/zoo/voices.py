"""Networks that take waveforms: which word is said, and who says it."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn
from torch.nn import functional

from neurotest.zoo import speakers, speech
from neurotest.zoo.architectures import Block
from neurotest.zoo.audio import LogMel, MelNet


class MelResNet(nn.Module):
    """A residual network of 14 layers on log-mels, for speakers: the excitability paper's ResNet-34 made small.

    The mean is over time alone: which bands are loud is what tells voices apart.
    """

    BANDS = 64

    def __init__(self, rate: int, classes: int) -> None:
        super().__init__()
        self.front = LogMel(rate, window=400, hop=160, bands=self.BANDS)
        self.conv = nn.Conv2d(1, 16, 3, stride=2, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(16)
        self.relu = nn.ReLU()
        stages = [[Block(before, after, 1 if before == after else 2, projected=True), Block(after, after, 1, projected=True)]
                  for before, after in ((16, 16), (16, 32), (32, 64))]  # fmt: skip
        self.stages = nn.Sequential(*(block for stage in stages for block in stage))
        left = self.BANDS // 8  # of the bands, halved three times
        self.pool = nn.AdaptiveAvgPool2d((left, 1))
        self.flatten = nn.Flatten()
        self.fc = nn.Linear(64 * left, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stages(self.relu(self.norm(self.conv(self.front(x)))))
        return self.fc(self.flatten(self.pool(x)))  # type: ignore[no-any-return]


class Clipped(nn.Module):
    """A residual block of Deep Speaker: two 3x3 convolutions, and units that never give more than 20."""

    def __init__(self, maps: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(maps, maps, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(maps)
        self.clip1 = nn.Hardtanh(0.0, 20.0)
        self.conv2 = nn.Conv2d(maps, maps, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(maps)
        self.clip2 = nn.Hardtanh(0.0, 20.0)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.norm2(self.conv2(self.clip1(self.norm1(self.conv1(x)))))
        return self.clip2(out + x)  # type: ignore[no-any-return]


class DeepSpeaker(nn.Module):
    """Deep Speaker (Li et al. 2017) made small: 5x5 convolutions that halve, each with a residual block, the mean over time, an
    affine layer whose output is brought to length 1. Trained with softmax alone, which theirs only begins with."""

    SCALE = 16.0  # of the embedding: cosines are too close to each other for softmax
    BANDS = 40

    def __init__(self, rate: int, classes: int, *, maps: tuple[int, ...] = (16, 32, 64), embedding: int = 128) -> None:
        super().__init__()
        self.front = LogMel(rate, window=512, hop=200, bands=self.BANDS)
        layers: list[nn.Module] = []
        for before, after in zip((1, *maps), maps, strict=False):
            halved = nn.Conv2d(before, after, 5, stride=2, padding=2, bias=False)
            layers += [halved, nn.BatchNorm2d(after), nn.Hardtanh(0.0, 20.0), Clipped(after)]
        self.maps = nn.Sequential(*layers)
        self.affine = nn.Linear(maps[-1] * (self.BANDS >> len(maps)), embedding)
        self.fc = nn.Linear(embedding, classes)

    def forward(self, x: Tensor) -> Tensor:
        times = self.maps(self.front(x)).mean(dim=3)  # (n, maps, bands)
        voice = functional.normalize(self.affine(times.flatten(1)), dim=1)
        return self.fc(self.SCALE * voice)  # type: ignore[no-any-return]


HEARING: dict[tuple[str, str], Callable[[], nn.Module]] = {
    ("spoken", "melnet"): lambda: MelNet(speech.RATE, speech.SAMPLES),
    ("spoken", "melnet2"): lambda: MelNet(speech.RATE, speech.SAMPLES, maps=(12, 24, 48), dense=48),
    ("speakers", "resnet"): lambda: MelResNet(speakers.RATE, speakers.PEOPLE),
    ("speakers", "deepspeaker"): lambda: DeepSpeaker(speakers.RATE, speakers.PEOPLE),
}
