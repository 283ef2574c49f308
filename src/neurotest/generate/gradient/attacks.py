"""FGSM, BIM, PGD and CW: settings, and how each moves a batch. Inputs are in [0, 1]; eps is a share of the input range."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from neurotest import rng
from neurotest.checks import Settings, eps_share, setting
from neurotest.generate.gradient.engine import Engine
from neurotest.mutate.unit import SAME
from neurotest.registry import register

STUDY = "Harel-Canada et al., Is Neuron Coverage a Meaningful Measure for Testing Deep Neural Networks?, FSE 2020 (regulariser)"
DIFFERS = (
    "The regulariser looks at units summed over a batch, so that its inputs are attacked together (`--reduce instance`: each for "
    "itself); the published code sums dense layers only and takes maps as one long vector (`--reduce batch`). It comes from the "
    "attack's own forward pass, where the published code makes a second one. eps is a share of the input range. Results are put "
    "on the 8-bit grid, inside the ball, and tested again."
)


class Attack(Settings, ABC):
    """Settings of an attack; `run` moves seeds (n, *shape) in [0, 1] away from their class y or, where y is in floating point,
    from that regression value."""

    name: ClassVar[str]
    regularised: ClassVar[bool] = True  # whether it can use the diversity regulariser

    @property
    def radius(self) -> float | None:
        """How far from its seed an output may lie, if there is a limit."""
        return None

    @abstractmethod
    def run(self, engine: Engine, seed: Tensor, y: Tensor, *, positions: Sequence[int], random: int) -> Tensor: ...


def _climb(engine: Engine, u: Tensor, seed: Tensor, y: Tensor, *, eps: float, step: float, steps: int) -> Tensor:
    """Steps along the sign of the gradient, each brought back into the ball."""
    low, high = (seed - eps).clamp_min(0), (seed + eps).clamp_max(1)
    for number in range(steps):
        grad = engine.gradient(u, y, first=number == 0)
        u = torch.minimum(torch.maximum(u + step * grad.sign(), low), high).detach()
    return u


@dataclass(frozen=True, kw_only=True)
class _InBall(Attack):
    """Stays within eps of its seed."""

    eps: float = setting(0.1, read=eps_share)

    @property
    def radius(self) -> float | None:
        return self.eps


@register("attack", "fgsm", paper=f"Goodfellow et al., ICLR 2015; {STUDY}", cost="one step", differs=DIFFERS, main="eps")
class FGSM(_InBall):
    """One step of size eps along the sign of the gradient."""

    name: ClassVar[str] = "fgsm"

    def run(self, engine: Engine, seed: Tensor, y: Tensor, *, positions: Sequence[int], random: int) -> Tensor:
        return _climb(engine, seed, seed, y, eps=self.eps, step=self.eps, steps=1)


@register(
    "attack",
    "bim",
    paper=f"Kurakin et al., ICLR workshop 2017; {STUDY}",
    cost="one forward and one backward pass per step",
    differs=DIFFERS,
    main="eps",
)
class BIM(_InBall):
    """FGSM in small steps, each brought back to within eps of the seed and into the bounds."""

    name: ClassVar[str] = "bim"
    step: float = setting(0.01, read=eps_share)
    steps: int = setting(40, "10 to 1000 in papers")

    def run(self, engine: Engine, seed: Tensor, y: Tensor, *, positions: Sequence[int], random: int) -> Tensor:
        return _climb(engine, self.start(seed, positions, random), seed, y, eps=self.eps, step=self.step, steps=self.steps)

    def start(self, seed: Tensor, positions: Sequence[int], random: int) -> Tensor:
        return seed


@register(
    "attack",
    "pgd",
    paper=f"Madry et al., ICLR 2018; {STUDY}",
    cost="one forward and one backward pass per step",
    differs=DIFFERS
    + " The random start is clipped to the bounds and belongs to the seed, not to its place in a batch. The study "
    "takes 10 steps of .01 on MNIST, so that its eps of .2 and .3 is used by the random start only; ours takes 40.",
    main="eps",
    presets={"mnist-code": {"step": 0.01, "steps": 10}, "cifar10-code": {"step": 0.01, "steps": 1000}},
)
class PGD(BIM):
    """BIM from a random point within eps of the seed."""

    name: ClassVar[str] = "pgd"

    def start(self, seed: Tensor, positions: Sequence[int], random: int) -> Tensor:
        """Uniform in the ball; the draw is a function of the input's position, not of its batch."""
        streams = (rng.torch_stream("attack.start", random, int(position)) for position in positions)
        drawn = torch.stack([torch.rand(seed.shape[1:], generator=one) for one in streams]).to(seed)
        return (seed + (2 * drawn - 1) * self.eps).clamp(0, 1)


EDGE = 0.99  # tanh is flat at its ends, where black and white lie: the box is the middle of its range
MOST_WEIGHT = 1e10


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
class CW(Attack):
    """The smallest maximum change after which another class leads by at least kappa (in logits), or a regression value is farther
    off than the tolerance by at least kappa (in its unit; the study takes .05, .1 and .2 of steering angles)."""

    name: ClassVar[str] = "cw"
    kappa: float = setting(0.0, "the study uses 0, 20 and 40", least=0)
    rate: float = setting(0.01, "0.01 is usual", above=0)
    steps: int = setting(200, "200 to 1000")
    searches: int = setting(5, "5 to 9")
    weight: float = setting(1e-3, "0.001 is usual", above=0)
    on_failure: Literal["clean", "last"] = "clean"

    def run(self, engine: Engine, seed: Tensor, y: Tensor, *, positions: Sequence[int], random: int) -> Tensor:
        best = _Best(seed)
        low, high = torch.zeros(len(seed)).to(seed), torch.full((len(seed),), MOST_WEIGHT).to(seed)
        weight = torch.full_like(low, self.weight)
        for search in range(self.searches):
            success = self._search(engine, seed, y, weight, best, first=search == 0)
            high = torch.where(success, torch.minimum(high, weight), high)
            low = torch.where(success, low, torch.maximum(low, weight))
            weight = torch.where(high < MOST_WEIGHT, (low + high) / 2, weight * 10)
        return best.x if self.on_failure == "clean" else torch.where(_wide(best.norm.isfinite(), seed), best.x, best.last)

    def _search(self, engine: Engine, seed: Tensor, y: Tensor, weight: Tensor, best: _Best, *, first: bool) -> Tensor:
        """One descent from the seed; (n,) whether it succeeded anywhere."""
        free = torch.atanh((2 * seed - 1) * EDGE).detach().requires_grad_()
        adam = torch.optim.Adam([free], lr=self.rate)
        success = torch.zeros(len(seed), dtype=torch.bool, device=seed.device)
        for step in range(self.steps):
            with torch.enable_grad():
                inside = (free.tanh() / EDGE + 1) / 2
                tested = engine.quantise_through(inside, seed)
                output = engine.forward(tested, y)
                norm = (inside - seed).flatten(1).abs().amax(1)
                lead = engine.lead(output.logits, y)
                loss = (weight * (lead + self.kappa).clamp_min(0)).sum() + norm.sum()
                if output.penalty is not None:
                    loss = loss + output.penalty
            success |= best.offer(tested.detach(), seed, engine.wrong(output.logits, y), lead.detach() <= -self.kappa)
            if first and step == 0:  # the norm always has a gradient: whether the network has one shows in the lead
                engine.backward(lead.sum(), free, first=True, keep=True)
            free.grad = engine.backward(loss, free)
            adam.step()
        return success


def _wide(mask: Tensor, like: Tensor) -> Tensor:
    return mask.view(-1, *[1] * (like.ndim - 1))


class _Best:
    """Per input the success of smallest maximum change so far; the seed itself until there is one."""

    def __init__(self, seed: Tensor) -> None:
        self.x, self.last = seed.clone(), seed.clone()
        self.norm = torch.full((len(seed),), torch.inf).to(seed)

    def offer(self, x: Tensor, seed: Tensor, wrong: Tensor, enough: Tensor) -> Tensor:
        """Take what is better; (n,) which of x succeed. An unchanged input does not succeed."""
        norm = (x - seed).flatten(1).abs().amax(1)
        success = wrong & enough & (norm > SAME)
        better = success & (norm < self.norm)
        self.norm = torch.where(better, norm, self.norm)
        self.x = torch.where(_wide(better, x), x, self.x)
        self.last = x
        return success
