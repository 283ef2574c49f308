"""Networks on waveforms: the spectrogram is computed inside, so that mutants and faults are audio that can be played."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from neurotest import audio
from neurotest.zoo import FAMILIES, speech
from neurotest.zoo.architectures import Block


class LogMel(nn.Module):
    """Waveforms (n, 1, samples) or (n, samples) in -1 .. 1 as (n, 1, bands, frames): decibels in mel bands, scaled.

    Frames of `window` samples every `hop`, under a Hann window; a frame that is not whole is left out. The power in each band is
    put on a scale of decibels from `floor` (silence) up, and shifted and divided so that usual speech has mean 0 and spread 1.
    """

    hann: Tensor
    bank: Tensor

    def __init__(
        self, rate: int, *, window: int, hop: int, bands: int, low: float = 60.0, floor: float = -80.0, mean: float = -50.0,
        spread: float = 20.0,
    ) -> None:  # fmt: skip
        super().__init__()
        self.rate, self.window, self.hop, self.bands = rate, window, hop, bands
        self.power_floor, self.mean, self.spread = 10 ** (floor / 10), mean, spread
        scale = 1 / (window / 4) ** 2  # a sine of full scale has power 1
        bank = audio.mel_bank(rate, window, bands, low).T * scale  # (bins, bands)
        self.register_buffer("hann", torch.tensor(audio.hann(window), dtype=torch.float32), persistent=False)
        self.register_buffer("bank", torch.tensor(bank, dtype=torch.float32), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        frames = x.flatten(1).unfold(1, self.window, self.hop) * self.hann  # (n, frames, window)
        spectrum = torch.fft.rfft(frames)
        power = (spectrum.real.square() + spectrum.imag.square()) @ self.bank  # (n, frames, bands)
        decibels = 10 * torch.log10(power + self.power_floor)
        return ((decibels - self.mean) / self.spread).transpose(1, 2).unsqueeze(1)

    def extra_repr(self) -> str:
        return f"rate={self.rate}, window={self.window}, hop={self.hop}, bands={self.bands}"


class MelNet(nn.Module):
    """Three convolutions with pooling on a log-mel spectrogram, then two dense layers."""

    def __init__(
        self, rate: int, samples: int, classes: int = 10, *, maps: tuple[int, ...] = (16, 32, 32), dense: int = 64
    ) -> None:
        super().__init__()
        self.front = LogMel(rate, window=256, hop=80, bands=32)
        layers: list[nn.Module] = []
        for before, after in zip((1, *maps), maps, strict=False):
            layers += [nn.Conv2d(before, after, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
        self.maps = nn.Sequential(*layers)
        frames = (samples - 256) // 80 + 1
        cells = (32 >> len(maps)) * (frames >> len(maps))
        self.dense = nn.Sequential(nn.Flatten(), nn.Linear(maps[-1] * cells, dense), nn.ReLU(), nn.Linear(dense, classes))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.dense(self.maps(self.front(x)))
        return out


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


HEARING: dict[str, Callable[[], nn.Module]] = {
    "melnet": lambda: MelNet(speech.RATE, speech.SAMPLES),
    "melnet2": lambda: MelNet(speech.RATE, speech.SAMPLES, maps=(12, 24, 48), dense=48),
    "resnet": lambda: MelResNet(16_000, len(FAMILIES["speakers"].classes)),
    "deepspeaker": lambda: DeepSpeaker(16_000, len(FAMILIES["speakers"].classes)),
}
