"""Neighbours and densities against plain loops and scipy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import gaussian_kde

from neurotest.errors import BadInput
from neurotest.stats.densities import Gaussian, Kernels, ledoit_wolf
from neurotest.stats.neighbours import Points, nearest, squared_distances


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 30), st.integers(1, 30), st.integers(1, 5), st.floats(-1e4, 1e4))
def test_nearest_is_the_nearest_wherever_the_points_lie(seed: int, n: int, m: int, d: int, shift: float) -> None:
    random = np.random.default_rng(seed)
    queries, points = random.normal(size=(n, d)) + shift, random.normal(size=(m, d)) + shift
    plain = np.array([[np.linalg.norm(q - p) for p in points] for q in queries])
    distance, index = Points(points).nearest(queries)
    assert distance == pytest.approx(plain.min(axis=1), rel=1e-6, abs=1e-7)
    assert plain[np.arange(n), index] == pytest.approx(plain.min(axis=1), rel=1e-6, abs=1e-7)
    assert squared_distances(queries, points) == pytest.approx(plain**2, rel=1e-6, abs=1e-6)


def test_without_points_everything_is_infinitely_far() -> None:
    distance, index = nearest(np.zeros((2, 3)), np.empty((0, 3)))
    assert distance.tolist() == [np.inf, np.inf]
    assert index.tolist() == [-1, -1]


def test_many_queries_are_searched_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(0)
    queries, points = random.normal(size=(50, 3)), random.normal(size=(20, 3))
    whole = Points(points).nearest(queries)
    monkeypatch.setattr("neurotest.stats.neighbours.CHUNK", 45)
    parts = Points(points).nearest(queries)
    assert (whole[1] == parts[1]).all()


def test_kernels_are_those_of_scipy() -> None:
    random = np.random.default_rng(0)
    points, asked = random.normal(size=(80, 4)) @ random.normal(size=(4, 4)), random.normal(size=(9, 4))
    assert Kernels(points).log_density(asked) == pytest.approx(gaussian_kde(points.T).logpdf(asked.T), rel=1e-9)


def test_far_from_everything_the_density_is_small_not_zero() -> None:
    points = np.random.default_rng(0).normal(size=(50, 2))
    assert np.isfinite(Kernels(points).log_density(np.array([[1e4, 0.0]]))).all()


def test_mahalanobis_by_the_inverse() -> None:
    random = np.random.default_rng(0)
    points, asked = random.normal(size=(60, 3)), random.normal(size=(5, 3))
    apart = asked - points.mean(axis=0)
    plain = np.einsum("ij,jk,ik->i", apart, np.linalg.inv(np.cov(points.T, bias=True)), apart)
    for inverse in ("auto", "pinv", "none"):
        assert Gaussian(points, inverse).squared_distance(asked) == pytest.approx(plain, rel=1e-9)  # type: ignore[arg-type]


def test_a_singular_covariance_is_shrunk_or_refused() -> None:
    points = np.random.default_rng(0).normal(size=(5, 9))
    shrunk = Gaussian(points)
    assert shrunk.shrunk
    assert np.isfinite(shrunk.squared_distance(points + 1)).all()
    assert np.isfinite(Gaussian(np.ones((4, 3))).squared_distance(np.zeros((1, 3)))).all()
    with pytest.raises(BadInput, match="singular"):
        Gaussian(points, "none")
    with pytest.raises(BadInput, match="at least one point"):
        Kernels(np.empty((0, 3)))


def test_shrinkage_is_that_of_scikit_learn() -> None:
    from sklearn.covariance import ledoit_wolf as theirs

    points = np.random.default_rng(1).normal(size=(12, 6)) * np.arange(1, 7)
    centred = points - points.mean(axis=0)
    assert ledoit_wolf(centred) == pytest.approx(theirs(centred, assume_centered=True)[0], rel=1e-9)
