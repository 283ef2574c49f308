"""Log-mel features as Kaldi makes them, in torch, so that gradients reach the samples: the front end of an AST."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

RATE, FRAME, HOP, SIZE = 16_000, 400, 160, 512  # 25 and 10 ms; each frame is filled up to SIZE for its spectrum
LOWEST = 20.0  # Hz
EMPHASIS = 0.97  # how much of the sample before is subtracted
FLOOR = float(np.finfo(np.float32).eps)  # of an energy, so that silence has a logarithm


@dataclass(frozen=True)
class LogMel:
    """Sound of 16,000 samples a second to what `ASTFeatureExtractor` of transformers makes of it: (n, length, bands)."""

    bands: int = 128
    length: int = 1024  # frames; longer sounds are cut, shorter ones filled up with zeros
    mean: float = 0.0
    scale: float = 1.0

    def __call__(self, x: Tensor) -> dict[str, Tensor]:
        with torch.autocast(x.device.type, enabled=False):  # energies span more than lower precision holds
            energies = self._energies(x.flatten(1).float())
            features = energies.clamp_min(FLOOR).log()
            padded = F.pad(features, (0, 0, 0, self.length - features.shape[1]))
            return {"input_values": (padded - self.mean) / self.scale}

    def _energies(self, x: Tensor) -> Tensor:
        """(n, frames, bands)"""
        frames = x.unfold(1, FRAME, HOP)[:, : self.length]
        frames = frames - frames.mean(2, keepdim=True)
        before = torch.cat([frames[..., :1], frames[..., :-1]], 2)
        window = torch.hann_window(FRAME, periodic=False, device=x.device)
        spectra = torch.fft.rfft((frames - EMPHASIS * before) * window, SIZE)
        return torch.view_as_real(spectra).square().sum(3) @ bank(self.bands, x.device)


@functools.cache
@torch.inference_mode(False)  # kept for passes with gradients, too, whichever comes first
def bank(bands: int, device: torch.device) -> Tensor:
    """(SIZE // 2 + 1, bands) triangles of height 1, straight on the mel scale and not, as elsewhere, in Hz."""
    bins = _mels(np.arange(SIZE // 2 + 1) * RATE / SIZE)[:, None]
    edges = np.linspace(_mels(np.array(LOWEST)), _mels(np.array(RATE / 2)), bands + 2)
    step = edges[1] - edges[0]
    triangles = np.minimum((bins - edges[:-2]) / step, (edges[2:] - bins) / step)
    return torch.from_numpy(np.maximum(0.0, triangles).astype(np.float32)).to(device)


def _mels(hertz: np.ndarray) -> np.ndarray:
    return np.asarray(1127 * np.log(1 + hertz / 700))
