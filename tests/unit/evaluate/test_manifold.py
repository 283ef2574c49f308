"""Neighbours in feature space: which inputs are far from training data, and how various a suite is."""

from __future__ import annotations

import numpy as np
import pytest

from neurotest.errors import BadInput
from neurotest.evaluate.metrics import Manifold, spread
from neurotest.stats.distances import nearest_other

pytestmark = pytest.mark.plain


def test_nearest_others_as_loops_say(monkeypatch: pytest.MonkeyPatch) -> None:
    points = np.random.default_rng(0).normal(size=(23, 4))
    expected = [min(np.linalg.norm(p - q) for j, q in enumerate(points) if j != i) for i, p in enumerate(points)]
    assert nearest_other(points) == pytest.approx(expected)
    monkeypatch.setattr("neurotest.stats.distances.CHUNK", 50)
    assert nearest_other(points) == pytest.approx(expected)


def test_what_lies_outside() -> None:
    train = np.random.default_rng(0).normal(size=(400, 3))
    manifold = Manifold.of(train)
    assert (manifold.distance(train) == 0).all()
    inside = np.random.default_rng(1).normal(size=(400, 3)) * 0.5
    assert (manifold.distance(inside) > 1).mean() < 0.05
    assert (manifold.distance(train + 50) > 1).all()
    for bad, message in ((train[:50], "at least 100"), (np.zeros((200, 3)), "exact copy")):
        with pytest.raises(BadInput, match=message):
            Manifold.of(bad)
    with pytest.raises(BadInput, match="quantile"):
        Manifold.of(train, quantile=1.0)


def test_spread_of_known_suites() -> None:
    same = spread(np.ones((5, 3)))
    assert (same.nearest, same.pairwise) == pytest.approx((0, 0))
    assert same.vendi == pytest.approx(1)
    unlike = spread(np.eye(4))
    assert unlike.vendi == pytest.approx(4)
    assert (unlike.nearest, unlike.pairwise) == pytest.approx((2**0.5, 2**0.5))
    two = spread(np.concatenate([np.eye(2)] * 6))  # more inputs than features: twelve inputs, two kinds
    assert two.vendi == pytest.approx(2)
    with pytest.raises(BadInput):
        spread(np.ones((1, 3)))
    assert spread(np.zeros((3, 2))).vendi == 1


def test_pairwise_as_loops_say() -> None:
    points = np.random.default_rng(0).normal(size=(9, 4))
    expected = np.mean([np.sum((a - b) ** 2) for i, a in enumerate(points) for j, b in enumerate(points) if i != j]) ** 0.5
    assert spread(points).pairwise == pytest.approx(expected)
