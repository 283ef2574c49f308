"""Scores from class probabilities, by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from neurotest.select.scorer import OutputScorer
from neurotest.select.uncertainty import DeepGini, Entropy, Margin, MaxP

pytestmark = pytest.mark.by_hand

P = torch.tensor([[1.0, 0.0, 0.0, 0.0], [0.5, 0.5, 0.0, 0.0], [0.25] * 4, [0.7, 0.1, 0.2, 0.0]], dtype=torch.float64)
ENTROPY = -(0.7 * math.log2(0.7) + 0.1 * math.log2(0.1) + 0.2 * math.log2(0.2))


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        (DeepGini(), [0.0, 0.5, 0.75, 1 - 0.49 - 0.01 - 0.04]),
        (MaxP(), [0.0, 0.5, 0.75, 0.3]),
        (Margin(), [-1.0, 0.0, 0.0, -0.5]),
        (Entropy(), [0.0, 1.0, 2.0, ENTROPY]),
    ],
    ids=repr,
)
def test_by_hand(method: OutputScorer, expected: list[float]) -> None:
    assert method.score(P).tolist() == pytest.approx(expected, abs=1e-15)


@given(arrays(np.float64, st.tuples(st.integers(1, 5), st.integers(2, 6)), elements=st.floats(-30, 30)))
def test_certainty_is_least_and_evenness_is_most(logits: np.ndarray) -> None:
    k = logits.shape[1]
    probs = torch.from_numpy(logits).softmax(1)
    even, certain = torch.full((1, k), 1 / k, dtype=torch.float64), torch.eye(k, dtype=torch.float64)[:1]
    for method in (DeepGini(), MaxP(), Margin(), Entropy()):
        scores = method.score(probs)
        assert scores.shape == (len(logits),)
        assert (scores <= method.score(even) + 1e-12).all(), method
        assert (scores >= method.score(certain) - 1e-12).all(), method


@given(arrays(np.float64, (3, 5), elements=st.floats(-30, 30)), st.permutations(range(5)))
def test_the_names_of_classes_do_not_matter(logits: np.ndarray, order: list[int]) -> None:
    probs = torch.from_numpy(logits).softmax(1)
    for method in (DeepGini(), MaxP(), Margin(), Entropy()):
        assert torch.allclose(method.score(probs[:, order]), method.score(probs), atol=1e-12), method
