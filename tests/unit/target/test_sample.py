"""`sample`: some units of each large layer, the same ones every time."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.target.by_hand import record
from torch import nn

from neurotest.target import Target, Want
from neurotest.target.layers import SAMPLE, Layer

pytestmark = pytest.mark.by_hand


def network() -> Target:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(1, 12, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(12 * 100, 7))
    return Target(module.eval(), shape=(1, 10, 10))


def test_a_sample_is_some_of_the_units_and_small_layers_are_whole() -> None:
    target, x = network(), torch.rand(3, 1, 10, 10, generator=torch.Generator().manual_seed(1))
    sample, unit = (record(target, x, Want(layers="pre_activation", neuron=kind)) for kind in ("sample", "unit"))
    first, last = target.survey().find("pre_activation")
    chosen = first.sample()
    assert chosen is not None
    assert sample.values[first.name].shape == (3, SAMPLE) == (3, first.neurons("sample"))
    assert torch.equal(sample.values[first.name], unit.values[first.name][:, chosen])
    assert last.sample() is None
    assert torch.equal(sample.values[last.name], unit.values[last.name])
    again = record(network(), x, Want(layers="pre_activation", neuron="sample"))
    assert torch.equal(again.values[first.name], sample.values[first.name])


def test_inputs_have_a_sample_of_their_own() -> None:
    target, x = network(), torch.rand(2, 1, 10, 10)
    want, units = (Want(layers="3", neuron=kind, inputs=True) for kind in ("sample", "unit"))
    trace = record(target, x, want, units)
    (last,) = target.survey().find("3")
    assert torch.equal(trace[want]["3"], trace[units]["3"][:, last.sample(inputs=True)])


@given(st.integers(1, 60), st.integers(1, 60), st.integers(1, 60))
def test_a_sample_has_no_unit_twice_and_none_that_is_not_there(channels: int, height: int, width: int) -> None:
    shape = (channels, height, width)
    layer = Layer("conv", "conv", 1, "convolution", shape, 1, shape, 1, time=0)
    units, size = layer.sample(), channels * height * width
    assert layer.neurons("sample") == min(size, SAMPLE)
    if units is None:
        assert size <= SAMPLE
        return
    assert len(set(units.tolist())) == len(units) == SAMPLE
    assert 0 <= units.min() <= units.max() < size
