"""Audio as stored inputs: 16-bit samples of one channel, WAV files of them, and spectrograms."""

from __future__ import annotations

import functools
import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

Samples = NDArray[np.int16]
Floats = NDArray[np.float64]

SUFFIXES = (".wav", ".flac", ".ogg", ".oga")  # of files that are read
RATES = (1_000, 192_000)  # samples a second that are believed
HEADER = struct.Struct("<4sI4s4sIHHIIHH4sI")
PLAIN = b"axes" + struct.pack("<II", 4, 1)  # a chunk of our own behind the samples: the input has no axis for the channel
BANDS, WINDOW, FLOOR = 64, 256, 80.0  # of a spectrogram: mel bands, samples of a frame, decibels from white to black
NOMINAL = 16_000  # of a spectrogram whose rate nobody says: only the spacing of its bands depends on it
WIDEST = 400  # frames of a spectrogram
APART = 30.0  # decibels of difference that are drawn white
COLOURS = np.array([(0, 0, 10), (72, 20, 110), (180, 54, 90), (245, 130, 40), (252, 250, 190)], dtype=np.float64)


def is_audio(dtype: Any, shape: tuple[int, ...]) -> bool:
    """Whether inputs of this type and shape are audio: 16-bit samples, (samples,) or (1, samples)."""
    return np.dtype(dtype) == np.int16 and (len(shape) == 1 or (len(shape) == 2 and shape[0] == 1)) and shape[-1] > 0


def wav(x: NDArray[Any], rate: int) -> bytes:
    """A WAV file of one channel and 16 bits that holds exactly these samples."""
    content = np.ascontiguousarray(x, "<i2").tobytes()
    rest = PLAIN if x.ndim == 1 else b""
    sizes = (36 + len(content) + len(rest), 16, 1, 1, rate, 2 * rate, 2, 16)
    total, *form = sizes
    return HEADER.pack(b"RIFF", total, b"WAVE", b"fmt ", *form, b"data", len(content)) + content + rest


def read_wav(content: bytes) -> tuple[Samples, int]:
    """The samples of a file that `wav` wrote, in their shape, and how many there are a second; anything else is a ValueError."""
    if len(content) < HEADER.size:
        raise ValueError("it ends within its header")
    riff, total, wave, form, *fields, word, size = HEADER.unpack_from(content)
    length, kind, channels, rate, each_second, each, bits = fields
    if (riff, wave, form, word) != (b"RIFF", b"WAVE", b"fmt ", b"data"):
        raise ValueError("it does not start as a WAV file of ours does")
    if (length, kind, channels, each_second, each, bits) != (16, 1, 1, 2 * rate, 2, 16):
        raise ValueError("it is not of one channel and 16 bits")
    if not RATES[0] <= rate <= RATES[1]:
        raise ValueError(f"it has {rate} samples a second")
    rest = content[HEADER.size + size :]
    if total != len(content) - 8 or size % 2 or not size or rest not in (b"", PLAIN):
        raise ValueError(f"its header promises {size} bytes of samples, {len(content) - HEADER.size} are there")
    samples = np.frombuffer(content, "<i2", size // 2, HEADER.size).astype(np.int16)
    return samples if rest else samples[None], rate


@functools.lru_cache(maxsize=32)
def mel_bank(rate: int, window: int, bands: int, low: float = 0.0, high: float | None = None) -> Floats:
    """(bands, window // 2 + 1) triangles of height 1, evenly spaced between two frequencies on the mel scale.

    Mel is 2595 log10(1 + f / 700). Each triangle rises from the centre of the one before and falls to the next one's.
    """
    top = rate / 2 if high is None else high
    mels = np.linspace(2595 * np.log10(1 + low / 700), 2595 * np.log10(1 + top / 700), bands + 2)
    edges = 700 * (10 ** (mels / 2595) - 1)  # (bands + 2,) in Hz
    bins = np.arange(window // 2 + 1) * rate / window
    rising = (bins - edges[:-2, None]) / np.diff(edges)[:-1, None]
    falling = (edges[2:, None] - bins) / np.diff(edges)[1:, None]
    bank: Floats = np.maximum(0.0, np.minimum(rising, falling))
    bank.flags.writeable = False
    return bank


def hann(window: int) -> Floats:
    """The periodic Hann window."""
    return np.asarray(0.5 - 0.5 * np.cos(2 * np.pi * np.arange(window) / window))


def _frames(x: NDArray[Any], window: int, hop: int) -> Floats:
    """(frames, window) of samples (samples,); the last one is filled up with silence."""
    count = 1 + max(0, -(-(len(x) - window) // hop))
    padded = np.zeros((count - 1) * hop + window)
    padded[: min(len(x), len(padded))] = x[: len(padded)]
    return np.asarray(np.lib.stride_tricks.sliding_window_view(padded, window)[::hop])


def decibels(x: NDArray[Any], rate: int = NOMINAL, *, window: int = WINDOW, hop: int | None = None, bands: int = BANDS) -> Floats:
    """(bands, frames): how loud a clip is in each mel band at each time, in decibels of full scale."""
    samples = x.reshape(-1).astype(np.float64) / (32768 if x.dtype == np.int16 else 1)
    spectra = np.abs(np.fft.rfft(_frames(samples, window, hop or window // 4) * hann(window), axis=1)) ** 2 / (window / 4) ** 2
    power = spectra @ mel_bank(rate, window, bands).T  # (frames, bands)
    return np.asarray(10 * np.log10(power.T + 1e-10))


def _hop(samples: int) -> int:
    """Samples from one column of a spectrogram to the next."""
    return max(WINDOW // 4, -(-samples // WIDEST))


def spectrogram_size(samples: int) -> tuple[int, int]:
    """Height and width of a spectrogram: bands and times."""
    return BANDS, 1 + max(0, -(-(samples - WINDOW) // _hop(samples)))


def spectrogram(x: NDArray[Any], rate: int = NOMINAL) -> NDArray[np.uint8]:
    """(3, BANDS, frames): time from left to right, low tones below; black is FLOOR decibels under the loudest place."""
    loud = decibels(x, rate, hop=_hop(x.size))
    share = np.clip(1 + (loud - max(float(loud.max()), -60.0)) / FLOOR, 0, 1)[::-1]
    return _coloured(share)


def difference(x: NDArray[Any], seed: NDArray[Any], rate: int = NOMINAL) -> NDArray[np.uint8]:
    """(3, BANDS, frames): by how many decibels two clips differ, black for none and white for APART or more.

    Places where both are FLOOR decibels under the loudest are black: nobody hears them.
    """
    hop = _hop(x.size)
    one, other = decibels(x, rate, hop=hop), decibels(seed, rate, hop=hop)
    least = max(float(one.max()), float(other.max())) - FLOOR
    apart = np.abs(np.maximum(one, least) - np.maximum(other, least))
    return _coloured(np.clip(apart / APART, 0, 1)[::-1])


def _coloured(share: NDArray[Any]) -> NDArray[np.uint8]:
    """(3, height, width) of values in [0, 1]: dark to light over purple, red and orange."""
    place = np.linspace(0, 1, len(COLOURS))
    channels = [np.interp(share, place, COLOURS[:, channel]) for channel in range(3)]
    return np.asarray(np.rint(np.stack(channels)), np.uint8)
