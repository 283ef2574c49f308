"""Neurons, constraints, strategies and ADAPT's features, by hand and against plain loops."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from neurotest.generate.differential.adapt import _changing_features, _constant_features, _cover_most, _Evolving
from neurotest.generate.differential.deepxplore import _constrain, _rectangles
from neurotest.generate.differential.dlfuzz import _coverage_gains, _Mixed, _runners_up, _weighted
from neurotest.generate.differential.ensemble import Neurons, pick
from neurotest.target import Probe, Target

pytestmark = pytest.mark.by_hand


def target() -> Target:
    torch.manual_seed(1)
    module = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(2 * 16, 3))
    return Target(module.eval(), shape=(1, 6, 6))


def test_neurons_are_scaled_over_all_units_of_a_layer_and_input() -> None:
    network = target()
    neurons = Neurons(network, "pre_activation")
    assert len(neurons) == 5
    x = torch.rand(3, 1, 6, 6, generator=torch.Generator().manual_seed(0))
    with Probe(network, neurons.want, grad=True) as probe:
        recorded = probe(x)[neurons.want]
    values = neurons.read(recorded)
    maps = network.module[0](x).detach()  # type: ignore[index]
    for i in range(3):
        low, high = maps[i].min(), maps[i].max()
        for channel in range(2):
            scaled = ((maps[i, channel] - low) / (high - low)).mean()
            assert float(values.scaled[i, channel]) == pytest.approx(float(scaled), abs=1e-6)
            assert float(values.means[i, channel].detach()) == pytest.approx(float(maps[i, channel].mean()), abs=1e-6)
    assert values.means.requires_grad
    assert not values.scaled.requires_grad
    assert values.covered(0.5).shape == (3, 5)
    assert neurons.kinds == ["convolution"] * 2 + ["dense"] * 3
    assert neurons.weights[:2] == pytest.approx(network.module[0].weight.flatten(1).mean(1).detach().numpy())  # type: ignore[index]


def test_a_constant_layer_covers_nothing() -> None:
    module = nn.Sequential(nn.Flatten(), nn.Linear(4, 3))
    with torch.no_grad():
        module[1].weight.zero_()
        module[1].bias.fill_(1.0)
    network = Target(module.eval(), shape=(1, 2, 2))
    neurons = Neurons(network, "pre_activation")
    with Probe(network, neurons.want, grad=True) as probe:
        values = neurons.read(probe(torch.rand(2, 1, 2, 2))[neurons.want])
    assert not values.covered(0.0).any()


def test_picking_sums_each_rows_own_neurons() -> None:
    values = torch.tensor([[1.0, 2.0, 4.0], [8.0, 16.0, 32.0]])
    assert pick(values, np.array([[0, 2], [1, 1]])).tolist() == [5.0, 32.0]


def test_constraints_by_hand() -> None:
    gradient = torch.tensor([[[[1.0, -3.0], [2.0, 4.0]]], [[[-1.0, -1.0], [-1.0, 7.0]]]])
    light = _constrain(gradient, "light", None)
    assert light[:, 0, 0, 0].tolist() == [1.0, 1.0]
    assert bool((light == light[:, :, :1, :1]).all())
    inside = torch.zeros(2, 1, 2, 2)
    inside[:, :, 0] = 1
    assert _constrain(gradient, "occlusion", inside)[0, 0].tolist() == [[1.0, -3.0], [0.0, 0.0]]
    dark = _constrain(gradient, "blackout", inside)
    assert dark[0, 0].tolist() == [[-1.0, -1.0], [0.0, 0.0]]
    assert _constrain(-gradient, "blackout", inside)[0].abs().sum() == 0  # it would become lighter there: nothing happens
    assert torch.equal(_constrain(gradient, "free", None), gradient)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 12), st.floats(0, 0.999), st.floats(0, 0.999))
def test_rectangles_lie_inside_and_have_their_size(height: int, width: int, side: int, top: float, left: float) -> None:
    mask = _rectangles((3, height, width), side, np.array([[top, left]]), torch.zeros(1))
    assert mask.shape == (1, 1, height, width)
    rows, columns = mask[0, 0].amax(1).nonzero()[:, 0], mask[0, 0].amax(0).nonzero()[:, 0]
    assert float(mask.sum()) == min(side, height) * min(side, width)
    assert int(rows[-1] - rows[0]) + 1 == min(side, height)
    assert int(columns[-1] - columns[0]) + 1 == min(side, width)


def test_weighted_draws_follow_their_weights_without_repeating() -> None:
    uniforms = np.random.default_rng(0).random((4000, 4))
    drawn = _weighted(np.array([[8.0, 1.0, 1.0, 0.0]]), uniforms, 1)[:, 0]
    assert np.bincount(drawn, minlength=4) / 4000 == pytest.approx([0.8, 0.1, 0.1, 0.0], abs=0.03)
    three = _weighted(np.array([[8.0, 1.0, 1.0, 0.0]]), uniforms, 3)
    assert set(map(frozenset, three.tolist())) == {frozenset({0, 1, 2})}
    assert all(len(set(row)) == 4 for row in _weighted(np.array([[1.0, 0, 0, 0]]), uniforms[:9], 4).tolist())


def test_dlfuzz_strategies() -> None:
    neurons = Neurons(target(), "pre_activation")
    counts, uniforms = np.array([0, 9, 0, 0, 0]), np.random.default_rng(1).random((6, 5))
    scaled = np.tile([0.1, 0.9, 0.3, 0.24, np.nan], (6, 1))

    def chosen(name: str, m: int = 1) -> np.ndarray:
        return _Mixed(tuple(name.split("+")), neurons, 0.25).choose(counts, scaled, uniforms, m)

    assert (chosen("often") == 1).all()
    assert not (chosen("rarely", 4) == 1).any()
    assert chosen("threshold", 2).tolist() == [[3, 2]] * 6
    assert (chosen("weight") == neurons.weights.argmax()).all()  # a tenth of five neurons is one
    both = chosen("often+threshold", 3)
    assert both.shape == (6, 3)
    assert (both[:, 2] == 3).all()


def test_runners_up_are_the_next_classes() -> None:
    logits = torch.tensor([[5.0, 1.0, 3.0, 2.0]])
    assert _runners_up(logits, torch.tensor([0]), 2).tolist() == [[2, 3]]
    assert _runners_up(logits, torch.tensor([2]), 9).tolist() == [[0, 3, 1]]


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.lists(st.booleans(), min_size=4, max_size=4), min_size=1, max_size=6),
    st.lists(st.booleans(), min_size=4, max_size=4),
)
def test_coverage_gains_as_one_after_the_other(rows: list[list[bool]], start: list[bool]) -> None:
    covered, expected = np.array(start), []
    for row in rows:
        before = covered.sum()
        covered = covered | np.array(row)
        expected.append((covered.sum() - before) / 4)
    assert _coverage_gains(np.array(rows), np.array(start)).tolist() == pytest.approx(expected)


def test_adapt_features_by_hand() -> None:
    neurons = Neurons(target(), "pre_activation")
    fixed = _constant_features(neurons)
    assert fixed.shape == (5, 17)
    assert (fixed.sum(1) == 3).all()  # one quarter, one band of weights, one kind
    assert fixed[:2, 12].tolist() == [1, 1]
    assert fixed[2:, 13].tolist() == [1, 1, 1]
    assert fixed[:2, 0].tolist() == [1, 1]
    assert fixed[2:, 2].tolist() == [1, 1, 1]
    features = _changing_features(np.array([0, 5, 1, 3, 0]), np.array([False, True, False, False, False]))
    assert features.shape == (5, 12)
    assert features[:, 0].tolist() == [0, 1, 0, 0, 0]
    assert features[:, 1].tolist() == [1, 0, 0, 0, 1]
    assert features[1, 2] == 1  # the most often covered
    assert features[3, 2 + 3] == 1  # a third from the top
    assert features[2, 2 + 6] == 1


def test_covering_most_is_greedy() -> None:
    covered = np.array([[1, 1, 0, 0], [1, 1, 1, 0], [0, 0, 0, 1], [0, 1, 1, 0]], dtype=bool)
    assert _cover_most(covered, 2).tolist() == [1, 2]
    assert _cover_most(covered, 9).tolist()[:2] == [1, 2]
    assert len(_cover_most(covered, 9)) == 4


def test_strategies_evolve_and_can_be_saved() -> None:
    neurons = Neurons(target(), "pre_activation")
    one, other = _Evolving(neurons, 4, random=3), _Evolving(neurons, 4, random=3)
    uniforms, scaled, counts = np.random.default_rng(0).random((6, 5)), np.zeros((6, 5)), np.array([1, 0, 2, 0, 0])
    first = one.strategies.copy()
    for _ in range(2):
        one.choose(counts, scaled, uniforms, 2)
        one.learn(np.eye(6, 5, dtype=bool), np.zeros(6, dtype=bool))
    assert one.generation == 1
    assert not np.array_equal(one.strategies, first)
    assert np.abs(one.strategies).max() <= 1
    other.restore(one.arrays())
    assert np.array_equal(other.choose(counts, scaled, uniforms, 2), one.choose(counts, scaled, uniforms, 2))
