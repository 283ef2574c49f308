"""Weights that lie channels last: the same answers, and nothing is left behind."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from neurotest.target import Target
from neurotest.target.speed import channels_last, laid_channels_last, lies_channels_last


class Views(nn.Module):
    """As in many tutorials: a view of what the last convolution gives, which memory that lies channels last does not allow."""

    def __init__(self, channels: int, reshapes: bool) -> None:
        super().__init__()
        self.one, self.two = nn.Conv2d(channels, 4, 3, padding=1), nn.Conv2d(4, 5, 3, padding=1)
        self.out, self.reshapes = nn.Linear(5 * 6 * 6, 3), reshapes

    def forward(self, x: Tensor) -> Tensor:
        maps = self.two(torch.relu(self.one(x)))
        return self.out(maps.flatten(1) if self.reshapes else maps.view(len(x), -1))


def network(channels: int, reshapes: bool) -> tuple[Target, Tensor]:
    torch.manual_seed(0)
    return Target(Views(channels, reshapes).eval(), shape=(channels, 6, 6)), torch.rand(3, channels, 6, 6)


@pytest.mark.parametrize("channels", [1, 3])
def test_the_answers_are_the_same_and_the_weights_lie_as_before_afterwards(channels: int) -> None:
    target, x = network(channels, reshapes=True)
    before, data = target.logits(x), [weight.data for weight in target.module.parameters()]
    with channels_last(target, x) as fits:
        assert fits
        assert lies_channels_last(target)
        maps = target.module.one(laid_channels_last(x))
        assert maps.is_contiguous(memory_format=torch.channels_last)
        assert not maps.is_contiguous()  # grey images too
        assert torch.allclose(target.logits(laid_channels_last(x)), before, atol=1e-5)
    assert not lies_channels_last(target)
    assert all(a is b.data or a.data_ptr() == b.data_ptr() for a, b in zip(data, target.module.parameters(), strict=True))
    assert all(weight.requires_grad for weight in target.module.parameters())


@pytest.mark.parametrize("channels", [1, 3])
def test_a_network_that_takes_views_is_left_as_it_is(channels: int) -> None:
    target, x = network(channels, reshapes=False)
    before = target.logits(x)
    with channels_last(target, x) as fits:
        assert not fits
        assert not lies_channels_last(target)
        assert torch.equal(target.logits(x), before)


def test_a_network_that_says_something_else_is_left_as_it_is() -> None:
    class Strided(nn.Conv2d):
        def forward(self, x: Tensor) -> Tensor:
            out = super().forward(x)
            return out.as_strided(out.shape, out.new_empty(out.shape).stride())  # reads memory as if it lay the other way

    torch.manual_seed(0)
    target = Target(nn.Sequential(Strided(2, 4, 3), nn.Flatten(), nn.Linear(64, 3)).eval(), shape=(2, 6, 6))
    with channels_last(target, torch.rand(2, 2, 6, 6)) as fits:
        assert not fits


def test_what_is_no_image_is_laid_as_it_is() -> None:
    x = torch.rand(3, 5)
    assert laid_channels_last(x) is x
    colours = torch.rand(2, 3, 4, 5)
    assert torch.equal(laid_channels_last(colours), colours)
    assert torch.equal(laid_channels_last(colours[:, :1]), colours[:, :1])
