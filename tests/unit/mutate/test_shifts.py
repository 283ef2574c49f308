"""Coarse pixels, hidden parts, gamma, noise, JPEG and fog: by hand, against plain loops, and what always holds."""

from __future__ import annotations

import io

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from tests.refusals import refused

from neurotest import registry, rng
from neurotest.mutate import shifts
from neurotest.mutate.shifts import CorruptionMutations, ViewMutations, _Coarse, _Fog, _Gamma, _Jpeg, _NormalNoise, _Occlusion

pytestmark = pytest.mark.by_hand

SETS = ("views", "corruptions")


def images(n: int = 4, channels: int = 1, size: int = 8) -> torch.Tensor:
    pixels = rng.stream("test.shifts", channels).integers(0, 256, (n, channels, size, size))
    return torch.from_numpy(pixels).float() / 255


def row(*values: float) -> torch.Tensor:
    return torch.tensor([values], dtype=torch.float64)


def test_coarse_by_hand() -> None:
    """Squares of two; the fifth row and column are no whole square."""
    x = torch.arange(25.0).reshape(1, 1, 5, 5) / 25
    out = _Coarse().apply(x, row(2))[0, 0]
    assert out[0, 0] == out[1, 1] == pytest.approx((0 + 1 + 5 + 6) / 4 / 25)
    assert out[2, 3] == pytest.approx((12 + 13 + 17 + 18) / 4 / 25)
    assert torch.equal(out[4], x[0, 0, 4])


def test_gamma_and_fog_by_hand() -> None:
    x = torch.tensor([[[[0.25, 1.0]]]])
    assert _Gamma().apply(x, row(2.0)).flatten().tolist() == [0.0625, 1.0]
    assert _Gamma().at(np.array([[0.25, 0.0], [0.75, 0.0]])).tolist() == [[pytest.approx(0.4)], [pytest.approx(3.5)]]
    assert _Fog().apply(x, row(0.5, 0.5)).flatten().tolist() == [0.375, 0.75]


def test_occlusion_hides_one_square_of_one_grey() -> None:
    x = torch.full((1, 3, 8, 8), 2.0)  # no grey is 2
    out = _Occlusion().apply(x, row(0.5, 7))
    rows, columns = np.nonzero((out[0, 0] != 2).numpy())
    assert (rows.max() - rows.min() + 1, columns.max() - columns.min() + 1, len(rows)) == (4, 4, 16)
    assert len(out[out != 2].unique()) == 1


def test_jpeg_equals_a_file_written_one_by_one() -> None:
    x = images(3, 3, 16)
    out = _Jpeg().apply(x, torch.tensor([[5.0], [10.0], [24.0]]))
    for one, back, quality in zip(x, out, (5, 10, 24), strict=True):
        file = io.BytesIO()
        Image.fromarray((one.permute(1, 2, 0).numpy() * 255).round().astype(np.uint8)).save(file, "JPEG", quality=quality)
        assert np.array_equal((back.permute(1, 2, 0).numpy() * 255).round(), np.asarray(Image.open(file)))
    with refused("unsuitable", "channels"):
        _Jpeg().apply(images(1, 2), row(10.0))


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 40), st.integers(1, 40), st.lists(st.integers(5, 24), min_size=1, max_size=8), st.integers(0, 99))
def test_grey_pictures_of_one_file_equal_files_of_one_picture(height: int, width: int, qualities: list[int], seed: int) -> None:
    """Noise and flat steps, every size: nothing of a neighbour in the file comes through."""
    random = rng.stream("test.shifts.jpeg", seed)
    pixels = random.integers(0, 256, (len(qualities), height, width)).astype(np.uint8)
    pixels[::2] = 255 * (np.arange(width) > width // 2)
    out = _Jpeg().apply(torch.from_numpy(pixels)[:, None] / 255, torch.tensor(qualities, dtype=torch.float64)[:, None])
    for one, back, quality in zip(pixels, out[:, 0], qualities, strict=True):
        file = io.BytesIO()
        Image.fromarray(one).save(file, "JPEG", quality=quality)
        assert np.array_equal((back.numpy() * 255).round(), np.asarray(Image.open(file)))


def test_a_large_number_of_grey_pictures_is_spread_over_files(monkeypatch: pytest.MonkeyPatch) -> None:
    x, rows = images(9), torch.full((9, 1), 10.0, dtype=torch.float64)
    together = _Jpeg().apply(x, rows)
    monkeypatch.setattr(shifts, "TALLEST", 20)  # two pictures of 8 rows
    assert torch.equal(_Jpeg().apply(x, rows), together)


def test_occlusion_and_noise_equal_plain_loops() -> None:
    x, numbers = torch.rand(6, 3, 9, 12, generator=torch.Generator().manual_seed(0)), [3, 2**53 - 1, 5, 0, 5, 77]
    shares = [0.25, 0.3, 0.5, 0.45, 0.26, 1.0]
    parameters = torch.tensor([*zip(shares, numbers, strict=True)], dtype=torch.float64)
    hidden, noisy = _Occlusion().apply(x, parameters), _NormalNoise().apply(x, parameters)
    for i, (share, number) in enumerate(zip(shares, numbers, strict=True)):
        size = int(share * 9)
        down, right, grey = rng.stream("mutate.occlusion", number).random(3)
        top, left = int(down * (9 - size)), int(right * (12 - size))
        expected = x[i].clone()
        expected[:, top : top + size, left : left + size] = grey
        assert torch.equal(hidden[i], expected)
        noise = rng.stream("mutate.noise", number).standard_normal((3, 9, 12), dtype=np.float32)
        assert torch.equal(noisy[i], x[i] + torch.tensor(share).float() * torch.from_numpy(noise))


def test_noise_has_the_spread_that_was_drawn() -> None:
    x = torch.full((1, 1, 60, 60), 0.5)
    assert float((_NormalNoise().apply(x, row(0.2, 3)) - x).std()) == pytest.approx(0.2, rel=0.05)


@pytest.mark.parametrize("name", SETS)
def test_an_item_is_the_same_alone_and_in_a_batch(name: str) -> None:
    mutations, x = registry.build("mutation", name), images(40)
    draws = mutations.draw(rng.stream("test.shifts.draws", 0), len(x))
    assert set(draws.kind.tolist()) == {0, 1, 2}
    together = mutations.apply(x, draws)
    for i in range(len(x)):
        assert torch.equal(mutations.apply(x[i : i + 1], draws[np.array([i])])[0], together[i])


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([ViewMutations(), CorruptionMutations()]), st.sampled_from([1, 3]))
def test_results_are_8_bit_and_draws_in_range(seed: int, mutations: ViewMutations, channels: int) -> None:
    x = images(6, channels)
    draws = mutations.draw(rng.stream("test.shifts.any", seed), len(x))
    out = mutations.apply(x, draws)
    assert out.shape == x.shape
    assert torch.equal((out * 255).round() / 255, out)
    assert float(out.min()) >= 0
    assert float(out.max()) <= 1
    for i in range(len(x)):
        assert draws.describe(i)["operator"] in mutations.names
