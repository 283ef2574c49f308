"""Verification: the equal error rate by hand, against scikit-learn, and what it does not depend on."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_curve
from tests.refusals import refused

from neurotest.data import ArraySource, data
from neurotest.evaluate.verification import equal_error, unit, verify
from neurotest.target.load import load

pytestmark = pytest.mark.by_hand


def test_by_hand() -> None:
    genuine, impostors = np.array([0.9, 0.8, 0.7, 0.2]), np.array([0.1, 0.3, 0.4, 0.75])
    rate, threshold = equal_error(genuine, impostors)  # from 0.7 on: 0.2 is rejected, 0.75 accepted
    assert rate == 0.25
    assert 0.4 < threshold <= 0.7


@pytest.mark.parametrize("seed", range(5))
def test_against_scikit_learn(seed: int) -> None:
    random = np.random.default_rng(seed)
    genuine, impostors = random.normal(1.5, 1, 300), random.normal(0, 1, 900)
    false, true, _ = roc_curve([1] * 300 + [0] * 900, np.concatenate([genuine, impostors]), drop_intermediate=False)
    theirs = false[np.abs(false - (1 - true)).argmin()]
    assert equal_error(genuine, impostors)[0] == pytest.approx(theirs, abs=1 / 300)


scores = st.lists(st.integers(-20, 20), min_size=1, max_size=30).map(lambda values: np.array(values, dtype=np.float64))


@given(scores, scores)
def test_only_the_order_counts(genuine: np.ndarray, impostors: np.ndarray) -> None:
    rate, threshold = equal_error(genuine, impostors)
    assert 0 <= rate <= 1
    assert equal_error(3 * genuine + 1, 3 * impostors + 1)[0] == rate
    rejected, accepted = (genuine < threshold).mean(), (impostors >= threshold).mean()
    assert rate == pytest.approx((rejected + accepted) / 2)
    if genuine.min() > impostors.max():
        assert rate == 0


def test_a_network_verifies_its_classes() -> None:
    target = load("zoo:spoken-melnet")
    result = verify(target, data("zoo:spoken-digits/train[:240]"), data("zoo:spoken-digits/test[:100]"))
    assert result.eer < 0.15
    assert (result.genuine, result.impostors) == (50, 450)
    assert result.rejection[0] == result.rejected / 50
    assert 0 < result.threshold < 1


def test_embeddings_have_length_one_and_bad_input_is_refused() -> None:
    assert np.linalg.norm(unit(np.array([[3.0, 4.0], [0.0, 0.0]])), axis=1).tolist() == [1.0, 0.0]
    with refused("too-few", "claims"):
        equal_error(np.array([]), np.array([1.0]))
    target, x = load("zoo:spoken-melnet"), np.ones((4, 1, 4800), np.int16)
    with refused("no-labels", "data"):
        verify(target, ArraySource(x), ArraySource(x, [0, 1, 2, 3]))
    with refused("too-few", "classes"):
        verify(target, ArraySource(x, [1] * 4), ArraySource(x, [0, 1, 2, 3]))
