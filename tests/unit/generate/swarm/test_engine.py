"""Whole swarms on small networks: what they find, what they spend, and that they repeat."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from neurotest import registry
from neurotest.generate.swarm import Ball, Problem, Settings, Swarm, Trajectory, controls
from neurotest.levels import EIGHT
from neurotest.target import Target


def net(shape: tuple[int, ...] = (1, 8, 8), seed: int = 0) -> Target:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        size = int(torch.tensor(shape).prod())
        module = nn.Sequential(nn.Flatten(), nn.Linear(size, 12), nn.ReLU(), nn.Linear(12, 6), nn.ReLU(), nn.Linear(6, 4))
        with torch.no_grad():
            for weight in module.parameters():
                weight.mul_(4 if weight.ndim > 1 else 0)  # answers that depend on the input
    return Target(module.eval(), shape=shape)


def problem(target: Target, n: int, ball: Ball) -> Problem:
    assert target.shape is not None
    x = torch.randint(0, 256, (n, *target.shape), generator=torch.Generator().manual_seed(5)) / 255
    with torch.inference_mode():
        y = target.logits(x).argmax(1)
    return Problem(target, x, y.clone(), ball)


def flown(fitness: str, shape: tuple[int, ...] = (1, 8, 8), n: int = 12, **options: object) -> tuple[Trajectory, Problem]:
    settings = Settings(**options)  # type: ignore[arg-type]
    on = problem(net(shape), n, Ball(settings.norm, settings.radius, EIGHT))
    return Swarm(registry.build("fitness", fitness).begin(on), settings).run(), on


@pytest.mark.parametrize("fitness", ["excitability", "sensitivity", "margin", "excitability:preset=gradient"])
@pytest.mark.parametrize("moves", ["tiles", "velocity"])
def test_hits_fail_lie_in_the_ball_and_the_budget_is_kept(fitness: str, moves: str) -> None:
    trajectory, on = flown(fitness, moves=moves, evaluations=120, radius=0.2)
    assert int(trajectory.spent.max()) <= 120 + 4
    for hit in trajectory.hits:
        assert float((hit.x - on.seeds[hit.row]).abs().max()) <= 0.2 + 1e-6
        with torch.inference_mode():
            assert int(on.target.logits(hit.x[None]).argmax(1)) == hit.predicted != int(on.y[hit.row])
    assert trajectory.history[-1].failed == len(trajectory.failed)


def test_led_by_neurons_it_finds_what_noise_does_not() -> None:
    trajectory, on = flown("excitability", n=30, evaluations=200, radius=0.03)
    noise = controls.noise(on, 200, random=0)
    assert len(trajectory.failed) > noise.failed + 5


def test_equal_seeds_give_equal_flights_and_others_do_not() -> None:
    one, two, other = (flown("excitability", evaluations=60, seed=seed)[0] for seed in (1, 1, 2))
    assert torch.equal(one.best, two.best)
    assert not torch.equal(one.best, other.best)


@pytest.mark.parametrize("shape", [(40,), (2, 30), (3, 6, 6)])
@pytest.mark.parametrize("norm", ["linf", "l2", "none"])
def test_vectors_series_and_colour_images_fly(shape: tuple[int, ...], norm: str) -> None:
    trajectory, on = flown("excitability", shape, evaluations=60, norm=norm, radius=0.5)
    assert trajectory.best.shape == on.seeds.shape
    assert bool((trajectory.best >= 0).all() and (trajectory.best <= 1).all())


def test_more_labels_cost_more_and_find_more() -> None:
    one, _ = flown("excitability", evaluations=400, radius=0.3, labels=1)
    three, _ = flown("excitability", evaluations=400, radius=0.3, labels=3)
    assert len(three.hits) > len(one.hits)
    assert all(len({h.predicted for h in three.hits if h.row == r}) == sum(h.row == r for h in three.hits) for r in three.failed)


def test_enough_ends_a_seed_and_iterations_end_all() -> None:
    trajectory, _ = flown(
        "sensitivity:lam=0.0", moves="velocity", particles=3, evaluations=None, iterations=6, enough=0.0, labels=None
    )
    assert bool((trajectory.spent == 3).all())  # every change moves some neuron: enough after the first round
    trajectory, _ = flown("sensitivity", moves="velocity", particles=3, evaluations=None, iterations=6, labels=None)
    assert bool((trajectory.spent == 18).all())
    assert len(trajectory.history) == 6


@settings(max_examples=8, deadline=None)
@given(particles=st.integers(1, 6), evaluations=st.integers(10, 60), moves=st.sampled_from(["tiles", "velocity"]))
def test_the_best_fitness_never_falls(particles: int, evaluations: int, moves: str) -> None:
    trajectory, _ = flown(
        "margin", n=4, particles=particles, evaluations=max(evaluations, 2 * particles), moves=moves, labels=None
    )
    values = [moment.fitness for moment in trajectory.history]
    assert values == sorted(values)


def test_pgd_control_stays_in_both_balls() -> None:
    for norm in ("linf", "l2"):
        on = problem(net(), 10, Ball(norm, 0.3, EIGHT))  # type: ignore[arg-type]
        control = controls.pgd(on, random=0)
        assert 0 < control.failed <= 10
