"""FID, KID and IS: by hand, against scipy's matrix root and plain loops, and when they are refused."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.linalg import sqrtm

from neurotest.errors import BadInput
from neurotest.evaluate.metrics import _frechet, fid, inception_score, kid

pytestmark = pytest.mark.plain


def drawn(n: int, d: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)) @ rng.normal(size=(d, d)) + rng.normal(size=d)


def test_frechet_of_two_lines() -> None:
    # In one dimension: (m1 - m2)^2 + (s1 - s2)^2.
    assert _frechet(np.array([1.0]), np.array([[4.0]]), np.array([4.0]), np.array([[9.0]])) == pytest.approx(9 + 1)
    same = drawn(50, 3, 0)
    assert fid(same, same).value == pytest.approx(0, abs=1e-9)
    assert fid(same, same + 2).value == pytest.approx(12)


def test_fid_as_the_formula_says() -> None:
    for seed in range(3):
        a, b = drawn(60, 5, seed), drawn(40, 5, seed + 10)
        cov1, cov2 = np.cov(a, rowvar=False), np.cov(b, rowvar=False)
        away = a.mean(0) - b.mean(0)
        expected = away @ away + np.trace(cov1 + cov2 - 2 * sqrtm(cov1 @ cov2).real)
        assert fid(a, b).value == pytest.approx(expected, rel=1e-6)
        assert fid(a, b).value == pytest.approx(fid(b, a).value)


def test_fid_says_when_it_means_nothing() -> None:
    a, b = drawn(20, 30, 0), drawn(25, 30, 1)
    with pytest.raises(BadInput, match="singular"):
        fid(a, b)
    score = fid(a, b, covariance="shrunk")
    assert math.isfinite(score.value)
    assert len(score.warnings) == 2
    assert "below 2,048" in fid(drawn(50, 2, 0), drawn(50, 2, 1)).warnings[0]
    assert fid(drawn(2100, 2, 0), drawn(2100, 2, 1)).warnings == ()


def test_kid_as_plain_loops_say() -> None:
    a, b = drawn(7, 3, 0), drawn(5, 3, 1)

    def kernel(x: np.ndarray, y: np.ndarray) -> float:
        return float((x @ y / 3 + 1) ** 3)

    first = np.mean([kernel(a[i], a[j]) for i in range(7) for j in range(7) if i != j])
    second = np.mean([kernel(b[i], b[j]) for i in range(5) for j in range(5) if i != j])
    across = np.mean([kernel(x, y) for x in a for y in b])
    score = kid(a, b)
    assert score.value == pytest.approx(first + second - 2 * across)
    assert "scatters" in score.warnings[0]


def test_kid_is_unbiased() -> None:
    rng = np.random.default_rng(0)
    many = [kid(rng.normal(size=(20, 2)), rng.normal(size=(20, 2))).value for _ in range(300)]
    assert abs(np.mean(many)) < 3 * np.std(many) / math.sqrt(300)


def test_inception_score_by_hand() -> None:
    assert inception_score(np.eye(4)).value == pytest.approx(4)
    assert inception_score(np.full((6, 3), 1 / 3)).value == pytest.approx(1)
    probs = np.array([[0.9, 0.1], [0.3, 0.7]])
    mean = probs.mean(0)
    expected = math.exp(sum(p * math.log(p / m) for row in probs for p, m in zip(row, mean, strict=True)) / 2)
    score = inception_score(probs)
    assert score.value == pytest.approx(expected)
    assert "biased low" in score.warnings[0]
    halves = np.concatenate([np.eye(2), np.full((2, 2), 0.5)])
    assert inception_score(halves, splits=2).value == pytest.approx((2 + 1) / 2)


def test_bad_input() -> None:
    good = drawn(9, 3, 0)
    for bad in (good[:1], good[0], good * np.nan, good[:, :2]):
        for score in (fid, kid):
            with pytest.raises(BadInput):
                score(bad, good)
    with pytest.raises(BadInput, match="covariance"):
        fid(good, good, covariance="none")  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="cannot show"):
        inception_score(np.full((100, 20), 0.05), splits=10)
    with pytest.raises(BadInput, match="sum to 1"):
        inception_score(good)
    with pytest.raises(BadInput, match="splits"):
        inception_score(np.eye(3), splits=0)
