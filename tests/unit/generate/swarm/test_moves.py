"""The ball and how particles move in it."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.refusals import refused

from neurotest import rng
from neurotest.generate.swarm import Ball, Settings
from neurotest.generate.swarm.moves import Tiles, Velocity, grid
from neurotest.generate.swarm.settings import PRESETS
from neurotest.levels import EIGHT, SIXTEEN, Levels

pytestmark = pytest.mark.by_hand


def images(n: int, seed: int, shape: tuple[int, ...] = (1, 6, 6)) -> torch.Tensor:
    return torch.randint(0, 256, (n, *shape), generator=torch.Generator().manual_seed(seed)) / 255


@settings(max_examples=40, deadline=None)
@given(
    norm=st.sampled_from(["linf", "l2", "none"]),
    radius=st.floats(0.01, 1.0),
    seed=st.integers(0, 999),
    levels=st.sampled_from([None, EIGHT, SIXTEEN]),
)
def test_positions_stay_in_the_ball_the_bounds_and_on_levels(norm: str, radius: float, seed: int, levels: Levels | None) -> None:
    ball = Ball(norm, radius, levels)  # type: ignore[arg-type]
    base = images(5, seed) if levels is None else levels.nearest(images(5, seed))
    generator = torch.Generator().manual_seed(seed)
    signs = torch.randint(-1, 2, base.shape, generator=generator).float()
    for u in (
        ball.project(base + torch.randn(base.shape, generator=generator), base),
        ball.corner(signs, base),
        ball.noise(base, generator),
    ):
        away = (u - base).flatten(1)
        assert bool((u >= 0).all() and (u <= 1).all())
        if norm == "linf":
            assert float(away.abs().max()) <= radius + 1e-6
        if norm == "l2":
            assert float(away.norm(dim=1).max()) <= radius + 1e-5
        if levels:
            assert torch.allclose(u * levels.steps, (u * levels.steps).round(), atol=1e-2)
            assert float(u.max()) <= levels.top


def test_corners_by_hand() -> None:
    base = torch.tensor([[0.0, 0.4, 1.0]])
    signs = torch.tensor([[-1.0, 1.0, -1.0]])
    assert Ball("linf", 0.1, None).corner(signs, base)[0].tolist() == pytest.approx([0.0, 0.5, 0.9])
    # the first value cannot fall, so two values share the length 0.2: each moves by 0.2 / sqrt(2)
    assert Ball("l2", 0.2, None).corner(signs, base)[0].tolist() == pytest.approx([0.0, 0.4 + 0.1414, 1 - 0.1414], abs=1e-3)
    assert Ball("linf", 0.1, EIGHT).reach == 25 / 255  # 0.1 is 25.5 steps


def test_velocity_is_the_papers_formula_in_plain_loops() -> None:
    settings = Settings(
        moves="velocity", particles=2, iterations=5, evaluations=None, inertia=(0.4, 0.9), norm="linf", radius=0.3
    )
    base = images(1, 0, (3,))
    ball = Ball("linf", 0.3, None)
    moves = Velocity(base, ball, settings, 5)
    first = moves.propose(lambda: rng.torch_stream("t", 0, 0)).clone()
    moves.learn(torch.ones(1, 2, dtype=torch.bool))
    moves.set_best(torch.tensor([0]), torch.tensor([1]))
    speed, generator = moves.v.clone(), rng.torch_stream("t", 0, 1)
    second = moves.propose(lambda: rng.torch_stream("t", 0, 1))
    mine, ours = torch.rand((1, 2, 1), generator=generator), torch.rand((1, 2, 1), generator=generator)
    weight = (0.4 - 0.9) * (5 - 1) / 5 + 0.9
    for particle in range(2):
        for i in range(3):
            x = float(first[0, particle, i])
            v = weight * float(speed[0, particle, i]) + 2 * float(mine[0, particle, 0]) * (x - x)
            v += 2 * float(ours[0, particle, 0]) * (float(first[0, 1, i]) - x)
            v = max(-0.3, min(0.3, v))
            seed = float(base[0, i])
            expected = max(0.0, seed - 0.3, min(1.0, seed + 0.3, x + v))
            assert float(second[0, particle, i]) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32), (40,), (2, 50), (1, 1, 7)])
@pytest.mark.parametrize("share", [0.25, 1 / 14, 0.0])
def test_a_grid_gives_every_value_one_tile_and_channels_the_same(shape: tuple[int, ...], share: float) -> None:
    tiles = grid(shape, share, torch.Generator().manual_seed(0)).view(shape)
    assert tiles.unique().tolist() == list(range(int(tiles.max()) + 1))
    if len(shape) > 1:
        assert bool((tiles == tiles[:1]).all())
    if share == 0.0:
        assert int(tiles.max()) + 1 == tiles[0].numel() if len(shape) > 1 else tiles.numel()


def test_a_sweep_flips_every_tile_once() -> None:
    base = images(2, 1)
    moves = Tiles(base, Ball("linf", 0.1, EIGHT), particles=3)
    generator = torch.Generator().manual_seed(0)
    moves.start(generator)
    moves.begin(generator)
    seen = torch.zeros(base.shape)
    while not moves.over:
        moves.propose(lambda: generator)
        seen += moves.at.float().sum(1)
    assert bool((seen == 1).all())
    assert set(moves.signs.unique().tolist()) <= {-1.0, 1.0}


def test_joined_flips_take_what_helped() -> None:
    base = torch.full((1, 4), 0.5)
    moves = Tiles(base, Ball("linf", 0.1, None), particles=4, fixed=True)
    generator = torch.Generator().manual_seed(0)
    moves.start(generator)
    moves.signs = torch.tensor([[1.0, 1.0, -1.0, -1.0]])
    moves.sweep = 2
    moves.begin(generator)  # tiles of single values
    moves.propose(lambda: generator)
    places = moves.at[0].float().argmax(1)  # which value each particle flipped
    better = torch.tensor([[True, False, True, False]])
    expected = moves.signs[0].clone()
    for particle in (0, 2):
        expected[places[particle]] *= -1
    assert moves.join(torch.tensor([0]), better)[0].tolist() == expected.tolist()
    one = moves.signs[0].clone()
    one[places[1]] *= -1
    assert moves.flip(torch.tensor([0]), torch.tensor([1]))[0].tolist() == one.tolist()


@pytest.mark.parametrize(
    ("options", "refusal"),
    [
        ({"radius": 0}, ("out-of-range", "radius")),
        ({"radius": 1.5}, ("out-of-range", "radius")),
        ({"particles": 0}, ("out-of-range", "particles")),
        ({"norm": "l1"}, ("out-of-range", "norm")),
        ({"evaluations": None}, ("missing", "budget")),
        ({"inertia": (1, -1)}, ("out-of-range", "inertia")),
        ({"speed": -1.0}, ("out-of-range", "speed")),
        ({"labels": 0}, ("out-of-range", "labels")),
    ],
)
def test_bad_settings_are_refused(options: dict[str, object], refusal: tuple[str, str]) -> None:
    with refused(*refusal):
        Settings(**options)  # type: ignore[arg-type]


def test_l2_beyond_the_range_and_presets() -> None:
    with refused("out-of-range", "radius"):
        Settings(norm="l2", radius=3.0).check_shape((4,))
    for preset in PRESETS.values():
        Settings(**{key: value for key, value in preset.items() if key != "fitness"})


def test_decibels_by_hand() -> None:
    # 20 dB: a tenth of the length of the seed from silence, which is 0.4 for the first and 0.04 for the second
    seeds = torch.tensor([[0.5, 0.9], [0.5, 0.54]])
    ball = Ball("snr", 20.0, None)
    assert ball.length(seeds)[:, 0].tolist() == pytest.approx([0.04, 0.004], abs=1e-6)
    out = ball.project(torch.tensor([[0.9, 0.9], [0.5, 0.542]]), seeds)
    assert out[0].tolist() == pytest.approx([0.54, 0.9], abs=1e-6)
    assert out[1].tolist() == pytest.approx([0.5, 0.542], abs=1e-6)
    noise = ball.noise(seeds, torch.Generator().manual_seed(0))
    assert (noise - seeds).norm(dim=1).tolist() == pytest.approx([0.04, 0.004], rel=1e-3)
