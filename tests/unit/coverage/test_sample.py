"""Criteria on a sample of units: near the value of all units, named as the layers number them, and bounded in memory."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import neurotest
from neurotest.coverage import Coverage
from neurotest.target import Target


@pytest.fixture(scope="module")
def target() -> Target:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(1, 30, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(30 * 400, 5))
    return Target(module.eval(), shape=(1, 20, 20))


@pytest.fixture(scope="module")
def inputs() -> np.ndarray:
    return np.random.default_rng(0).random((40, 1, 20, 20), dtype=np.float32)


def cover(target: Target, inputs: np.ndarray, neuron: str, *criteria: str) -> Coverage:
    return neurotest.cover(
        target, inputs[:20], criteria or ("nc", "kmnc:100", "nbc", "tknc"), train=inputs[20:], neuron=neuron, out=False
    )


def test_values_are_near_those_of_all_units(target: Target, inputs: np.ndarray) -> None:
    sample, unit = (cover(target, inputs, neuron, "nc:threshold=0.5", "kmnc:100", "nbc") for neuron in ("sample", "unit"))
    for name, measured in sample.criteria.items():
        assert measured.value.whole.value == pytest.approx(unit.criteria[name].value.whole.value, abs=0.05), name
        assert measured.value.whole.total is not None
        assert unit.criteria[name].value.whole.total is not None
        assert measured.value.whole.total < unit.criteria[name].value.whole.total / 10


def test_neurons_are_numbered_as_in_the_layer(target: Target, inputs: np.ndarray) -> None:
    sample, unit = (cover(target, inputs, neuron, "nc:threshold=0.9") for neuron in ("sample", "unit"))
    never, all_never = (set(one.never()["nc:threshold=0.9"]["0"]) for one in (sample, unit))
    assert never < all_never
    assert any("1,005 of 12,005 units" in note for note in sample.criteria["nc:threshold=0.9"].value.notes)
