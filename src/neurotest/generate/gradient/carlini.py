"""CW in the maximum norm: the least change that fails, by gradient descent in a box variable and a search for its weight."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from neurotest.checks import count
from neurotest.checks import fraction as real
from neurotest.errors import BadInput
from neurotest.generate.gradient.engine import Engine
from neurotest.registry import register

EDGE = 0.99  # tanh is flat at its ends, where black and white lie: the box is cut out of its middle and clipped
MOST = 1e10
SAME = 1e-6  # smaller changes are rounding


@register(
    "attack",
    "cw",
    paper="Carlini and Wagner, S&P 2017; Harel-Canada et al., FSE 2020 (maximum norm as one loss, regulariser)",
    cost="searches x steps forward and backward passes (1,000 by default)",
    differs="The box is the target's own bounds; the published code uses (-1, 1) for inputs in [0, 1]. Weight, best result, "
    "variable and optimiser belong to one input and one search: there the optimiser's memory is carried over and the weight "
    "never rises again after one success. 8-bit data are rounded inside the forward pass (gradients pass the rounding "
    "unchanged), so that a success is one of the saved image. A search is not cut short when the loss stops falling. A failure "
    "gives the clean image back (`on_failure=last`: the last one tried) and is never a success.",
    main="kappa",
    presets={"mnist-code": {"rate": 5e-4, "steps": 1000}, "cifar10-code": {"rate": 1e-2, "steps": 1000}},
)
@dataclass(frozen=True, kw_only=True)
class CW:
    """The smallest maximum change after which another class leads by at least kappa (in logits)."""

    name: ClassVar[str] = "cw"
    regularised: ClassVar[bool] = True
    kappa: float = 0.0
    rate: float = 0.01
    steps: int = 200
    searches: int = 5
    weight: float = 1e-3
    on_failure: Literal["clean", "last"] = "clean"

    def __post_init__(self) -> None:
        real("kappa", self.kappa, 0, None, "the study uses 0, 20 and 40")
        for name, value in (("rate", self.rate), ("weight", self.weight)):
            if real(name, value, 0, None, "0.01 and 0.001 are usual") == 0:
                raise BadInput(f"{name}=0: expected a number above 0.")
        count("steps", self.steps, "200 to 1000")
        count("searches", self.searches, "5 to 9")
        if self.on_failure not in ("clean", "last"):
            raise BadInput(f"on_failure={self.on_failure!r}: expected clean or last.")

    @property
    def radius(self) -> float | None:
        return None

    def run(self, engine: Engine, seed: Tensor, y: Tensor, *, positions: Sequence[int], random: int) -> Tensor:
        best = _Best(seed)
        low, high = torch.zeros(len(seed)).to(seed), torch.full((len(seed),), MOST).to(seed)
        weight = torch.full_like(low, self.weight)
        for number in range(self.searches):
            found = self._search(engine, seed, y, weight, best, first=number == 0)
            high = torch.where(found, torch.minimum(high, weight), high)
            low = torch.where(found, low, torch.maximum(low, weight))
            weight = torch.where(high < MOST, (low + high) / 2, weight * 10)
        return best.x if self.on_failure == "clean" else torch.where(_wide(best.norm.isfinite(), seed), best.x, best.last)

    def _search(self, engine: Engine, seed: Tensor, y: Tensor, weight: Tensor, best: _Best, *, first: bool) -> Tensor:
        """One descent from the seed; (n,) whether it succeeded anywhere."""
        free = torch.atanh((2 * seed - 1) * EDGE).detach().requires_grad_()
        adam = torch.optim.Adam([free], lr=self.rate)
        found = torch.zeros(len(seed), dtype=torch.bool, device=seed.device)
        for number in range(self.steps):
            with torch.enable_grad():
                inside = (free.tanh() / EDGE + 1) / 2
                tested = engine.settle(inside.detach(), seed) + (
                    inside - inside.detach()
                )  # exactly what is saved, with a gradient
                seen = engine.look(tested, y)
                norm = (inside - seed).flatten(1).abs().amax(1)
                lead = _lead(seen.logits, y)
                loss = (weight * (lead + self.kappa).clamp_min(0)).sum() + norm.sum()
                if seen.penalty is not None:
                    loss = loss + seen.penalty
            moved = tested.detach()
            found |= best.offer(moved, seed, seen.logits.argmax(1) != y, lead.detach() <= -self.kappa)
            if first and number == 0:  # the norm alone always has a gradient: whether the network has one is asked of the lead
                engine.back(lead.sum(), free, first=True, keep=True)
            free.grad = engine.back(loss, free)
            adam.step()
        return found


def _lead(logits: Tensor, y: Tensor) -> Tensor:
    """How far the class y leads the best other: (n,)."""
    own = logits.gather(1, y[:, None])[:, 0]
    others = logits.scatter(1, y[:, None], -torch.inf)
    return own - others.amax(1)


def _wide(mask: Tensor, like: Tensor) -> Tensor:
    return mask.view(-1, *[1] * (like.ndim - 1))


class _Best:
    """Per input the success of smallest maximum change so far; the seed itself until there is one."""

    def __init__(self, seed: Tensor) -> None:
        self.x, self.last = seed.clone(), seed.clone()
        self.norm = torch.full((len(seed),), torch.inf).to(seed)

    def offer(self, x: Tensor, seed: Tensor, wrong: Tensor, enough: Tensor) -> Tensor:
        """Take what is better; (n,) which of x succeed. What is unchanged is no success, whatever the network says of it."""
        norm = (x - seed).flatten(1).abs().amax(1)
        good = wrong & enough & (norm > SAME)
        better = good & (norm < self.norm)
        self.norm = torch.where(better, norm, self.norm)
        self.x = torch.where(_wide(better, x), x, self.x)
        self.last = x
        return good
