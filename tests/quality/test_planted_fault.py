"""A fault is planted where only many small steps in one direction lead: guides that claim to help must get there sooner.

The target answers wrongly once an image is bright throughout. Mutations make it a little brighter or darker, and far
more often change a pixel that does not matter: a walk that takes anything is led astray, one that keeps what is new arrives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from neurotest.coverage.context import Context
from neurotest.data.source import ArraySource
from neurotest.generate.fuzz import Budget, Fuzzer, Settings, build_guide, choose_seeds
from neurotest.mutate.pixel import Add, PixelChange
from neurotest.mutate.rules import Family, Space
from neurotest.mutate.validity import Validity
from neurotest.oracles import court
from neurotest.target import Target

MOST = 2500  # forward passes
HELPING = {"tensorfuzz:0.004": 1500}  # and within how many forward passes they arrive


@dataclass(frozen=True, kw_only=True)
class Steps(Space):
    """A little brighter, a little darker, and five times as often a single pixel, which leads nowhere."""

    def _families(self) -> Sequence[Family]:
        return (
            Family("brightness", Add(), ((-24.0,), (24.0,)), (0.0,)),
            Family("pixels", PixelChange(), ((1.0,),) * 10, (0.0,), seeded=True),
        )


class Planted(nn.Module):
    """Class 0 or 1 by which half is brighter; class 2 once the mean is above 0.8."""

    def __init__(self) -> None:
        super().__init__()
        self.halves = nn.Linear(64, 3)
        self.act = nn.ReLU()
        self.out = nn.Linear(3, 3)
        with torch.no_grad():
            left = torch.zeros(8, 8)
            left[:, :4] = 1 / 32
            right = torch.zeros(8, 8)
            right[:, 4:] = 1 / 32
            mean = torch.full((8, 8), 1 / 64)
            self.halves.weight.copy_(torch.stack([left, right, mean]).flatten(1))
            self.halves.bias.copy_(torch.tensor([0.0, 0.0, -0.8]))
            self.out.weight.copy_(torch.tensor([[1.0, 0, 0], [0, 1.0, 0], [0, 0, 1000.0]]))
            self.out.bias.zero_()

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.out(self.act(self.halves(x.flatten(1))))
        return out


def arrives(guide: str, seed: int) -> int:
    """Forward passes until the planted region is entered; MOST if it is not."""
    target = Target(Planted().eval(), shape=(1, 8, 8))
    x = np.random.default_rng(0).integers(60, 120, (20, 1, 8, 8), dtype=np.uint8)
    x[:10, :, :, :4] += 60
    x[10:, :, :, 4:] += 60
    source = ArraySource(x, np.repeat([0, 1], 10))
    judges = court(target, "label")
    seeds = choose_seeds(target, source, judges)
    state = build_guide(guide).start(Context(target=target, train=source), source)
    settings = Settings(mutations=Steps(choice="rule"), validity=Validity(beta=1.0), max_depth=30, batch=32, seed=seed, tries=16)
    with Fuzzer(target, seeds, state, judges, settings, Budget(faults=1, forwards=MOST)) as fuzzer:
        for _ in fuzzer.run():
            pass
        return fuzzer.tally.forwards if fuzzer.tally.faults else MOST


@pytest.fixture(scope="module")
def random() -> list[int]:
    return [arrives("random", seed) for seed in range(2)]


@pytest.mark.parametrize(("guide", "within"), HELPING.items())
def test_guides_that_help_arrive_sooner_than_random(guide: str, within: int, random: list[int]) -> None:
    taken = [arrives(guide, seed) for seed in range(2)]
    assert max(taken) <= within
    assert np.mean(taken) < np.mean(random)
