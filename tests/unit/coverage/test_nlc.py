"""NLC where neurons move against each other: a negative covariance counts by its size."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import neurotest
from neurotest.data.source import ArraySource
from neurotest.target import Target

pytestmark = pytest.mark.by_hand


def linear(weight: list[list[float]]) -> Target:
    module = nn.Linear(len(weight[0]), len(weight), bias=False)
    with torch.no_grad():
        module.weight.copy_(torch.tensor(weight))
    return Target(module.eval(), shape=(len(weight[0]),))


def nlc(target: Target, x: np.ndarray, text: str = "nlc") -> float:
    value = neurotest.cover(target, ArraySource(x.astype(np.float32)), [text])[text].value.value
    return float(value)


def test_neurons_against_each_other_by_hand() -> None:
    # Neuron 0 is 0 and 1 (variance 1/4), neuron 1 is 0 and -2 (variance 1), together -1/2: (1/4 + 1 + 2 * 1/2) / 4.
    x = np.array([[0.0], [1.0]])
    assert nlc(linear([[1.0], [-2.0]]), x) == pytest.approx(2.25 / 4)
    assert nlc(linear([[1.0], [-2.0]]), x, "nlc:gated") == pytest.approx(2.25 / 4)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 40), st.integers(2, 5))
def test_the_mean_absolute_entry_of_the_covariance(seed: int, inputs: int, neurons: int) -> None:
    random = np.random.default_rng(seed)
    # Sixteenths, so that float32 activations are exact on every processor.
    weight, x = random.integers(-8, 9, (neurons, 3)) / 4, random.integers(0, 5, (inputs, 3)) / 4
    expected = np.abs(np.cov(x @ weight.T, rowvar=False, bias=True)).mean()
    assert nlc(linear(weight.tolist()), x) == pytest.approx(expected, abs=1e-9)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000))
def test_it_does_not_see_the_sign_of_a_neuron(seed: int) -> None:
    random = np.random.default_rng(seed)
    weight, x = random.integers(-8, 9, (4, 3)) / 4, random.integers(0, 5, (20, 3)) / 4
    mirrored = weight * random.choice([-1, 1], (4, 1))
    assert nlc(linear(weight.tolist()), x) == pytest.approx(nlc(linear(mirrored.tolist()), x), abs=1e-12)
