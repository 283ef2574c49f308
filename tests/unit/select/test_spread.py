"""A diverse batch on top of a score."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from neurotest import registry
from neurotest.data.source import ArraySource
from neurotest.select import select
from neurotest.select.spread import _disperse
from neurotest.stats.distances import nearest_other
from neurotest.target import Target

from .subjects import centred as target

pytestmark = pytest.mark.by_hand


def crowded() -> ArraySource:
    """Every fourth input is new, the three after it nearly the same."""
    random = np.random.default_rng(0)
    x = np.repeat(random.random((50, 6)), 4, axis=0) + random.normal(0, 1e-4, (200, 6))
    return ArraySource(x.clip(0, 1).astype(np.float32), random.integers(0, 3, 200))


def test_by_hand() -> None:
    points = np.array([[0.0], [0.1], [5.0], [5.1], [10.0]])
    assert _disperse(points, 3, reach=1.0).tolist() == [0, 2, 4]
    assert _disperse(points, 5, reach=1.0).tolist()[:3] == [0, 2, 4]
    assert sorted(_disperse(points, 5, reach=1.0)) == [0, 1, 2, 3, 4]
    assert _disperse(points, 3, reach=1e-9).tolist() == [0, 1, 2]  # nothing is near: the order stays
    assert _disperse(np.zeros((3, 1)), 3, reach=0.0).tolist() == [0, 1, 2]


def test_nearest_other() -> None:
    assert nearest_other(np.array([[0.0], [1.0], [5.0]])).tolist() == [1, 1, 4]
    assert nearest_other(np.array([[0.0]])).tolist() == [np.inf]


def test_near_duplicates_go() -> None:
    plain, spread = (select(target(), crowded(), "deepgini", 20, spread=flag) for flag in (False, True))
    assert sorted(spread.order) == list(range(200))
    assert spread.near.plain > 2 * spread.near.random > 0
    assert spread.near.spread == 0
    assert spread.to_dict()["near_duplicates"] == spread.near.spread
    assert "near_duplicates" not in plain.to_dict()
    assert spread.order[0] == plain.order[0]
    assert len(set(spread.indices // 4)) > len(set(plain.indices // 4))
    assert set(spread.indices) <= set(plain.order[:80])  # from the top of the order only
    rest = [i for i in plain.order if i not in set(spread.indices)]
    assert spread.order[20:].tolist() == rest


@pytest.mark.parametrize("method", ["deepgini", "random", "ats", "cam:nac", "dsa"])
def test_on_top_of_any_score(method: str) -> None:
    train = ArraySource(np.random.default_rng(1).random((40, 6), dtype=np.float32))
    selection = select(target(), crowded(), method, 10, spread=True, train=train)
    assert sorted(selection.order) == list(range(200))
    assert selection.near.spread <= selection.near.plain


def test_a_pool_of_equals_and_a_batch_of_one() -> None:
    same = ArraySource(np.zeros((9, 6), dtype=np.float32))
    assert select(target(), same, "deepgini", 4, spread=True).order.tolist() == list(range(9))
    assert select(target(), crowded(), "deepgini", 1, spread=True).picked == 1
    assert select(target(), crowded(), "deepgini", "100%", spread=True).picked == 200


def test_estimators_are_not_spread() -> None:
    assert "ces" in registry.entries("estimator")
    assert select(target(), crowded(), "ces", 10, spread=True).near is None


def test_a_network_without_dense_layers() -> None:
    torch.manual_seed(0)
    network = Target(nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Conv2d(4, 3, 4), nn.Flatten()).eval(), shape=(1, 6, 6))
    x = np.random.default_rng(0).random((40, 1, 6, 6), dtype=np.float32)
    assert select(network, ArraySource(x), "deepgini", 5, spread=True).near.spread <= 1
