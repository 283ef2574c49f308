"""Shapley values of neurons: by hand, against enumeration in plain loops, and what must always hold."""

from __future__ import annotations

from itertools import permutations as orders_of
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import spearmanr
from tests.refusals import refused
from torch import nn

from neurotest.attribute.shapley import Game, certify, exact, hidden_layers, kernel, mask_gradient, permutation
from neurotest.attribute.shapley.estimate import choose
from neurotest.attribute.shapley.game import from_table
from neurotest.target import Target

pytestmark = pytest.mark.by_hand


def tiny(hidden: int, seed: int, *, deep: bool = False) -> Target:
    """A net with at most `hidden` neurons and weights large enough that they matter."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        first = hidden // 2 if deep else hidden
        between: list[nn.Module] = [nn.Linear(first, hidden - first), nn.ReLU()] if deep else []
        module = nn.Sequential(nn.Linear(6, first), nn.ReLU(), *between, nn.Linear(hidden - first if deep else first, 4))
        with torch.no_grad():
            for weight in module.parameters():
                weight.mul_(2.5)
    return Target(module.eval(), shape=(6,))


def game(target: Target, seed: int, pairs: int = 1, **options: object) -> Game:
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand((pairs, 6), generator=generator)
    moved = (x + 0.4 * torch.randn((pairs, 6), generator=generator)).clamp(0, 1)
    with torch.inference_mode():
        y = target.logits(x).argmax(1)
    return Game(target, x, moved, y.clone(), **options)  # type: ignore[arg-type]


def playing(count: int, deep: bool) -> list[Game]:
    """Games in which at least three neurons take part."""
    games = (game(tiny(12, seed, deep=deep), seed) for seed in range(10 * count))
    return [one for one, _ in zip((g for g in games if int(g.active.sum()) >= 3), range(count), strict=False)]


def test_two_players_by_hand() -> None:
    # worth of {}, {0}, {1}, {0, 1}: player 0 adds 1 alone and 4 - 2 after the other, on average 1.5; the rest is player 1's
    assert from_table(torch.tensor([0.0, 1.0, 2.0, 4.0], dtype=torch.float64), 2).tolist() == [1.5, 2.5]


def test_exact_is_the_mean_over_all_orders_in_plain_loops() -> None:
    played = game(tiny(5, 3), 3, active_only=False)
    worth: dict[frozenset[int], float] = {}
    for number in range(32):
        members = frozenset(i for i in range(5) if number >> i & 1)
        mask = torch.tensor([[i in members for i in range(5)]])
        worth[members] = float(played.value(torch.tensor([0]), mask)[0])
    credit = np.zeros(5)
    every = list(orders_of(range(5)))
    for order in every:
        there: frozenset[int] = frozenset()
        for player in order:
            credit[player] += worth[there | {player}] - worth[there]
            there = there | {player}
    assert np.allclose(exact(played).numpy(), credit / len(every), atol=1e-9)


def test_a_linear_readout_owes_what_each_neuron_changed() -> None:
    # one hidden layer and two classes whose logits are far apart: the loss is nearly linear, so values are weight times change
    module = nn.Sequential(nn.Linear(2, 2, bias=False), nn.ReLU(), nn.Linear(2, 2, bias=False))
    with torch.no_grad():
        module[0].weight.copy_(torch.eye(2))
        module[2].weight.copy_(torch.tensor([[-20.0, -10.0], [20.0, 10.0]]))
    target = Target(module.eval(), shape=(2,))
    played = Game(target, torch.tensor([[1.0, 1.0]]), torch.tensor([[1.5, 1.25]]), torch.tensor([0]))
    assert exact(played).tolist() == pytest.approx([20.0, 5.0], abs=0.02)


@pytest.mark.parametrize("deep", [False, True])
def test_kernel_at_200_coalitions_is_close_to_exact(deep: bool) -> None:
    errors, ranks, worst = [], [], 0.0
    for seed, played in enumerate(playing(10, deep)):
        active, truth = played.active[0], exact(played)
        estimate = kernel(played, coalitions=200, seed=seed)
        errors.append(float((estimate.values - truth)[active].norm() / truth[active].norm()))
        ranks.append(float(spearmanr(estimate.values[active], truth[active])[0]))
        worst = max(worst, abs(float(estimate.values.sum() - (played.full - played.empty)[0])))
        assert bool((estimate.values[~active] == 0).all())
        assert estimate.coalitions <= 200
    assert np.mean(errors) <= 0.2
    assert np.mean(ranks) >= 0.95
    assert worst < 1e-4


def test_intervals_cover_the_truth_about_as_often_as_they_say() -> None:
    covered: dict[str, list[bool]] = {"kernel": [], "permutation": [], "certify": []}
    for seed, played in enumerate(playing(12, True)):
        active, truth = played.active[0], exact(played)
        several: dict[str, Any] = {
            "kernel": kernel(played, coalitions=60, seed=seed),
            "permutation": permutation(played, orders=30, truncate=0.0, seed=seed),
            "certify": certify(played, k=3, rounds=30, seed=seed),
        }
        for name, one in several.items():
            covered[name] += ((one.low <= truth + 1e-6) & (truth <= one.high + 1e-6))[active].tolist()
    for name, hits in covered.items():
        assert len(hits) > 40
        assert np.mean(hits) >= 0.85, name  # 95 % stated; 0.85 is three standard errors below it for 60 intervals


def test_permutation_sums_to_the_change_with_and_without_truncation() -> None:
    played = game(tiny(12, 2), 2)
    for truncate in (0.0, 0.05):
        estimate = permutation(played, orders=10, truncate=truncate)
        assert float(estimate.values.sum()) == pytest.approx(float((played.full - played.empty)[0]), abs=1e-4)
    assert permutation(played, orders=3, truncate=0.9).coalitions <= permutation(played, orders=3, truncate=0.0).coalitions


def test_certify_finds_the_same_top_and_drops_the_others() -> None:
    played = game(tiny(12, 5), 5, pairs=6)
    truth = torch.stack([exact(played, row) for row in range(6)]).mean(0)
    kept, raced = certify(played, k=2, rounds=60, drop=False), certify(played, k=2, rounds=60)
    best = set(truth.argsort(descending=True)[:2].tolist())
    assert set(kept.top.tolist()) == best
    assert set(raced.top.tolist()) == best
    assert raced.coalitions < kept.coalitions
    assert torch.allclose(kept.values, truth, atol=0.25 * float(truth.abs().max()))


def test_mask_gradient_ranks_one_layer_well_and_is_efficient_on_request() -> None:
    ranks = []
    for played in playing(8, False):
        values = mask_gradient(played.target, played.x, played.moved, played.y)[0]
        assert float(values.sum()) == pytest.approx(float(played.full[0]), abs=1e-4)
        ranks.append(spearmanr(values[played.active[0]], exact(played)[played.active[0]])[0])
    assert np.mean(ranks) > 0.8


def test_units_and_channels_of_a_convolution() -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(12, 2)).eval()
    target = Target(module, shape=(1, 4, 4))
    x, moved, y = torch.rand(1, 1, 4, 4), torch.rand(1, 1, 4, 4), torch.tensor([0])
    channels, units = (Game(target, x, moved, y, neuron=kind, active_only=False) for kind in ("channel", "unit"))  # type: ignore[arg-type]
    assert (len(channels.players), len(units.players)) == (3, 12)
    assert float(exact(channels).sum()) == pytest.approx(float(exact(units).sum()), abs=1e-5)
    assert channels.players.name(2) == ("1", 2)


@settings(max_examples=25, deadline=None)
@given(n=st.integers(2, 9), most=st.integers(4, 120), seed=st.integers(0, 99))
def test_coalitions_come_with_their_complements_and_within_the_number(n: int, most: int, seed: int) -> None:
    plan = choose(n, max(most, 2 * n), np.random.default_rng(seed))
    assert len(plan.masks) <= max(most, 2 * n)
    assert np.array_equal(plan.masks[::2], ~plan.masks[1::2])
    assert len(np.unique(plan.masks, axis=0)) == len(plan.masks)
    total = sum((n - 1) / (s * (n - s)) for s in range(1, n))
    assert plan.weights.sum() == pytest.approx(total)


def test_bad_input_is_said() -> None:
    played = game(tiny(12, 1), 1, active_only=False)
    with refused("out-of-range", "coalitions"):
        kernel(played, coalitions=5)
    with refused("out-of-range", "orders"):
        permutation(played, orders=0)
    with refused("unsuitable", "layers"):
        hidden_layers(played.target, "2")
    with refused("unknown-name", "layers"):
        hidden_layers(played.target, "nothere")
    big = Target(nn.Sequential(nn.Linear(6, 40), nn.Tanh(), nn.Linear(40, 2)).eval(), shape=(6,))
    with refused("too-large", "neurons"):
        exact(game(big, 0))
