"""Tones on sound: the plane against scipy and a plain loop, moves that stay in the ball, faults that noise misses."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.fft import dct
from tests.refusals import refused

import neurotest
from neurotest import rng
from neurotest.generate.swarm.ball import Ball
from neurotest.generate.swarm.tones import TONE_LOUDNESS, TURN_TONES, Tones, _Plane
from neurotest.levels import SIXTEEN

pytestmark = pytest.mark.by_hand


def amounts_of(plane: _Plane, sound: torch.Tensor) -> torch.Tensor:
    """The inverse of `plane.sound`: (n, samples) -> (n, frequencies, times)."""
    padded = torch.nn.functional.pad(sound, (0, plane.times * plane.block - plane.samples))
    blocks = padded.view(len(sound), plane.times, plane.block)
    both = torch.cat([blocks, blocks.roll(-1, dims=1)], dim=2)
    return (both @ plane.tones.T).transpose(1, 2)


def test_a_tone_by_hand() -> None:
    plane = _Plane(8, block=2)
    amounts = torch.zeros(1, 2, 4)
    amounts[0, 1, 1] = 1.0  # the second frequency, in the second block: it lasts over the third
    expected = [math.sin(math.pi / 4 * (t + 0.5)) * math.cos(math.pi / 2 * (t + 1.5) * 1.5) for t in range(4)]
    assert_allclose(plane.sound(amounts)[0].numpy(), [0, 0, *expected, 0, 0], atol=1e-6)


def test_the_plane_against_scipy() -> None:
    """The transform is a DCT-IV of the folded, windowed blocks."""
    block = 8
    x = np.random.default_rng(0).standard_normal(2 * block)
    windowed = x * np.sin(np.pi / (2 * block) * (np.arange(2 * block) + 0.5))
    a, b, c, d = windowed.reshape(4, -1)
    folded = np.concatenate([-c[::-1] - d, a - b[::-1]])
    plane = _Plane(2 * block, block)
    ours = amounts_of(plane, torch.from_numpy(x).float()[None])[0, :, 0]
    assert_allclose(ours.numpy(), dct(folded, type=4, norm="ortho"), atol=1e-5)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 6), st.integers(1, 12), st.integers(0, 1000))
def test_the_plane_keeps_lengths(blocks: int, block: int, seed: int) -> None:
    plane = _Plane(blocks * block, block)
    amounts = torch.randn(2, plane.block, plane.times, generator=torch.Generator().manual_seed(seed))
    sound = plane.sound(amounts)
    assert sound.shape == (2, blocks * block)
    if blocks > 1:  # the one block of a short sound overlaps itself
        assert_allclose(sound.norm(dim=1), amounts.flatten(1).norm(dim=1), rtol=1e-4)
        assert_allclose(amounts_of(plane, sound), amounts, atol=1e-4)


def test_a_length_that_no_block_divides() -> None:
    plane = _Plane(150, 64)
    assert plane.sound(torch.randn(1, 64, 3)).shape == (1, 150)
    assert amounts_of(plane, torch.randn(1, 150)).shape == (1, 64, 3)


def test_low_tones_are_tried_more_often() -> None:
    weights = _Plane(640).weights(8000).view(64, 10)
    assert_allclose(weights[0, 0] / weights[63, 9], (700 + 63.5 * 62.5) / (700 + 0.5 * 62.5), rtol=1e-5)


def moves(n: int = 3, samples: int = 640) -> Tones:
    seeds = SIXTEEN.nearest(0.5 + 0.2 * torch.randn(n, 1, samples, generator=torch.Generator().manual_seed(0)))
    return Tones(seeds, Ball("snr", 20.0, SIXTEEN), 4, 8000)


def test_positions_lie_in_the_ball_and_on_levels() -> None:
    tones = moves()
    tones.begin(rng.torch_stream("test", 0))
    assert tones.order.shape == (3, TURN_TONES)
    assert all(len(set(row.tolist())) == TURN_TONES for row in tones.order)
    for round_ in range(12):
        x = tones.propose(lambda number=round_: rng.torch_stream("test", 1, number))
        change = (x - tones.seeds[:, None]).flatten(2).norm(dim=2)
        assert (change <= tones.radius * (1 + 1e-4)).all()
        assert torch.equal(SIXTEEN.nearest(x), x)
        rows = torch.arange(3)
        together = tones.join(rows, torch.ones(3, x.shape[1], dtype=torch.bool))
        assert (together.norm(dim=1) <= tones.radius[:, 0] * (1 + 1e-4)).all()
        tones.set_best(rows, together, tones.positions(together, tones.seeds))
    assert tones.over == (TURN_TONES <= 12 * 4)


def test_joined_tones_against_a_plain_loop() -> None:
    tones = moves(n=2)
    tones.begin(rng.torch_stream("test", 0))
    tones.propose(lambda: rng.torch_stream("test", 1))
    better = torch.tensor([[True, False, True, True], [False, False, False, True]])
    ours = tones.join(torch.arange(2), better)
    for row in range(2):
        amounts = np.zeros(tones.amounts.shape[1])
        for particle in range(4):
            if better[row, particle]:
                amounts[int(tones.tried[row, particle])] += float(tones.added[row, particle])
        assert abs(float(tones.added[row, 0])) == pytest.approx(TONE_LOUDNESS * float(tones.radius[row, 0]))
        assert_allclose(ours[row].numpy(), amounts, atol=1e-7)  # three tones are shorter than the radius
    assert torch.equal(tones.flip(torch.tensor([1]), torch.tensor([3]))[0], ours[1])


def test_tones_find_what_tiles_and_noise_do_not() -> None:
    """On sounds the moves were not chosen on."""
    options = {"norm": "snr", "radius": 25.0, "evaluations": 300, "out": False}
    seeds = "zoo:spoken-digits/test[1:120:10]"
    tones = neurotest.swarm("zoo:spoken-melnet", seeds, beside=["noise"], **options)
    tiles = neurotest.swarm("zoo:spoken-melnet", seeds, beside=[], moves="tiles", **options)
    failed = tones.failed
    assert failed >= tiles.failed + 2
    assert tones.controls["noise"].failed <= failed / 2


def test_tones_are_refused_elsewhere() -> None:
    with refused("unsuitable", "moves"):
        neurotest.swarm("zoo:mnist-lenet1", "zoo:mnist/test[:2]", moves="tones", evaluations=10, out=False)
    with refused("unsuitable", "moves"):
        neurotest.swarm("zoo:spoken-melnet", "zoo:spoken-digits/test[:2]", moves="tones", evaluations=10, out=False)
