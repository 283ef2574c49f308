"""Changes after which a road is the same road."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from neurotest import rng
from neurotest.mutate import weather
from neurotest.mutate.weather import WeatherMutations, _DepthFog, _Rain

pytestmark = pytest.mark.by_hand


def test_fog_by_hand() -> None:
    x = torch.zeros(1, 1, 4, 2)
    out = _DepthFog().apply(x, torch.tensor([[0.4]]))
    # rows at 1/8, 3/8, 5/8, 7/8 of the height: nearness 0, 0, .25, .75; of the veil 1 - .75 x nearness is left
    assert out[0, 0, :, 0].tolist() == pytest.approx([0.75 * 0.4, 0.75 * 0.4, 0.75 * 0.4 * 0.8125, 0.75 * 0.4 * 0.4375])


def test_rain_against_a_plain_loop() -> None:
    x = torch.rand(2, 3, 24, 20, generator=torch.Generator().manual_seed(0)) * 0.5
    parameters = torch.tensor([[0.02, 5.0], [0.05, 9.0]], dtype=torch.float64)
    out = _Rain().apply(x, parameters)
    length, side = 3, 3
    for i, (share, number) in enumerate(parameters.tolist()):
        random = next(iter(rng.streams("mutate.rain", [int(number)])))
        slant = weather.SLANTS[int(random.integers(3))]
        starts = random.random((24, 20)) < share
        wet = np.zeros((24, 20))
        for row, column in zip(*np.nonzero(starts), strict=True):
            for step in range(length):
                # a drop lies around its start; correlation turns the kernel about its middle
                down, aside = row - (step - side // 2), column - (round(side // 2 + slant * (step - side // 2)) - side // 2)
                if 0 <= down < 24 and 0 <= aside < 20:
                    wet[down, aside] = 1
        expected = x[i] * torch.from_numpy(1 - 0.5 * wet).float() + torch.from_numpy(0.5 * 0.85 * wet).float()
        assert torch.allclose(out[i], expected, atol=1e-6)
        assert wet.sum() > 3


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**31), st.sampled_from([(1, 32, 48), (3, 20, 20)]))
def test_every_draw_stays_in_bounds_and_comes_out_the_same_alone(seed: int, shape: tuple[int, int, int]) -> None:
    mutations = WeatherMutations()
    x = torch.rand(6, *shape, generator=torch.Generator().manual_seed(seed)).mul(255).round().div(255)
    draws = mutations.draw(np.random.default_rng(seed), 6)
    out = mutations.apply(x, draws)
    assert float(out.min()) >= 0
    assert float(out.max()) <= 1
    assert torch.equal(out.mul(255).round(), out.mul(255).round().clamp(0, 255))
    alone = mutations.apply(x[3:4], draws[3:4])
    assert torch.equal(alone[0], out[3])


def test_the_families_are_small_changes() -> None:
    families = {family.name: family for family in WeatherMutations().families}
    assert set(families) == {"rotation", "brightness", "contrast", "blur", "rain", "fog"}
    assert max(abs(rule[0]) for rule in families["rotation"].rules) == 3
    assert families["rotation"].once
