"""The zoo's sound: the synthesiser, the front end against numpy and a plain loop, and the network on unknown speakers."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy import signal

from neurotest import audio, zoo
from neurotest.data import data
from neurotest.target.load import load
from neurotest.zoo import speech
from neurotest.zoo.audio import LogMel


def test_a_still_resonance_is_the_usual_filter() -> None:
    x, frequency, width = np.random.default_rng(0).standard_normal((2, speech.SAMPLES)), 700.0, 80.0
    c = -math.exp(-2 * math.pi * width / speech.RATE)
    b = 2 * math.exp(-math.pi * width / speech.RATE) * math.cos(2 * math.pi * frequency / speech.RATE)
    theirs = signal.lfilter([1 - b - c], [1, -b, -c], x)
    assert_allclose(speech._resonance(x, np.full_like(x, frequency), width), theirs, atol=1e-9)


def test_digits_are_where_they_should_be() -> None:
    source = data("zoo:spoken-digits/test[:250]")
    assert (source.shape, source.dtype, source.rate, source.classes) == ((1, 4800), np.int16, 8000, speech.CLASSES)
    assert source.labels is not None
    assert np.bincount(source.labels).tolist() == [25] * 10
    x = source.read(np.arange(250))
    assert 0.05 < np.abs(x).max() / 32768 < 1
    assert np.abs(x.astype(np.int32)).max(axis=2).min() > 1000
    # "six" hisses: more of it lies above 2.5 kHz than of "one"
    power = np.abs(np.fft.rfft(x[:, 0])) ** 2
    high = power[:, int(2500 * 4800 / 8000) :].sum(axis=1) / power.sum(axis=1)
    assert high[source.labels == 6].mean() > 2 * high[source.labels == 1].mean()


def test_a_slice_is_a_beginning_and_speakers_differ_between_splits() -> None:
    few, _ = speech.load("test", 10)
    assert (few == speech.clips(1000, 5)[0][:10]).all()
    train, test = speech.SPLITS["train"], speech.SPLITS["test"]
    assert train.first + train.speakers <= test.first
    assert (train.clips, test.clips) == (2400, 1000)


def test_log_mel_against_numpy_and_a_plain_loop() -> None:
    front = LogMel(8000, window=64, hop=20, bands=6, low=60.0, floor=-80.0, mean=-50.0, spread=20.0)
    x = torch.from_numpy(0.3 * np.random.default_rng(0).standard_normal((2, 1, 300))).float()
    ours = front(x)
    count = (300 - 64) // 20 + 1
    assert ours.shape == (2, 1, 6, count)
    assert torch.equal(front(x[:, 0]), ours)
    bank = audio.mel_bank(8000, 64, 6, 60.0)
    for n in range(2):
        for frame in range(count):
            part = x[n, 0, 20 * frame : 20 * frame + 64].double().numpy()
            windowed = [part[i] * (0.5 - 0.5 * math.cos(2 * math.pi * i / 64)) for i in range(64)]
            power = []
            for k in range(33):
                re = sum(windowed[i] * math.cos(2 * math.pi * i * k / 64) for i in range(64))
                im = sum(windowed[i] * math.sin(2 * math.pi * i * k / 64) for i in range(64))
                power.append((re**2 + im**2) / 16**2)
            for band in range(6):
                decibels = 10 * math.log10(float(np.dot(bank[band], power)) + 1e-8)
                assert float(ours[n, 0, band, frame]) == pytest.approx((decibels + 50) / 20, abs=1e-4)


def test_the_front_end_against_scipy() -> None:
    front = LogMel(8000, window=256, hop=80, bands=32)
    x = torch.from_numpy(0.2 * np.random.default_rng(1).standard_normal((1, 4800))).float()
    _, _, theirs = signal.stft(
        x[0].double().numpy(), 8000, "hann", 256, 256 - 80, boundary=None, padded=False, scaling="spectrum"
    )  # divided by the sum of the window, 128; ours by 64
    power = np.abs(theirs) ** 2 * 4
    decibels = 10 * np.log10(audio.mel_bank(8000, 256, 32, 60.0) @ power + 1e-8)
    assert_allclose(front(x)[0, 0].double().numpy(), (decibels + 50) / 20, atol=1e-3)


def test_gradients_reach_the_waveform_and_silence_is_finite() -> None:
    front = LogMel(8000, window=256, hop=80, bands=32)
    x = torch.zeros(1, 1, 4800, requires_grad=True)
    front(x + 0.0).sum().backward()
    assert x.grad is not None
    assert bool(torch.isfinite(x.grad).all())


def test_the_network_knows_digits_of_speakers_it_never_heard() -> None:
    target, source = load("zoo:spoken-melnet"), data("zoo:spoken-digits/test[:250]")
    assert (target.bounds, target.preprocess.rate, target.shape) == ((-1.0, 1.0), 8000, (1, 4800))
    with torch.inference_mode():
        predicted = target.logits(target.prepare(source.read(np.arange(250)))).argmax(1).numpy()
    assert (predicted == source.labels).mean() == pytest.approx(zoo.find("spoken-melnet").about["accuracy"], abs=0.03)


@pytest.mark.parametrize(("name", "parameters"), [("speakers-resnet", 205_452), ("speakers-deepspeaker", 210_668)])
def test_networks_for_speakers(name: str, parameters: int) -> None:
    subject = zoo.find(name)
    module = subject.build().eval()
    assert sum(weights.numel() for weights in module.parameters()) == parameters
    with torch.inference_mode():
        assert module(torch.zeros(2, 1, 16000)).shape == (2, 60)
    assert (subject.shape, subject.rate, subject.bounds, len(subject.classes)) == ((1, 16000), 16000, (-1.0, 1.0), 60)


def test_an_embedding_of_deep_speaker_has_length_one() -> None:
    module = zoo.find("speakers-deepspeaker").build().eval()
    seen: list[torch.Tensor] = []
    module.fc.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    with torch.inference_mode():
        module(torch.randn(3, 1, 16000, generator=torch.Generator().manual_seed(0)) / 10)
    assert_allclose(seen[0].norm(dim=1), [module.SCALE] * 3, rtol=1e-5)
