"""The end of a reversed Weibull distribution: by hand, against scipy's own fit from the true start, and as properties."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import weibull_min
from tests.refusals import refused

from neurotest.stats.weibull import end_point


def maxima(shape: float, n: int, seed: int = 0) -> np.ndarray:
    return 10 - 2 * np.random.default_rng(seed).weibull(shape, n)


def test_by_hand() -> None:
    assert end_point([3.0, 3.0, 3.0]).value == 3
    assert end_point([3.0, 3.0]).by == "constant"
    assert end_point([3.0, 3.0], largest=4.0).value == 4
    assert end_point([1.0, 2.0]).by == "unfitted"
    assert end_point([1.0, 2.0]).value == 2
    # Two heaps far apart are no reversed Weibull distribution: the largest value stands for the end.
    heaps = end_point(np.concatenate([np.linspace(1, 1.01, 60), np.linspace(9, 9.01, 60)]))
    assert heaps.by in ("rejected", "unfitted")
    assert heaps.value == pytest.approx(9.01)
    with refused("wrong-shape", "maxima"):
        end_point([1.0, np.nan])


@pytest.mark.parametrize(("shape", "n"), [(1.5, 200), (2.5, 50), (2.5, 500), (4.0, 500)])
def test_against_scipy_from_the_true_start(shape: float, n: int) -> None:
    y = maxima(shape, n)
    ours = end_point(y)
    c, loc, scale = weibull_min.fit(-y, shape, loc=-10, scale=2)
    assert ours.by == "fit"
    assert ours.p > 0.05
    assert (ours.value, ours.shape, ours.scale) == pytest.approx((-loc, c, scale), rel=2e-3)


def test_an_end_that_recedes_is_none() -> None:
    """Maxima of something without a bound: their likelihood grows with the end."""
    y = np.random.default_rng(1).pareto(1.5, size=300)
    fitted = end_point(y)
    assert fitted.by == "unfitted"
    assert fitted.value == y.max()


@given(st.integers(0, 1000), st.floats(0.01, 100), st.floats(1.2, 6))
def test_scales_and_never_lies_below_what_was_seen(seed: int, factor: float, shape: float) -> None:
    y = maxima(shape, 60, seed)
    one, other = end_point(y), end_point(factor * y)
    assert one.value >= y.max()
    assert one.by == other.by
    assert other.value == pytest.approx(factor * one.value, rel=1e-6)
    assert end_point(y[::-1]) == one


def test_the_end_of_what_is_nearly_gumbels_is_none() -> None:
    """Maxima of normal numbers have no end; a fit puts it far above them, by a great shape, and is not believed."""
    y = np.random.default_rng(3).normal(size=(50, 200)).max(axis=1)
    believed, far = end_point(y), end_point(y, shapes=np.inf)
    assert (believed.by, believed.value) == ("unfitted", y.max())
    assert far.by == "fit"
    assert far.shape > 8
    assert far.value > y.max() + 1
