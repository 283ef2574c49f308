"""Networks on waveforms: the spectrogram is computed inside, so that mutants and faults are sounds that can be played."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from neurotest import sounds


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
        bank = sounds.mel_bank(rate, window, bands, low).T * scale  # (bins, bands)
        self.register_buffer("hann", torch.tensor(sounds.hann(window), dtype=torch.float32), persistent=False)
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
