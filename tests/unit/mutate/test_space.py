"""From a target's bounds to [0, 1] and back, and rounding to 8 bits."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from neurotest.levels import EIGHT
from neurotest.mutate.unit import from_unit, to_unit


def test_rounding_clips_and_agrees_with_reading() -> None:
    assert EIGHT.nearest(torch.tensor([-1.0, 0.0, 0.5, 1.0, 2.0])).tolist() == pytest.approx([0, 0, 128 / 255, 1, 1])
    every = torch.arange(256, dtype=torch.uint8).float().div(255)
    assert torch.equal(EIGHT.nearest(every), every)


@given(low=st.floats(-300, 300), width=st.floats(0.1, 600))
def test_there_and_back(low: float, width: float) -> None:
    x = torch.linspace(low, low + width, 9)
    unit = to_unit(x, (low, low + width))
    assert float(unit.min()) > -1e-3
    assert float(unit.max()) < 1 + 1e-3
    assert torch.allclose(from_unit(unit, (low, low + width)), x, atol=1e-3)
