"""Chords on sound: reach by hand on a network whose map is known, gains against single tones, moves that stay in the ball."""

from __future__ import annotations

import pytest
import torch
from tests.refusals import refused
from torch import Tensor, nn

import neurotest
from neurotest import registry, rng
from neurotest.generate.swarm import Ball, Problem
from neurotest.generate.swarm.lattice import surrounded
from neurotest.generate.swarm.tones import CHORD_LOUDNESS, CHORD_SHARES, CHORD_STEPS, MOST_CHORDS, Chords, Reach, _groups
from neurotest.images import Preprocess
from neurotest.levels import SIXTEEN
from neurotest.target import Target
from neurotest.zoo.audio import LogMel

pytestmark = pytest.mark.by_hand

SAMPLES, RATE = 2560, 8000
BALL = Ball("snr", 20.0, SIXTEEN)


class Mel(nn.Module):
    """A stranger's network on a log-mel map, which lies as (bands, times) or turned as (times, bands)."""

    def __init__(self, turned: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.turned = turned
        self.front = LogMel(RATE, window=256, hop=128, bands=16)
        self.conv, self.relu, self.head = nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.LazyLinear(3)

    def forward(self, x: Tensor) -> Tensor:
        maps = self.front(x)
        maps = self.relu(self.conv(maps.transpose(2, 3) if self.turned else maps))
        out: Tensor = self.head(maps.flatten(1))
        return out


def problem(turned: bool = False, n: int = 2) -> Problem:
    module = Mel(turned)
    module(torch.zeros(1, 1, SAMPLES))
    target = Target(module.eval(), shape=(1, SAMPLES), bounds=(-1.0, 1.0), preprocess=Preprocess(rate=RATE))
    seeds = SIXTEEN.nearest(0.5 + 0.1 * torch.randn(n, 1, SAMPLES, generator=torch.Generator().manual_seed(1)))
    return Problem(target, seeds, target.logits(2 * seeds - 1).argmax(1), BALL)


def test_groups_by_hand() -> None:
    reached = torch.tensor([[0, 2], [1, 3], [3, 5], [4, 6], [0, -1], [6, 8]])
    assert [group.tolist() for group in _groups(reached)] == [[0, 2, 5], [1, 3]]


def test_sums_over_rectangles_against_a_plain_loop() -> None:
    maps = torch.randn(2, 5, 7, generator=torch.Generator().manual_seed(0))
    rows, columns = torch.tensor([[0, 1], [3, 4], [2, 1]]), torch.tensor([[0, 6], [2, 4]])
    ours = surrounded(maps, rows, columns)
    for n in range(2):
        for i, (top, bottom) in enumerate(rows.tolist()):
            for j, (left, right) in enumerate(columns.tolist()):
                expected = maps[n, top : bottom + 1, left : right + 1].double().sum()
                assert float(ours[n, i, j]) == pytest.approx(float(expected), abs=1e-5)


@pytest.mark.parametrize("turned", [False, True])
def test_reach_follows_time_and_pitch(turned: bool) -> None:
    one = problem(turned)
    measure = registry.build("fitness", "excitability").begin(one)
    with measure, torch.no_grad():
        reach = Reach.of(measure)
    assert reach is not None
    assert reach.turned == turned
    assert (reach.frames.diff(dim=0) >= 0).float().mean() > 0.9  # later blocks reach later frames
    assert (reach.bands.diff(dim=0) >= 0).float().mean() > 0.8  # and higher tones higher bands
    frames, bands = 1 + (SAMPLES - 256) // 128, 16
    assert int(reach.frames.max()) < frames
    assert int(reach.bands.max()) < bands
    for groups, lines in ((reach.pitches, reach.bands), (reach.moments, reach.frames)):
        for group in groups:
            ends = lines[group]
            assert (ends[:-1, 1] < ends[1:, 0]).all()


def test_gains_of_a_chord_are_those_of_its_tones_one_by_one() -> None:
    one = problem()
    measure = registry.build("fitness", "excitability").begin(one)
    with measure, torch.no_grad():
        reach = Reach.of(measure)
        assert reach is not None
        chords = Chords(one.seeds, BALL, reach)
        chords.begin(rng.torch_stream("test", 0))
        rows = torch.arange(2)
        measure.reweigh(one.seeds, rows)
        maps, _ = measure.fitness_map(chords.survey([0])[:, 0], rows)
        chords.learn([0], maps[:, None])
        way, pitches, moments = chords._place(0)
        together, alone = [], []
        for pitch in pitches.tolist():
            for moment in moments.tolist():
                amounts = torch.zeros_like(chords.amounts)
                amounts[:, pitch, moment] = (1 - 2 * way) * (CHORD_LOUDNESS * chords.radius * chords.signs)[:, pitch, moment]
                u = one.seeds + chords._sounds(amounts[:, None])[:, 0]
                alone.append(measure.fitness_map(u, rows)[0].flatten(1).sum(1))
                together.append(chords.helps[:, way, pitch, moment])
    pair = torch.stack([torch.stack(together).flatten().double(), torch.stack(alone).flatten().double()])
    assert float(torch.corrcoef(pair)[0, 1]) > 0.9


def test_steps_stay_in_the_ball_and_on_levels() -> None:
    one = problem()
    measure = registry.build("fitness", "excitability").begin(one)
    with measure, torch.no_grad():
        reach = Reach.of(measure)
    assert reach is not None
    chords = Chords(one.seeds, BALL, reach)
    for turn in range(3):
        chords.begin(rng.torch_stream("test", turn))
        assert chords.count == min(MOST_CHORDS, 2 * len(reach))
        chords.helps = torch.randn(chords.helps.shape, generator=torch.Generator().manual_seed(turn))
        amounts, x = chords.join()
        assert x.shape == (2, len(CHORD_SHARES) * len(CHORD_STEPS), 1, SAMPLES)
        change = (x - one.seeds[:, None]).flatten(2).norm(dim=2)
        assert (change <= BALL.length(one.seeds) * (1 + 1e-4)).all()
        assert torch.equal(SIXTEEN.nearest(x), x)
        chords.set_best(torch.arange(2), amounts[:, 2], x[:, 2])
    chords.keep(torch.tensor([False, True]))
    assert len(chords.seeds) == len(chords.helps) == 1


def test_chords_find_what_single_tones_do_not() -> None:
    """On sounds the moves were not chosen on."""
    options = {"norm": "snr", "radius": 30.0, "evaluations": 400, "out": False, "beside": []}
    seeds = "zoo:spoken-digits/test[1:120:10]"
    chords = neurotest.swarm("zoo:spoken-melnet", seeds, **options)  # type: ignore[arg-type]
    tones = neurotest.swarm("zoo:spoken-melnet", seeds, moves="tones", **options)  # type: ignore[arg-type]
    assert chords.failed >= tones.failed + 2
    assert chords.to_dict()["forwards"] > 0


def test_chords_need_a_map_and_sound() -> None:
    with refused("unsuitable", "moves"):
        neurotest.swarm("zoo:mnist-lenet1", "zoo:mnist/test[:2]", moves="chords", evaluations=100, out=False)
    with refused("conflict", "moves"):
        neurotest.swarm("zoo:spoken-melnet", "zoo:spoken-digits/test[:2]", "margin", moves="chords", norm="snr", radius=30.0,
                        evaluations=100, out=False)  # fmt: skip
