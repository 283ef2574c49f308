"""How far a class leads others at a point, the gradients of these leads, and points drawn in balls. Inputs are in [0, 1]."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from neurotest.errors import BadInput
from neurotest.generate.gradient.engine import NOT_FINITE, ZERO_GRADIENT
from neurotest.mutate.space import from_unit
from neurotest.target import Target
from neurotest.target.speed import lies_channels_last

Norm = Literal["l1", "l2", "linf"]
ORDERS: dict[str, float] = {"l1": 1, "l2": 2, "linf": math.inf}
DUAL: dict[str, float] = {"l1": math.inf, "l2": 2, "linf": 1}


class Leads:
    """Of one target: z_own - z_rival at every point, and their gradients, counting passes.

    vmap: all rivals in one backward pass; it falls back to one pass for each where torch cannot do that.
    """

    def __init__(self, target: Target, *, vmap: bool = False) -> None:
        self.target, self.vmap = target, vmap
        self.forwards = self.backwards = 0

    def logits(self, u: Tensor) -> Tensor:
        self.forwards += len(u)
        with torch.no_grad():
            return self.target.logits(from_unit(u, self.target.bounds))

    def slopes(self, u: Tensor, own: Tensor, rivals: Tensor) -> tuple[Tensor, Tensor]:
        """Logits (n, classes), and gradients (rivals, n, *shape) of z_own - z_rival; own (n,), rivals (rivals, n or 1)."""
        u = u.detach()
        if u.ndim == 4 and lies_channels_last(self.target):
            u = u.contiguous(memory_format=torch.channels_last)
        u.requires_grad_()
        self.forwards += len(u)
        with torch.enable_grad():
            logits = self.target.logits(from_unit(u, self.target.bounds))
        if not logits.requires_grad:
            raise BadInput("no-gradient", "zero", ZERO_GRADIENT)
        rivals = rivals.expand(-1, len(u))  # (rivals, n)
        self.backwards += rivals.numel()
        weights = torch.zeros(len(rivals), *logits.shape).to(logits)
        weights.scatter_(2, own.expand(len(rivals), -1)[..., None], 1)
        weights.scatter_add_(2, rivals[..., None], torch.full_like(weights[..., :1], -1))
        gradients = self._backward(logits, u, weights)
        if not bool(gradients.isfinite().all()):
            raise BadInput("not-finite", "gradient", NOT_FINITE)
        return logits.detach(), gradients

    def _backward(self, logits: Tensor, u: Tensor, weights: Tensor) -> Tensor:
        if self.vmap:
            try:
                (gradients,) = torch.autograd.grad(
                    logits, u, weights, is_grads_batched=True, retain_graph=True, allow_unused=True
                )
                return self._there(gradients)
            except RuntimeError:  # an operation that vmap does not know
                self.vmap = False
        last = len(weights) - 1
        parts = [
            self._there(torch.autograd.grad(logits, u, one, retain_graph=number < last, allow_unused=True)[0])
            for number, one in enumerate(weights)
        ]
        return torch.stack(parts)

    @staticmethod
    def _there(gradients: Tensor | None) -> Tensor:
        if gradients is None:
            raise BadInput("no-gradient", "zero", ZERO_GRADIENT)
        return gradients


def sizes(x: Tensor, order: float, dims: int = 1) -> Tensor:
    """Norms over all but the first `dims` dimensions."""
    flat = x.flatten(dims)
    if order == math.inf:
        return flat.abs().amax(-1)
    return flat.abs().sum(-1) if order == 1 else flat.square().sum(-1).sqrt()


def draw(n: int, shape: tuple[int, ...], norm: Norm, generator: torch.Generator) -> Tensor:
    """Points drawn evenly from the ball of radius 1 around 0: (n, *shape)."""
    width = math.prod(shape)
    if norm == "linf":
        points = 2 * torch.rand(n, width, generator=generator) - 1
    elif norm == "l2":
        points = torch.randn(n, width, generator=generator)
        points *= torch.rand(n, 1, generator=generator).pow(1 / width) / points.square().sum(1, keepdim=True).sqrt()
    else:  # exponential lengths over the sum of one more of them are spread evenly over the corner of the ball
        lengths = torch.empty(n, width + 1).exponential_(generator=generator)
        points = lengths[:, :width] / lengths.sum(1, keepdim=True)
        points *= 2 * torch.randint(0, 2, (n, width), generator=generator) - 1
    return points.view(n, *shape)
