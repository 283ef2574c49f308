"""The learners of adaptive selection against plain loops and closed forms."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from neurotest import rng
from neurotest.select.adaptive import learner
from neurotest.select.adaptive.learner import quick_head
from neurotest.select.adaptive.outputs import Outputs

pytestmark = pytest.mark.by_hand


def plain_head(x: np.ndarray, offset: np.ndarray, aims: np.ndarray, weights: np.ndarray, ridge: float) -> np.ndarray:
    """The same optimum by slow gradient descent, sample by sample."""
    coefficients = np.zeros((x.shape[1], offset.shape[1]))
    for _ in range(4000):
        slope = ridge * coefficients
        for row, base, aim, weight in zip(x, offset, aims, weights, strict=True):
            odds = np.exp(base + row @ coefficients)
            slope = slope + weight * np.outer(row, odds / odds.sum() - aim)
        coefficients = coefficients - 0.05 * slope
    return coefficients


def test_the_corrected_head_equals_a_plain_descent() -> None:
    random = rng.stream("test.head", 0)
    x, offset = random.normal(size=(6, 2)), random.normal(size=(6, 3))
    aims = np.eye(3)[[0, 1, 2, 0, 1, 1]]
    weights = np.array([1, 1, 1, 1, 0.5, 0.1])
    tensors = [torch.from_numpy(a) for a in (x, aims, weights)]
    quick = learner.corrected_head(tensors[0], Outputs(torch.from_numpy(offset)), *tensors[1:], ridge=1.0)
    assert quick.numpy() == pytest.approx(plain_head(x, offset, aims, weights, 1.0), abs=2e-3)


def test_a_quick_head_in_single_precision_orders_inputs_as_the_other_in_double_precision() -> None:
    """Wherever two inputs are further apart than single precision and two ends of a descent can tell."""
    random = rng.stream("test.head.single", 0)
    x = torch.from_numpy(random.normal(size=(3000, 30)))
    outputs = Outputs(torch.from_numpy(3 * random.normal(size=(3000, 5))))
    labels = torch.from_numpy(random.integers(0, 5, 3000))
    arguments = x, outputs, outputs.aims(labels), torch.from_numpy(random.random(3000)), 30.0
    double = learner.corrected_head(*arguments)
    single = quick_head(*arguments, steps=learner.STEPS)
    assert single.dtype == torch.float64
    odds = [outputs.corrected(x, head).fault_odds(outputs.predicted) for head in (double, single)]
    assert torch.allclose(*odds, atol=1e-3)
    first, second = odds[0].sort().values, odds[1][odds[0].argsort()]
    apart = first.diff() > 2e-3
    assert int(apart.sum()) > 500
    assert (second.diff()[apart] > 0).all()


def test_without_labels_that_contradict_nothing_is_corrected() -> None:
    offset = torch.randn(5, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    ones = torch.ones(5, 1, dtype=torch.float64)
    added = learner.corrected_head(ones, Outputs(offset), offset.softmax(1), torch.ones(5).double(), 1.0)
    assert added.abs().max() < 1e-6


def test_fault_regression_by_hand() -> None:
    """One constant feature: ridge * w = n (share - sigmoid(w))."""
    faults = torch.tensor([1.0, 1.0, 1.0, 0.0], dtype=torch.float64)
    w = float(learner.fault_regression(torch.ones(4, 1, dtype=torch.float64), faults, ridge=0.5))
    assert 0.5 * w == pytest.approx(3 - 4 / (1 + math.exp(-w)), abs=1e-6)


def test_a_scale_without_evidence_changes_nothing() -> None:
    empty = torch.zeros(0, dtype=torch.float64)
    assert learner.scale(empty, empty) == (0.0, 1.0)


def test_the_stack_trusts_who_foretold() -> None:
    faults = torch.tensor([1.0, 0.0] * 30, dtype=torch.float64)
    right, silent = (2 * faults - 1) * 2, torch.zeros(60, dtype=torch.float64)
    assert learner.stack(silent, right, faults) > 0.95
    assert learner.stack(right, -right, faults) < 0.05
    assert 0.1 < learner.stack(silent[:0], silent[:0], faults[:0]) < 0.2  # nothing predicted yet: the learner must prove itself
