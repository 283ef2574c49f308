"""The numbers of files: 8 bits of pictures, 16 of sound."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from neurotest.levels import EIGHT, SIXTEEN, levels_of


def test_by_hand() -> None:
    assert EIGHT.unit(torch.tensor([0, 51, 255], dtype=torch.uint8)).tolist() == pytest.approx([0, 0.2, 1])
    assert SIXTEEN.unit(torch.tensor([-32768, 0, 16384], dtype=torch.int16)).tolist() == [0, 0.5, 0.75]
    assert SIXTEEN.stored(torch.tensor([0.0, 0.5, 1.0])).tolist() == [-32768, 0, 32767]
    assert SIXTEEN.nearest(torch.tensor([2.0])).item() == 65535 / 65536 == SIXTEEN.top
    assert (levels_of(np.uint8), levels_of(np.int16), levels_of(np.float32)) == (EIGHT, SIXTEEN, None)


@pytest.mark.parametrize("levels", [EIGHT, SIXTEEN])
def test_every_number_of_a_file_comes_back(levels) -> None:
    info = np.iinfo(levels.dtype)
    every = np.arange(info.min, info.max + 1, dtype=levels.dtype)
    u = levels.unit(torch.from_numpy(every))
    assert (levels.stored(u) == every).all()
    assert levels.stored(u).dtype == every.dtype
    assert torch.equal(levels.nearest(u), u)
    plain = [(int(number) - info.min) / levels.steps for number in every]  # in double precision
    assert np.abs(u.double().numpy() - plain).max() < 1e-7


@given(st.lists(st.floats(-1, 2, width=32), min_size=1, max_size=20), st.sampled_from([EIGHT, SIXTEEN]))
def test_rounding_goes_to_the_nearest_level(values, levels) -> None:
    u = torch.tensor(values)
    assert float((levels.nearest(u) - u.clamp(0, levels.top)).abs().max()) <= 0.5 / levels.steps + 1e-6
