"""Lattices: footprints are measured, effects read from maps are those of single flips, positions stay in the ball."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.refusals import refused
from torch import nn

from neurotest import registry, rng
from neurotest.generate.swarm import Ball, Problem, Settings, Swarm
from neurotest.generate.swarm.excitability import _ByWeights
from neurotest.generate.swarm.lattice import SHARES, STEPS, Footprint, Lattice, Slope
from neurotest.levels import EIGHT
from neurotest.target import Target

pytestmark = pytest.mark.by_hand

BALL = Ball("linf", 0.1, EIGHT)


def target(kernel: int = 3, stride: int = 1, padding: int = 0, channels: int = 1) -> Target:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        first = nn.Conv2d(channels, 3, kernel, stride, padding)
        side = (12 + 2 * padding - kernel) // stride + 1
        module = nn.Sequential(first, nn.ReLU(), nn.Flatten(), nn.Linear(3 * side**2, 6), nn.ReLU(), nn.Linear(6, 3))
        with torch.no_grad():
            for weight in module.parameters():
                weight.mul_(2)
    return Target(module.eval(), shape=(channels, 12, 12))


def measure(on: Target, n: int = 4, fitness: str = "excitability") -> _ByWeights:
    x = (torch.rand((n, *on.shape), generator=rng.torch_stream("t", 1)) * 255).round() / 255  # type: ignore[misc]
    with torch.inference_mode():
        y = on.logits(x).argmax(1)
    measure = registry.build("fitness", fitness).begin(Problem(on, x, y, BALL))
    assert isinstance(measure, _ByWeights)
    return measure


@pytest.mark.parametrize(
    ("kernel", "stride", "padding", "spacing"), [(1, 1, 0, 1), (3, 1, 0, 3), (3, 1, 1, 3), (5, 1, 2, 5), (4, 2, 0, 4)]
)
def test_the_footprint_of_a_convolution_is_its_kernel(kernel: int, stride: int, padding: int, spacing: int) -> None:
    on = measure(target(kernel, stride, padding))
    with on:
        footprint = Footprint.of(on)
        few = Footprint.of(on, 5)  # as of photographs: two lines at once
    assert footprint is not None
    assert few is not None
    assert torch.equal(few.rows, footprint.rows)
    assert torch.equal(few.columns, footprint.columns)
    assert footprint.spacing == spacing
    if (kernel, padding) == (3, 0):  # by hand: row 0 reaches the first row only, row 5 three, the last row the last
        assert footprint.rows[[0, 5, 11]].tolist() == [[0, 0], [3, 5], [9, 9]]


def test_without_a_map_there_is_none() -> None:
    dense = Target(nn.Sequential(nn.Flatten(), nn.Linear(144, 4), nn.ReLU(), nn.Linear(4, 3)).eval(), shape=(1, 12, 12))
    on = measure(dense)
    with on:
        assert Footprint.of(on) is None
    with refused("conflict", "moves"):
        Swarm(on, Settings(moves="lattice")).run()
    assert len(Swarm(measure(dense), Settings(evaluations=40)).run().best) == 4  # auto: tiles


@settings(max_examples=8, deadline=None)
@given(kernel=st.sampled_from([1, 3, 5]), channels=st.integers(1, 3), padding=st.integers(0, 2), seed=st.integers(0, 99))
def test_what_a_survey_learns_is_what_single_flips_do(kernel: int, channels: int, padding: int, seed: int) -> None:
    on = measure(target(kernel, 1, min(padding, kernel // 2), channels), n=2)
    with on, torch.no_grad():
        footprint = Footprint.of(on)
        assert footprint is not None
        moves = Lattice(on.problem.seeds, BALL, footprint)
        rows = torch.arange(2)
        on.reweigh(moves.start(rng.torch_stream("t", seed)), rows)
        for number in range(moves.count):
            x = moves.survey([number])
            maps, _ = on.fitness_map(x[:, 0], rows)
            moves.learn([number], maps[:, None])
        turned = BALL.corner(-moves.signs, moves.seeds)
        for place in [(0, 0, 0), (channels - 1, 5, 7), (0, 11, 11), (0, 3, 0)]:
            alone = moves.best.clone()
            at = (slice(None), *place)
            alone[at] = turned[at]
            maps, _ = on.fitness_map(alone, rows)
            assert torch.allclose(moves.helps[at].double(), maps.double().flatten(1).sum(1), atol=1e-4)


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 99), fixed=st.booleans())
def test_joined_positions_lie_in_the_ball_and_flip_the_best(seed: int, fixed: bool) -> None:
    on = measure(target(), n=3)
    with on:
        footprint = Footprint.of(on)
    assert footprint is not None
    moves = Lattice(on.problem.seeds, BALL, footprint, fixed)
    moves.start(rng.torch_stream("t", seed))
    moves.helps = torch.randn(moves.helps.shape, generator=rng.torch_stream("t", seed, 1))
    signs, x = moves.join()
    assert x.shape == (3, len(SHARES), 1, 12, 12)
    assert float((x - moves.seeds[:, None]).abs().max()) <= 0.1
    assert torch.equal((x * 255).round() / 255, x)
    flipped = (signs != moves.signs[:, None]).flatten(2).sum(2)
    gain = moves.helps.abs() if fixed else moves.helps
    assert flipped[:, 0].tolist() == (gain > 0).flatten(1).sum(1).tolist()
    assert (flipped[:, :-1] >= flipped[:, 1:]).all()


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 99), radius=st.sampled_from([0.3, 1.0, 4.0]))
def test_steps_along_the_slope_stay_in_an_l2_ball_and_on_the_grid(seed: int, radius: float) -> None:
    on = measure(target(), n=3)
    with on:
        footprint = Footprint.of(on)
    assert footprint is not None
    moves = Slope(on.problem.seeds, Ball("l2", radius, EIGHT), footprint)
    moves.helps = torch.randn(moves.helps.shape, generator=rng.torch_stream("t", seed))
    _, x = moves.join()
    assert x.shape == (3, len(STEPS), 1, 12, 12)
    assert float((x - moves.seeds[:, None]).flatten(2).norm(dim=2).max()) <= radius + 1e-5
    assert torch.allclose((x * 255).round() / 255, x, atol=1e-6)
    assert 0 <= float(x.min()) <= float(x.max()) <= 1
    away = (x[:, 1] - moves.seeds).flatten(1)  # by hand: a step goes where the slope goes, value by value
    slope = (moves.helps / torch.where(moves.seeds > 0.5, -0.05, 0.05)).flatten(1)
    assert (away * slope >= 0).all()


def test_in_an_l2_ball_every_hit_lies_inside() -> None:
    x = (torch.rand((8, 1, 12, 12), generator=rng.torch_stream("t", 1)) * 255).round() / 255
    on = target()
    with torch.inference_mode():
        y = on.logits(x).argmax(1)
    measure_ = registry.build("fitness", "excitability").begin(Problem(on, x, y, Ball("l2", 0.6, EIGHT)))
    trajectory = Swarm(measure_, Settings(norm="l2", radius=0.6, evaluations=200)).run()
    assert trajectory.hits
    for hit in trajectory.hits:
        assert float((hit.x - x[hit.row]).norm()) <= 0.6 + 1e-5
        with torch.inference_mode():
            assert int(on.logits(hit.x[None]).argmax(1)) == hit.predicted != int(y[hit.row])


def test_it_climbs_within_its_budget_and_stops_where_nothing_helps() -> None:
    for start in ("random", "fixed"):
        trajectory = Swarm(measure(target(), n=6), Settings(evaluations=200, start=start)).run()  # type: ignore[arg-type]
        assert int(trajectory.spent.max()) <= 200
        values = [moment.fitness for moment in trajectory.history]
        assert values == sorted(values)
        again = Swarm(measure(target(), n=6), Settings(evaluations=200, start=start, batch=7)).run()  # type: ignore[arg-type]
        assert [hit.predicted for hit in again.hits if hit.row == 0] == [hit.predicted for hit in trajectory.hits if hit.row == 0]
    few = Swarm(measure(target(), n=6), Settings(evaluations=12)).run()  # less than a turn: tiles
    assert int(few.spent.max()) <= 12
