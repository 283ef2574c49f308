"""Neighbours and densities against plain loops and scipy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import gaussian_kde

from neurotest.errors import BadInput
from neurotest.stats.distances import Gaussian, Kernels, Points, _ledoit_wolf, nearest_other, squared_distances


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


def test_the_nearest_other_is_not_the_point_itself() -> None:
    assert nearest_other(np.array([[0.0], [3.0], [4.0]])).tolist() == [3, 1, 1]
    assert nearest_other(np.array([[2.0], [2.0]])).tolist() == [0, 0]
    assert nearest_other(np.zeros((1, 3))).tolist() == [np.inf]


def test_many_queries_are_searched_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(0)
    queries, points = random.normal(size=(50, 3)), random.normal(size=(20, 3))
    whole = Points(points).nearest(queries)
    monkeypatch.setattr("neurotest.stats.distances.CHUNK", 45)
    parts = Points(points).nearest(queries)
    assert (whole[1] == parts[1]).all()


def test_kernels_are_those_of_scipy() -> None:
    random = np.random.default_rng(0)
    points, values = random.normal(size=(80, 4)) @ random.normal(size=(4, 4)), random.normal(size=(9, 4))
    assert Kernels(points).log_density(values) == pytest.approx(gaussian_kde(points.T).logpdf(values.T), rel=1e-9)


def test_far_from_everything_the_density_is_small_not_zero() -> None:
    points = np.random.default_rng(0).normal(size=(50, 2))
    assert np.isfinite(Kernels(points).log_density(np.array([[1e4, 0.0]]))).all()


def test_mahalanobis_by_the_inverse() -> None:
    random = np.random.default_rng(0)
    points, values = random.normal(size=(60, 3)), random.normal(size=(5, 3))
    apart = values - points.mean(axis=0)
    plain = np.einsum("ij,jk,ik->i", apart, np.linalg.inv(np.cov(points.T, bias=True)), apart)
    for inverse in ("auto", "pinv", "none"):
        assert Gaussian(points, inverse).squared_distance(values) == pytest.approx(plain, rel=1e-9)  # type: ignore[arg-type]


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
    assert _ledoit_wolf(centred) == pytest.approx(theirs(centred, assume_centered=True)[0], rel=1e-9)


@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4])
@pytest.mark.parametrize("shape", [(12, 6), (5, 9), (200, 3), (4, 1)])
def test_shrinkage_on_every_scale(scale: float, shape: tuple[int, int]) -> None:
    from sklearn.covariance import ledoit_wolf as theirs

    points = scale * np.random.default_rng(2).normal(size=shape) * np.arange(1, shape[1] + 1)
    centred = points - points.mean(axis=0)
    # Of one neuron the sample is its own target, whatever the weight.
    assert _ledoit_wolf(centred) == pytest.approx(theirs(centred, assume_centered=True)[0], rel=1e-9, abs=1e-30)


def test_without_spread_nothing_is_shrunk() -> None:
    assert _ledoit_wolf(np.zeros((4, 3))).tolist() == np.zeros((3, 3)).tolist()


def plain_distance(apart: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    return np.einsum("ij,jk,ik->i", apart, np.linalg.inv(covariance), apart)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_few_points_have_the_shrunk_covariance_and_a_millionth_of_its_mean(scale: float) -> None:
    random = np.random.default_rng(0)
    points, values = scale * random.normal(size=(5, 9)), scale * random.normal(size=(7, 9))
    covariance = _ledoit_wolf(points - points.mean(axis=0))
    covariance += 1e-6 * np.trace(covariance) / 9 * np.eye(9)
    gaussian = Gaussian(points)
    assert gaussian.shrunk
    assert gaussian.squared_distance(values) == pytest.approx(plain_distance(values - points.mean(axis=0), covariance), rel=1e-6)


def test_as_many_points_as_neurons_are_still_too_few() -> None:
    random = np.random.default_rng(0)
    assert Gaussian(random.normal(size=(4, 4))).shrunk
    assert not Gaussian(random.normal(size=(5, 4))).shrunk


def test_pinv_leaves_out_directions_without_spread() -> None:
    random = np.random.default_rng(0)
    points = random.normal(size=(40, 3)) @ random.normal(size=(3, 6))  # three of six directions
    values = random.normal(size=(5, 6))
    apart = values - points.mean(axis=0)
    inverse = np.linalg.pinv(np.cov(points.T, bias=True), rcond=1e-12, hermitian=True)
    gaussian = Gaussian(points, "pinv")
    assert not gaussian.shrunk
    assert gaussian.whiten.shape == (6, 3)
    assert gaussian.squared_distance(values) == pytest.approx(np.einsum("ij,jk,ik->i", apart, inverse, apart), rel=1e-8)


def test_neurons_that_depend_on_each_other_are_shrunk_by_auto() -> None:
    points = np.random.default_rng(0).normal(size=(50, 3))
    repeated = np.concatenate([points, points[:, :1]], axis=1)
    assert Gaussian(repeated).shrunk
    assert not Gaussian(points).shrunk
    assert not Gaussian(points * [1, 1, 1e-5]).shrunk  # condition 1e10: float64 is enough
    assert Gaussian(points * [1, 1, 1e-7]).shrunk  # condition 1e14


@pytest.mark.parametrize("inverse", ["auto", "pinv", "none"])
def test_the_density_is_one_in_all(inverse: str) -> None:
    points = np.random.default_rng(0).normal(size=(30, 1)) * 2 + 5
    grid = np.arange(-15, 25, 0.01)[:, None]
    for kernels in (Kernels(points, "scott", inverse), Kernels(points, 0.7)):  # type: ignore[arg-type]
        assert 0.01 * np.exp(kernels.log_density(grid)).sum() == pytest.approx(1, abs=1e-6)


def test_kernels_of_one_width_by_plain_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(0)
    points, values = random.normal(size=(9, 3)), random.normal(size=(7, 3))
    plain = [
        np.log(np.mean([np.exp(-((v - p) ** 2).sum() / (2 * 0.6**2)) for p in points]) / (0.6 * np.sqrt(2 * np.pi)) ** 3)
        for v in values
    ]
    assert Kernels(points, 0.6).log_density(values) == pytest.approx(plain, rel=1e-10)
    assert not Kernels(points, 0.6).shrunk
    monkeypatch.setattr("neurotest.stats.distances.CHUNK", 20)  # two values at a time
    assert Kernels(points, 0.6).log_density(values) == pytest.approx(plain, rel=1e-10)
    assert Kernels(points).shrunk == Gaussian(points).shrunk
    assert Kernels(points[:2]).shrunk


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (3,), (1, 2, 3)])
def test_no_points(shape: tuple[int, ...]) -> None:
    for density in (Gaussian, Kernels):
        with pytest.raises(BadInput, match="at least one point"):
            density(np.empty(shape))


def test_neurons_far_from_each_other_do_not_cancel() -> None:
    """Each neuron is centred by its own mean."""
    points = np.random.default_rng(0).normal([1e7, 0.0, -2e7], size=(40, 3))
    plain = ((points[:, None] - points) ** 2).sum(axis=2)
    np.fill_diagonal(plain, np.inf)
    distance, index = Points(points[1:]).nearest(points[:1])
    assert distance == pytest.approx(np.sqrt(plain[0].min()), rel=1e-6)
    assert index[0] + 1 == plain[0].argmin()


def test_distances_far_from_the_origin_do_not_cancel() -> None:
    points = 1e7 + np.random.default_rng(0).normal(size=(5, 3))
    squared = squared_distances(points, points)
    plain = ((points[:, None] - points) ** 2).sum(axis=2)
    assert squared == pytest.approx(plain, abs=1e-9)
    assert (squared >= 0).all()
    assert squared_distances(points, np.empty((0, 3))).shape == (5, 0)
    assert squared_distances(np.empty((0, 3)), points).shape == (0, 5)


def test_points_know_how_many_they_are() -> None:
    points = Points(np.zeros((7, 2)))
    assert len(points) == 7
    distance, index = Points(np.array([[9.0, 9.0], [0.0, 0.0]])).nearest(np.array([[3.0, 4.0]]))
    assert (distance.tolist(), index.tolist()) == ([5.0], [1])


@pytest.mark.parametrize("inverse", ["auto", "pinv", "none"])
def test_single_precision_is_widened(inverse: str) -> None:
    random = np.random.default_rng(0)
    points = (100 + random.normal(size=(60, 3))).astype(np.float32)
    values = 100 + random.normal(size=(5, 3))
    wide = points.astype(np.float64)
    for density, call in ((Gaussian, "squared_distance"), (Kernels, "log_density")):
        narrow, full = (density(p, inverse=inverse) for p in (points, wide))  # type: ignore[arg-type]
        assert getattr(narrow, call)(values) == pytest.approx(getattr(full, call)(values), rel=1e-12)
    assert Gaussian(wide, inverse).shrunk is False  # type: ignore[arg-type]
    assert Kernels(wide, "scott", inverse).shrunk is False  # type: ignore[arg-type]


def test_shrunk_kernels_are_normal_densities_of_the_shrunk_covariance() -> None:
    from scipy.stats import multivariate_normal

    random = np.random.default_rng(0)
    points, values = random.normal(size=(4, 6)), random.normal(size=(5, 6))
    covariance = _ledoit_wolf(points - points.mean(axis=0))
    covariance += 1e-6 * np.trace(covariance) / 6 * np.eye(6)
    covariance *= (4 ** (-1 / (6 + 4))) ** 2
    plain = np.log(np.mean([multivariate_normal(point, covariance).pdf(values) for point in points], axis=0))
    kernels = Kernels(points)
    assert kernels.shrunk
    assert kernels.log_density(values) == pytest.approx(plain, rel=1e-6)


def test_one_point_is_a_very_narrow_kernel() -> None:
    density = Kernels(np.ones((1, 2))).log_density(np.array([[1.0, 1.0], [2.0, 1.0]]))
    assert density[0] > 0 > density[1]
    assert np.isfinite(density).all()


def test_two_points_and_one_alone() -> None:
    from scipy.stats import gaussian_kde

    line, places = np.array([[0.0], [3.0]]), np.array([[-1.0], [0.5], [4.0]])
    assert Kernels(line).log_density(places) == pytest.approx(gaussian_kde(line.T).logpdf(places.T), rel=1e-9)
    # One point has no spread: nothing is divided by nothing, and no direction is left to measure in.
    with np.errstate(all="raise"):
        assert Kernels(np.ones((1, 2)), "scott", "pinv").log_density(np.zeros((3, 2))).tolist() == [0, 0, 0]
        assert Kernels(np.ones((1, 2))).shrunk
        with pytest.raises(BadInput, match="inverse='none': a covariance is singular"):
            Kernels(np.ones((1, 2)), "scott", "none")


def test_single_precision_points_are_searched_in_double() -> None:
    random = np.random.default_rng(0)
    points = (1e4 + random.normal(size=(30, 4))).astype(np.float32)
    queries = 1e4 + random.normal(size=(9, 4))
    narrow, wide = Points(points).nearest(queries), Points(points.astype(np.float64)).nearest(queries)  # type: ignore[arg-type]
    assert narrow[0] == pytest.approx(wide[0], rel=1e-12)
    assert narrow[1].tolist() == wide[1].tolist()
