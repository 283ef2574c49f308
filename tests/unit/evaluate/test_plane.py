"""Neighbours in a plane: purity by hand, beside chance, against plain loops; what cannot be laid out is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.refusals import refused

from neurotest.evaluate import plane

pytestmark = pytest.mark.by_hand

LINE = np.array([[0.0], [1.0], [3.0], [7.0]])


def test_neighbours_by_hand() -> None:
    assert plane.nearest(LINE, LINE, 2, itself=True).tolist() == [[1, 2], [0, 2], [1, 0], [2, 1]]
    assert plane.nearest(LINE, LINE, 1).tolist() == [[0], [1], [2], [3]]
    assert plane.nearest(LINE, LINE, 10, itself=True).shape == (4, 3)


def test_purity_by_hand() -> None:
    classes = np.array([0, 0, 1, 1])
    near = plane.nearest(LINE, LINE, 2, itself=True)
    assert plane.purity(near, classes, classes).tolist() == [0.5, 0.5, 0.0, 0.5]
    assert plane.kept(near, near[:, :1]).tolist() == [0.5, 0.5, 0.5, 0.5]
    assert plane.over_groups(np.array([0.0, 1.0, 1.0]), np.array([7, 7, 8])).value == 0.75  # two groups: 0.5 and 1


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 6))
def test_purity_is_what_a_plain_loop_counts(seed: int, k: int) -> None:
    generator = np.random.default_rng(seed)
    points, classes = generator.integers(0, 40, (15, 2)).astype(float), generator.integers(0, 3, 15)
    shares = plane.purity(plane.nearest(points, points, k, itself=True), classes, classes)
    for i, share in enumerate(shares.tolist()):
        others = sorted((j for j in range(15) if j != i), key=lambda j: (((points[i] - points[j]) ** 2).sum(), j))[:k]
        assert share == sum(classes[j] == classes[i] for j in others) / k


def test_chance_is_what_shares_of_classes_say() -> None:
    """Half of the inputs are of either class: half of any neighbours are. Classes in two heaps are far above that."""
    generator = np.random.default_rng(0)
    classes = np.arange(200) % 2
    points = generator.normal(size=(200, 3)) + 8 * classes[:, None]
    near = plane.nearest(points, points, 10, itself=True)
    chance = plane.purity_by_chance(near, classes, classes)
    assert chance.low < 0.5 < chance.high
    assert abs(chance.value - 0.5) < 0.02
    assert plane.purity(near, classes, classes).mean() == 1.0


@pytest.mark.parametrize("inputs", [8, 40])
def test_groups_stay_together_in_the_plane(inputs: int) -> None:
    generator = np.random.default_rng(1)
    classes = np.arange(inputs) % 2
    features = generator.normal(size=(inputs, 60)) + 30 * classes[:, None]
    points = plane.lay_out(features)
    assert points.shape == (inputs, 2)
    near = plane.nearest(points, points, 3, itself=True)
    assert plane.purity(near, classes, classes).mean() > 0.9
    assert np.array_equal(points, plane.lay_out(features))


def test_what_has_no_map() -> None:
    with refused("too-few", "inputs"):
        plane.lay_out(np.zeros((7, 3)))
    with refused("out-of-range", "map"):
        plane.lay_out(np.zeros((9, 3)), "pca")
    with refused("not-finite", "features"):
        plane.lay_out(np.full((9, 3), np.nan))


def test_umap_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "umap", None)
    with refused("not-installed", "umap"):
        plane.lay_out(np.random.default_rng(0).normal(size=(9, 3)), "umap")
