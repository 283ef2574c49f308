"""The diversity regulariser: how far the activations of chosen layers are from all being equal."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from neurotest.errors import BadInput
from neurotest.generate.gradient.checks import real
from neurotest.target import Want

FLOOR = 1e-20  # added to every share, as published: a silent neuron costs 46 nats and not infinity
LEAST = 1e-12  # the smallest sum, for layers in which nothing is active


def divergence(values: Tensor) -> Tensor:
    """KL(uniform || shares of the positive parts) along the last axis, in nats: 0 when all are equally active.

    With p = a / s + floor this is log s - mean log(a + floor s) - log n: written so, no map is divided.

    >>> float(divergence(torch.tensor([1.0, 3.0])))  # log(1/2) - (log(1/4) + log(3/4)) / 2
    0.1438410...
    """
    active = values.relu()
    total = active.sum(-1, keepdim=True).clamp_min(LEAST)
    return total.squeeze(-1).log() - (active + FLOOR * total).log().mean(-1) - math.log(values.shape[-1])


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

    def __call__(self, recorded: Mapping[str, Tensor]) -> Tensor:
        """Divergence of each input, (n,); with reduce='batch' of the batch, ()."""
        found = [self._of(values) for values in recorded.values()]
        return torch.stack(found).mean(0)

    def _of(self, values: Tensor) -> Tensor:
        if self.reduce == "instance":
            return divergence(values.flatten(1))  # (n, units) -> (n,)
        if values.ndim == 2:
            return divergence(values.relu().sum(0))  # dense layers are summed over the batch,
        return divergence(values.flatten())  # maps are one long vector
