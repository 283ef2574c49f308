"""Large batches run in parts: the same answers, and no layer holds more than its share of memory."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from neurotest.target import Layer, Probe, Target, Want, chunks

pytestmark = pytest.mark.by_hand


def layer(shape: tuple[int, ...], inputs: tuple[int, ...]) -> Layer:
    return Layer("conv", "conv", 0, "convolution", shape, 1, inputs, 1, 1)


def test_the_size_of_a_part_by_hand() -> None:
    # 96 maps and 32 maps of 112x112 are 1,605,632 values; of 4 bytes, twice: 12,845,056 bytes; 2^28 hold 20 of them
    assert chunks.chunk([layer((96, 112, 112), (32, 112, 112)), layer((10,), (1280,))]) == 20
    assert chunks.chunk([layer((10,), (1280,))]) > 5000
    assert chunks.chunk([layer((64, 2048, 2048), (3, 2048, 2048))]) == chunks.LEAST_INPUTS


@given(n=st.integers(1, 500), most=st.integers(1, 60))
def test_parts_are_even_and_whole(n: int, most: int) -> None:
    x = torch.arange(n)
    parts = list(chunks.even(x, most))
    assert torch.equal(torch.cat(parts), x)
    sizes = [len(part) for part in parts]
    assert max(sizes) <= most
    assert max(sizes) - min(sizes) <= 1
    assert len(parts) == -(-n // most)


class Counting(nn.Module):
    """Remembers how many inputs it got at once."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head, self.sizes = nn.Conv2d(3, 4, 3), nn.Linear(4, 5), []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.sizes.append(len(x))
        return self.head(self.conv(x).relu().mean((2, 3)))  # type: ignore[no-any-return]


@pytest.fixture
def target(monkeypatch: pytest.MonkeyPatch) -> Target:
    monkeypatch.setattr(chunks, "LARGE_BATCH", 100)
    monkeypatch.setattr(chunks, "LAYER_BYTES", 7 * 4 * 2 * (4 * 8 * 8 + 3 * 10 * 10))  # seven inputs of 3x10x10
    torch.manual_seed(0)
    return Target(Counting().double().eval().float(), shape=(3, 10, 10))


def test_a_probe_records_parts_as_one_batch(target: Target) -> None:
    x = torch.rand(17, 3, 10, 10)
    wants = Want(), Want(layers="conv", neuron="unit"), Want(layers="head", inputs=True)
    with Probe(target, *wants) as probe:
        target.module.sizes.clear()
        trace = probe(x)
        assert target.module.sizes == [5, 6, 6]
        alone = [probe(x[i : i + 1]) for i in range(17)]
    # float32 sums of 64 terms below 1, in another order
    torch.testing.assert_close(trace.logits, torch.cat([one.logits for one in alone]), rtol=1e-5, atol=1e-5)
    for want in wants:
        for name, values in trace[want].items():
            torch.testing.assert_close(values, torch.cat([one[want][name] for one in alone]), rtol=1e-5, atol=1e-5)


def test_scores_without_layers_run_in_parts_too(target: Target) -> None:
    x = torch.rand(17, 3, 10, 10)
    with torch.inference_mode():
        target.logits(x[:2])
        answers = target.logits(x)
        assert max(target.module.sizes) == 6
        torch.testing.assert_close(answers, target.module(x), rtol=1e-5, atol=1e-5)


def test_gradients_and_edits_see_the_whole_batch(target: Target) -> None:
    x = torch.rand(17, 3, 10, 10, requires_grad=True)
    target.module.sizes.clear()
    target.logits(x).sum().backward()
    assert target.module.sizes[-1] == 17
    with Probe(target, Want(layers="conv"), edit=lambda name, tensor: tensor) as probe:
        probe(x.detach())
    assert target.module.sizes[-1] == 17
