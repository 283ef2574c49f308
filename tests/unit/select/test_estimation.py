"""CES, PACE and the estimate of the accuracy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.refusals import refused
from torch import nn

from neurotest import registry
from neurotest.data.source import ArraySource
from neurotest.select import compare, select
from neurotest.select.estimation import CES, _grow, _published_sections, _sections, _Table
from neurotest.select.pace import _clusters, _farthest, _prototypes, _reduced, _shares
from neurotest.select.selection import Estimate
from neurotest.stats.bootstrap import wilson
from neurotest.target import Target

pytestmark = pytest.mark.by_hand

METHODS = sorted(registry.entries("estimator"))


def target() -> Target:
    torch.manual_seed(0)
    return Target(nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)).eval(), shape=(6,))


def pool(n: int = 120) -> ArraySource:
    random = np.random.default_rng(1)
    return ArraySource(random.random((n, 6), dtype=np.float32), random.integers(0, 3, n))


# -- the family


def test_they_are_no_selectors() -> None:
    assert METHODS == ["ces", "pace"]
    assert not set(METHODS) & set(registry.entries("selector"))


@pytest.mark.parametrize("method", METHODS)
def test_an_estimate_and_its_picks(method: str) -> None:
    source = pool()
    selection = select(target(), source, method, 40)
    content = selection.to_dict()
    picks = selection.indices
    assert len(set(picks.tolist())) == 40
    assert sorted(selection.order) == list(range(120))
    assert (np.diff(selection.all_scores[selection.order]) <= 0).all()
    assert content["accuracy_interval"][0] <= content["accuracy"] <= content["accuracy_interval"][1]
    assert content["accuracy_true"] == pytest.approx((source.labels == selection.predictions).mean())
    assert content["accuracy_labels"] == 40
    assert "fdr" not in content
    if method == "ces":
        assert content["accuracy"] == pytest.approx((source.labels == selection.predictions)[picks].mean())


@pytest.mark.parametrize("method", METHODS)
def test_without_labels_there_are_picks_and_no_estimate(method: str) -> None:
    source = pool()
    blind = select(target(), source.without_labels(), method, 30)
    assert blind.estimate is None
    assert np.array_equal(blind.order, select(target(), source, method, 30).order)
    labels = {int(i): int(source.labels[i]) for i in blind.indices[:20]}
    later = select(target(), source.without_labels(), method, 30, labels=labels)
    assert later.to_dict()["accuracy_labels"] == 20
    assert "accuracy_true" not in later.to_dict()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("batch", [1, 50])
def test_seeds_and_batches(method: str, batch: int) -> None:
    first, again = (select(target(), pool(), method, 20, seed=3, batch=b) for b in (batch, 1000))
    assert len(set(first.indices.tolist()) & set(again.indices.tolist())) >= 18  # rounding of another batch size may tip a value


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("budget", [1, 29, 120])
def test_any_budget(method: str, budget: int) -> None:
    selection = select(target(), pool(), method, budget)
    assert len(set(selection.indices.tolist())) == budget
    if budget == 120:
        assert selection.to_dict()["accuracy"] == pytest.approx(selection.to_dict()["accuracy_true"])


def test_beside_selectors(tmp_path: object) -> None:
    selections = compare(target(), pool(), ["deepgini", "ces"], 20, spread=False)
    assert selections["deepgini"].quality is not None
    assert selections["ces"].quality is None


@pytest.mark.parametrize(
    ("method", "refusal"),
    [
        ("ces:edges=open", ("wrong-type", "edges")),
        ("ces:sections=1", ("out-of-range", "sections")),
        ("pace:least=1", ("out-of-range", "least")),
    ],
)
def test_bad_settings(method: str, refusal: tuple[str, str]) -> None:
    with refused(*refusal):
        select(target(), pool(), method, 20)


# -- the estimate


def test_equal_weights_are_a_plain_share() -> None:
    estimate = Estimate.of(np.array([True, True, False, True]), np.ones(4))
    assert estimate.accuracy == pytest.approx(wilson(3, 4))


def test_unequal_weights_tell_less() -> None:
    right = np.array([True] * 30 + [False] * 10)
    even, uneven = (Estimate.of(right, w).accuracy for w in (np.ones(40), np.repeat([1.0, 8.0], [20, 20])))
    assert uneven.value == pytest.approx((20 + 8 * 10) / (20 + 8 * 20))
    assert uneven.high - uneven.low > even.high - even.low


# -- CES


VALUES = np.array([[0.0, 1.0], [0.0, 1.0], [0.5, 1.0], [1.0, 1.0]], dtype=np.float32)


def test_sections_by_hand() -> None:
    assert _sections(VALUES, 4).tolist() == [[0, 0], [0, 0], [2, 0], [3, 0]]
    assert _published_sections(VALUES, 4).tolist() == [[-1, -1], [-1, -1], [1, -1], [-1, -1]]


def test_closeness_by_hand() -> None:
    table = _Table(_sections(VALUES[:, :1], 2), 2)  # parts 0 0 1 1
    assert table.whole.tolist() == [[0.5, 0.5]]
    half = table.closeness(table.tally(np.array([0, 2])), 2)
    assert half == pytest.approx(np.log(0.5))
    assert table.closeness(table.tally(np.array([0, 1])), 2) < half


def test_the_sample_grows_towards_the_pool() -> None:
    values = np.random.default_rng(0).normal(size=(400, 12)) ** 2
    table = CES().table(values)
    picks = _grow(table, 100, np.random.default_rng(1))
    chance = [np.random.default_rng(seed).permutation(400)[:100] for seed in range(20)]
    ours = table.closeness(table.tally(picks), 100)
    assert ours > np.mean([table.closeness(table.tally(index), 100) for index in chance])


# -- PACE


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(1, 50), min_size=1, max_size=8), st.integers(1, 60))
def test_shares_are_in_proportion(sizes: list[int], budget: int) -> None:
    budget = min(budget, sum(sizes))
    parts = _shares(np.array(sizes), budget)
    assert parts.sum() == budget
    exact = np.array(sizes) * budget / sum(sizes)
    assert (parts <= np.array(sizes)).all()
    assert (np.abs(parts - exact) < 1 + 1e-9).all()


def test_prototypes_against_plain_loops() -> None:
    points = np.random.default_rng(0).normal(size=(15, 3))
    kernel = np.array([[np.exp(-np.square(a - b).sum() / 3) for b in points] for a in points])
    chosen: list[int] = []
    for _ in range(5):
        worth = {}
        for j in set(range(15)) - set(chosen):
            s = [*chosen, j]
            worth[j] = 2 * kernel[:, s].mean(axis=0).sum() / len(s) - kernel[np.ix_(s, s)].sum() / len(s) ** 2
        chosen.append(max(worth, key=lambda j: worth[j]))
    picked = _prototypes(points, 5)
    assert picked[0] == chosen[0]
    assert len(set(picked.tolist())) == 5

    def apart(s: list[int]) -> float:
        return kernel.mean() - 2 * kernel[:, s].mean() + kernel[np.ix_(s, s)].mean()

    assert apart(picked.tolist()) <= np.mean([apart(np.random.default_rng(i).permutation(15)[:5].tolist()) for i in range(50)])


def test_farthest_points() -> None:
    assert _farthest(np.array([[0.0], [1.0], [10.0], [6.0]]), 3).tolist() == [0, 2, 3]
    assert sorted(_farthest(np.zeros((4, 2)), 4).tolist()) == [0, 1, 2, 3]


def test_farthest_points_as_published() -> None:
    """The published loop keeps every candidate that lies apart at all, so the last one stays: here against that loop."""
    points = np.array([[0.0], [1.0], [0.0], [10.0], [6.0], [6.0]])
    taken = [0]
    while len(taken) < 4:
        last = None
        for candidate in range(len(points)):
            if min(abs(points[candidate, 0] - points[t, 0]) for t in taken) > 0:  # the maximum stays 0
                last = candidate
        taken.append(last)
    assert taken == [0, 5, 3, 1]
    assert _farthest(points, 4, published=True).tolist() == taken
    assert sorted(_farthest(points, 6, published=True).tolist()) == list(range(6))


def test_pace_with_the_published_noise() -> None:
    random = np.random.default_rng(0)
    parts = random.normal(0.3, 0.01, (120, 6)), random.normal(0.7, 0.01, (120, 6)), random.random((60, 6))
    source = ArraySource(np.concatenate(parts).clip(0, 1).astype(np.float32))
    network = Target(nn.Sequential(nn.Identity(), nn.Linear(6, 3)).eval(), shape=(6,))
    ours, published = (select(network, source, f"pace:dimensions=2,noise={word}", 40) for word in ("farthest", "published"))
    assert set(ours.indices) != set(published.indices)
    assert ours.picked == published.picked == len(set(published.indices)) == 40
    with refused("wrong-type", "noise"):
        select(network, source, "pace:noise=last", 40)


def test_clusters_are_found_and_served_in_proportion() -> None:
    random = np.random.default_rng(0)
    x = np.concatenate([random.normal(0.2, 0.02, (200, 6)), random.normal(0.8, 0.02, (100, 6))]).clip(0, 1).astype(np.float32)
    network = Target(nn.Sequential(nn.Identity(), nn.Linear(6, 3)).eval(), shape=(6,))
    selection = select(network, ArraySource(x), "pace:dimensions=2", 30)
    left = int((selection.indices < 200).sum())
    assert 17 <= left <= 23
    assert not selection.notes


def test_without_clusters_a_note_says_so() -> None:
    assert "no clusters" in select(target(), pool(40), "pace", 10).notes[0]


def test_constant_layers_do_no_harm() -> None:
    assert _reduced(np.ones((20, 4)), 8, 0).shape == (20, 0)
    assert (_clusters(np.empty((20, 0)), 2, 2) == -1).all()
    network = Target(nn.Sequential(nn.Linear(6, 4), nn.Threshold(99, 0), nn.Linear(4, 3)).eval(), shape=(6,))
    assert select(network, pool(), "pace", 10).picked == 10
    assert select(network, pool(), "ces", 10).picked == 10
