"""WAV files of our own and spectrograms, against the standard library, scipy and plain loops."""

from __future__ import annotations

import io
import math
import struct
import wave

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy import signal
from scipy.io import wavfile

from neurotest import audio


def noise(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(-32768, 32768, count).astype(np.int16)


@pytest.mark.parametrize("shape", [(100,), (1, 101)])
def test_others_read_what_we_write(shape: tuple[int, ...]) -> None:
    x = noise(math.prod(shape)).reshape(shape)
    content = audio.wav(x, 11025)
    with wave.open(io.BytesIO(content)) as file:
        assert (file.getnchannels(), file.getsampwidth(), file.getframerate(), file.getnframes()) == (1, 2, 11025, x.size)
        assert (np.frombuffer(file.readframes(x.size), "<i2") == x.reshape(-1)).all()
    rate, theirs = wavfile.read(io.BytesIO(audio.wav(x.reshape(1, -1), 11025)))
    assert rate == 11025
    assert (theirs == x.reshape(-1)).all()


@settings(max_examples=30)
@given(st.integers(1, 300), st.booleans(), st.sampled_from([8000, 44100]), st.integers(0, 9))
def test_sounds_read_back_exactly(count: int, axis: bool, rate: int, seed: int) -> None:
    x = noise(count, seed)
    x = x[None] if axis else x
    back, again = audio.read_wav(audio.wav(x, rate))
    assert back.shape == x.shape
    assert back.dtype == np.int16
    assert (back == x).all()
    assert again == rate


def test_what_is_no_file_of_ours_is_refused() -> None:
    good = audio.wav(noise(10)[None], 8000)
    stereo = good[:22] + struct.pack("<H", 2) + good[24:]
    slow = good[:24] + struct.pack("<II", 3, 6) + good[32:]
    for content in (b"", good[:40], good[:-1], good + b"xx", b"RIFX" + good[4:], stereo, slow):
        with pytest.raises(ValueError):
            audio.read_wav(content)


def test_bands_of_the_mel_scale_by_hand() -> None:
    # 1000 Hz is 1000 mel to within a part in 10,000; two bands up to there have edges at 0, 1/3, 2/3 and 1 of 1000 mel.
    bank = audio.mel_bank(2000, 400, 2)
    edges = [700 * (10 ** (1000.0 * k / 3 / 2595) - 1) for k in range(4)]
    for band in range(2):
        low, middle, high = edges[band : band + 3]
        for place in range(201):
            f = place * 5.0
            height = max(0.0, min((f - low) / (middle - low), (high - f) / (high - middle)))
            assert bank[band, place] == pytest.approx(height, abs=2e-3)


def test_loudness_against_scipy_and_a_plain_loop() -> None:
    x, window, hop = noise(2000, 3)[None] // 4, 256, 64
    ours = audio.decibels(x, 8000, window=window, hop=hop, bands=20)
    samples = x[0] / 32768
    plan = signal.ShortTimeFFT(
        signal.windows.hann(window, sym=False), hop, 8000, fft_mode="onesided", scale_to=None, phase_shift=None
    )
    slices = np.arange(0, len(samples) - window + 1, hop)
    theirs = np.stack([plan.win * samples[at : at + window] for at in slices])
    spectra = np.abs(np.fft.rfft(theirs)) ** 2 / 64**2
    bank = audio.mel_bank(8000, window, 20)
    for frame in range(len(slices)):
        for band in range(20):
            power = sum(spectra[frame, k] * bank[band, k] for k in range(window // 2 + 1))
            assert_allclose(ours[band, frame], 10 * math.log10(power + 1e-10), atol=1e-9)


def test_a_tone_stands_where_it_sounds() -> None:
    t = np.arange(8000) / 16000
    x = (8000 * np.sin(2 * np.pi * 1000 * t)).astype(np.int16)[None]
    shown = audio.spectrogram(x, 16000)
    assert shown.shape[:2] == (3, audio.BANDS)
    assert shown.dtype == np.uint8
    row = int(shown.sum(axis=0).mean(axis=1).argmax())
    edges = np.linspace(0, 2595 * math.log10(1 + 8000 / 700), audio.BANDS + 2)
    assert abs((audio.BANDS - 1 - row) - int(np.abs(edges[1:-1] - 1000).argmin())) <= 1


def test_long_and_silent_sounds_have_pictures_too() -> None:
    assert audio.spectrogram(np.zeros((1, 10), np.int16)).shape[0] == 3
    assert audio.spectrogram(noise(200_000)).shape[2] <= audio.WIDEST + 1
