"""FGSM, BIM and PGD: settings, and how each moves a batch. Inputs are in [0, 1]; eps is a share of the input range."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from neurotest import rng
from neurotest.checks import Settings, eps_share, setting
from neurotest.generate.gradient.engine import Engine
from neurotest.registry import register

STUDY = "Harel-Canada et al., Is Neuron Coverage a Meaningful Measure for Testing Deep Neural Networks?, FSE 2020 (regulariser)"
DIFFERS = (
    "Each input is attacked for itself: with the regulariser the published code couples the inputs of a batch "
    "(`--reduce batch` repeats that). The regulariser is taken from the attack's own forward pass, where the published code "
    "makes a second one. eps is a share of the input range. Results are put on the 8-bit grid, inside the ball, and tested again."
)


class Attack(Settings, ABC):
    """Settings of an attack; `run` moves seeds (n, *shape) in [0, 1] away from their class y."""

    name: ClassVar[str]
    regularised: ClassVar[bool] = True  # whether it can use the diversity regulariser

    @property
    def radius(self) -> float | None:
        """How far from its seed an output may lie, if there is a limit."""
        return None

    @abstractmethod
    def run(self, engine: Engine, seed: Tensor, y: Tensor, *, positions: Sequence[int], random: int) -> Tensor: ...


def ball(seed: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """The lowest and highest values within eps of the seed and within [0, 1]."""
    return (seed - eps).clamp_min(0), (seed + eps).clamp_max(1)


def climb(engine: Engine, u: Tensor, seed: Tensor, y: Tensor, *, eps: float, step: float, steps: int) -> Tensor:
    """Steps along the sign of the gradient, each brought back into the ball."""
    low, high = ball(seed, eps)
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
        return climb(engine, seed, seed, y, eps=self.eps, step=self.eps, steps=1)


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
        return climb(engine, self.start(seed, positions, random), seed, y, eps=self.eps, step=self.step, steps=self.steps)

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
