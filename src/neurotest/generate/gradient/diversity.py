"""The diversity regulariser: how far the activations of chosen layers are from all being equal."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from neurotest.errors import BadInput
from neurotest.generate.gradient.checks import real
from neurotest.target import Want

FLOOR = 1e-20  # added to every share, as published: a silent neuron costs 46 nats and not infinity
LEAST = 1e-12  # the smallest sum, for layers in which nothing is active


class _Divergence(torch.autograd.Function):
    """With its gradient written down: what autograd would record costs a third of a step when every layer is looked at."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, told: bool) -> Tensor:
        ctx.save_for_backward(values)
        if not told:
            return values.new_zeros(values.shape[:-1])
        active = values.relu()
        total = active.sum(-1, keepdim=True).clamp_min(LEAST)
        logs = active.add_(FLOOR * total).log_()
        found: Tensor = total.squeeze(-1).log() - logs.mean(-1) - math.log(values.shape[-1])
        return found

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        """1/s - (1/n) / (a + f s) - (f/n) sum 1 / (a + f s) where something is active; a sum held at its least does not move.

        In the last term only silent neurons count, 1 / (f s) each: together they take their share off 1/s. Signs are added up,
        and silence is cut out at the end, because counting and filling by truth values is several times slower.
        """
        (values,) = ctx.saved_tensors
        active = values.relu()
        total, share = active.sum(-1, keepdim=True), active.sign().mean(-1, keepdim=True)
        held, grad = total.clamp_min(LEAST), grads[0].unsqueeze(-1)
        common = grad * (total >= LEAST) * share / held
        steep = active.add_(FLOOR * held).reciprocal_().mul_(grad / -values.shape[-1]).add_(common)
        return torch.ops.aten.threshold_backward(steep, values, 0), None


def divergence(values: Tensor, *, told: bool = True) -> Tensor:
    """KL(uniform || shares of the positive parts) along the last axis, in nats: 0 when all are equally active.

    With p = a / s + floor this is log s - mean log(a + floor s) - log n: written so, no map is divided. Who only needs its
    gradient says told=False, is spared the logarithms, and gets 0.

    >>> float(divergence(torch.tensor([1.0, 3.0])))  # log(1/2) - (log(1/4) + log(3/4)) / 2
    0.1438410...
    """
    found: Tensor = _Divergence.apply(values, told)  # type: ignore[no-untyped-call]
    return found


@dataclass(frozen=True, kw_only=True)
class Diversity:
    """What is subtracted from an attack's aim: `weight` (lambda) times the divergence of `layers` from equal activation.

    layers: one, several (globs, comma separated) or a preset; several count equally. reduce: `instance` looks at each input
    alone; `batch` couples the inputs of a batch, as the study's code does. attack_first: only inputs that already fail are made
    diverse, so that the regulariser takes nothing from the attack.
    """

    weight: float = 1.0
    layers: str = "pre_activation"
    reduce: Literal["instance", "batch"] = "instance"
    attack_first: bool = False

    def __post_init__(self) -> None:
        real("diversity", self.weight, 0, None, "the study uses 0 to 1e5")
        if self.reduce not in ("instance", "batch"):
            raise BadInput(f"reduce={self.reduce!r}: expected instance or batch.")
        if self.attack_first and self.reduce == "batch":
            raise BadInput("attack_first=True needs reduce='instance': a batch as a whole does not fail.")

    @property
    def want(self) -> Want:
        return Want(layers=self.layers, keep="map")

    def __call__(self, recorded: Mapping[str, Tensor], *, told: bool = True) -> Tensor:
        """Divergence of each input, (n,); with reduce='batch' of the batch, (). told=False: 0, with the right gradient."""
        found = [self._of(values, told) for values in recorded.values()]
        return torch.stack(found).mean(0)

    def _of(self, values: Tensor, told: bool) -> Tensor:
        if self.reduce == "instance":
            return divergence(values.flatten(1), told=told)  # (n, units) -> (n,)
        if values.ndim == 2:
            return divergence(values.relu().sum(0), told=told)  # dense layers are summed over the batch,
        return divergence(values.flatten(), told=told)  # maps are one long vector
