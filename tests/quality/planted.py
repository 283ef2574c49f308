"""A planted fault region that only many small steps in one direction lead to: how soon does a guide get there?

The target answers wrongly once an image is bright throughout. Mutations make it a little brighter or darker, and five times as
often change a pixel that does not matter: a walk that takes anything is led astray, one that keeps what is new arrives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from neurotest.data.source import ArraySource
from neurotest.generate.fuzz import Budget, Fuzzer, Settings, build_guide, choose_seeds
from neurotest.measure.context import Context
from neurotest.mutate.base import Family, RuleMutations
from neurotest.mutate.operators import Add
from neurotest.mutate.rules import _PixelChange
from neurotest.mutate.validity import Validity
from neurotest.oracles import build_oracles
from neurotest.stats.comparison import a12
from neurotest.target import Target

MOST = 2500  # forward passes
DESIGN = range(5)  # seeds on which settings were looked at
REPORT = range(100, 110)  # seeds that are reported
# As in the study of fuzzing; thresholds in the units of this network's logits, which lie between 0 and 1.
GUIDES = (
    "random", "nc:0.75", "kmnc:100", "nbc", "snac", "tknc:2", "tknp:2", "cc:0.004", "lsc", "dsc", "mdsc", "nlc", "deephunter",
    "tensorfuzz:0.004",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Steps(RuleMutations):
    """A little brighter, a little darker, and five times as often a single pixel, which leads nowhere."""

    def _families(self) -> Sequence[Family]:
        return (
            Family("brightness", Add(), ((-24.0,), (24.0,)), (0.0,)),
            Family("pixels", _PixelChange(), ((1.0,),) * 10, (0.0,), seeded=True),
        )


class Planted(nn.Module):
    """Class 0 or 1 by which half is brighter; class 2 once the mean is above 0.8."""

    def __init__(self) -> None:
        super().__init__()
        self.halves = nn.Linear(64, 3)
        self.act = nn.ReLU()
        self.out = nn.Linear(3, 3)
        with torch.no_grad():
            left, right = torch.zeros(8, 8), torch.zeros(8, 8)
            left[:, :4] = right[:, 4:] = 1 / 32
            mean = torch.full((8, 8), 1 / 64)
            self.halves.weight.copy_(torch.stack([left, right, mean]).flatten(1))
            self.halves.bias.copy_(torch.tensor([0.0, 0.0, -0.8]))
            self.out.weight.copy_(torch.tensor([[1.0, 0, 0], [0, 1.0, 0], [0, 0, 1000.0]]))
            self.out.bias.zero_()

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.out(self.act(self.halves(x.flatten(1))))
        return out


def arrives(guide: str, seed: int, priority: str | None = None) -> int:
    """Forward passes until the planted region is entered; MOST if it is not."""
    target = Target(Planted().eval(), shape=(1, 8, 8))
    x = np.random.default_rng(0).integers(60, 120, (20, 1, 8, 8), dtype=np.uint8)
    x[:10, :, :, :4] += 60
    x[10:, :, :, 4:] += 60
    source = ArraySource(x, np.repeat([0, 1], 10))
    judges = build_oracles(target, "label")
    seeds = choose_seeds(target, source, judges)
    built = build_guide(guide)
    state = built.start(Context(target=target, train=source), source)
    options: dict[str, Any] = {key: value for key, value in built.defaults.items() if key in ("priority", "accept")}
    options |= {"priority": priority} if priority else {}
    settings = Settings(
        mutations=Steps(choice="rule"), validity=Validity(beta=1.0), max_depth=30, batch=32, seed=seed, tries=16, **options
    )  # fmt: skip
    with Fuzzer(target, seeds, state, judges, settings, Budget(faults=1, forwards=MOST)) as fuzzer:
        for _ in fuzzer.run():
            pass
        return fuzzer.tally.forwards if fuzzer.tally.faults else MOST


def measure(guides: Sequence[str] = GUIDES, seeds: Sequence[int] = REPORT) -> list[dict[str, Any]]:
    """How soon each guide gets there, beside random with the same choice of seeds; quicker in nine of ten comparisons helps."""
    random: dict[str, list[int]] = {}
    rows = []
    for guide in guides:
        priority = str(build_guide(guide).defaults.get("priority", "uses"))
        if priority not in random:
            random[priority] = [arrives("random", seed, priority) for seed in seeds]
        taken = random[priority] if guide == "random" else [arrives(guide, seed) for seed in seeds]
        sooner = a12([-n for n in taken], [-n for n in random[priority]])
        rows.append(
            {
                "guide": guide, "seeds chosen": priority, "median": float(np.median(taken)), "least": min(taken),
                "most": max(taken), "arrived": sum(n < MOST for n in taken), "of": len(taken),
                "random median": float(np.median(random[priority])), "sooner than random": sooner,
                "helps": guide != "random" and sooner >= 0.9,
            }
        )  # fmt: skip
    return rows
