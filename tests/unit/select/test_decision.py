"""nss+: what mild changes do to the decision."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.refusals import refused
from torch import Tensor, nn

from neurotest.data.source import ArraySource
from neurotest.mutate.mild import CHANGES, MildMutations
from neurotest.select import select
from neurotest.select.decision import NSSPlus
from neurotest.target import Target


class Brightness(nn.Module):
    """Class 1 above a mean of one half, more surely the farther away."""

    def forward(self, x: Tensor) -> Tensor:
        mean = x.mean(dim=(1, 2, 3))
        return torch.stack([0.5 - mean, mean - 0.5], dim=1) * 20


def test_an_input_near_the_border_comes_before_one_far_away() -> None:
    x = np.stack([np.full((1, 8, 8), value, np.uint8) for value in (250, 129, 60, 5)])
    selection = select(Target(Brightness().eval(), shape=(1, 8, 8)), ArraySource(x), "nss+", 2)
    assert selection.indices.tolist() == [1, 2]


def test_it_equals_a_plain_loop() -> None:
    x = np.random.default_rng(0).integers(0, 256, (5, 1, 8, 8), dtype=np.uint8)
    net = Brightness().eval()
    selection = select(Target(net, shape=(1, 8, 8)), ArraySource(x), "nss+:3", 2)
    for i in range(5):
        one = torch.from_numpy(x[i : i + 1]).float() / 255
        predicted = int(net(one).argmax())
        lost = [
            1 - float(net(changed).double().softmax(1)[0, predicted])
            for changed in MildMutations(rounding="pool").variants(one)[:3]
        ]
        assert selection.all_scores[i] == pytest.approx(np.mean(lost), abs=1e-6)


def test_changes_are_mild_and_eight_bit() -> None:
    x = torch.rand(2, 1, 8, 8)
    variants = MildMutations(rounding="pool").variants(x)
    assert len(variants) == len(CHANGES) == 16
    for one in variants:
        assert one.shape == x.shape
        assert torch.equal((one * 255).round() / 255, one)


@pytest.mark.parametrize("mutants", [0, 17, 2.5])
def test_bad_settings(mutants: object) -> None:
    with refused("out-of-range", "mutants"):
        NSSPlus(mutants=mutants)  # type: ignore[arg-type]


def test_vectors_are_refused() -> None:
    net = nn.Sequential(nn.Linear(3, 2)).eval()
    with refused("unsuitable", "shape"):
        select(Target(net, shape=(3,)), ArraySource(np.zeros((4, 3), np.float32)), "nss+", 2)
