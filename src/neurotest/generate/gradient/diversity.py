"""The diversity regulariser: how far the activations of chosen layers are from all being equal."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from neurotest.checks import Settings, number, one_of
from neurotest.errors import BadInput
from neurotest.target import Want

FLOOR = 1e-20  # added to every share, as published: a silent neuron costs 46 nats and not infinity
LEAST = 1e-12  # the smallest sum, for layers in which nothing is active


class _Divergence(torch.autograd.Function):
    """With its gradient written down: what autograd would record costs a third of a step when every layer is regularised."""

    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        ctx.save_for_backward(values)
        active = values.relu()
        total = active.sum(-1, keepdim=True).clamp_min(LEAST)
        logs = active.add_(FLOOR * total).log_()
        value: Tensor = total.squeeze(-1).log() - logs.mean(-1) - math.log(values.shape[-1])
        return value

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        (values,) = ctx.saved_tensors
        rows = values.reshape(-1, values.shape[-1])
        return slope(rows, torch.empty_like(rows), 1.0).view(values.shape) * grads[0].unsqueeze(-1)


def slope(values: Tensor, out: Tensor, scale: float, direction: str = "uniform") -> Tensor:
    """The gradient of `scale` x divergence of each row (rows, n), written to `out` without any other memory of that size.

    1/s - (1/n) / (a + f s) - (f/n) sum 1 / (a + f s) where something is active, for activations a of sum s and the floor f. In
    the last term only silent neurons count, 1 / (f s) each: together they take their share off 1/s. Signs are added up, because
    counting truth values is several times slower.
    """
    if direction == "shares":
        return _slope_of_shares(values, out, scale)
    n = values.shape[1]
    total = torch.clamp_min(values, 0, out=out).sum(1, keepdim=True).clamp_min_(LEAST)
    common = torch.addcdiv(out.new_zeros(()), out.sign_().sum(1, keepdim=True), total, value=scale / n)
    # Where nothing is active this gives anything, infinity included; the last line takes 0 there.
    torch.add(total.mul_(-FLOOR * n / scale), values, alpha=-n / scale, out=out).reciprocal_().add_(common)
    torch.ops.aten.threshold_backward.grad_input(out, values, 0, grad_input=out)
    return out


def _slope_of_shares(values: Tensor, out: Tensor, scale: float) -> Tensor:
    """Of KL(p || uniform): (log p - sum p log p) / s where something is active, for shares p of the sum s."""
    total = torch.clamp_min(values, 0, out=out).sum(1, keepdim=True).clamp_min_(LEAST)
    shares = out / total
    logs = out.div_(total).add_(FLOOR).log_()
    negative_entropy = torch.einsum("ij,ij->i", shares, logs).unsqueeze(1)
    torch.sub(logs, negative_entropy, out=out).mul_(scale / total)
    torch.ops.aten.threshold_backward.grad_input(out, values, 0, grad_input=out)
    return out


class _KnownGradient(torch.autograd.Function):
    """0 for each row of `gradient` (rows, n), with that gradient. unscaled: no row of it is multiplied later."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, gradient: Tensor, unscaled: bool) -> Tensor:
        ctx.gradient, ctx.shape, ctx.unscaled = gradient, values.shape, unscaled
        return gradient.new_zeros(len(gradient))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        gradient = ctx.gradient if ctx.unscaled else ctx.gradient * grads[0].unsqueeze(1)
        return gradient.view(ctx.shape), None, None


def divergence(values: Tensor, direction: str = "uniform") -> Tensor:
    """KL(uniform || shares of the positive parts) along the last axis, in nats: 0 when all are equally active. With
    direction="shares" KL(shares || uniform), which silent neurons cost nothing by themselves.

    With p = a / s + floor this is log s - mean log(a + floor s) - log n: written so, no map is divided.

    >>> float(divergence(torch.tensor([1.0, 3.0])))  # log(1/2) - (log(1/4) + log(3/4)) / 2
    0.1438410...
    """
    if direction == "shares":
        active = values.relu()
        shares = active / active.sum(-1, keepdim=True).clamp_min(LEAST)
        return (shares * (shares + FLOOR).log()).sum(-1) + math.log(values.shape[-1]) * (shares.sum(-1) > 0)
    result: Tensor = _Divergence.apply(values)  # type: ignore[no-untyped-call]
    return result


@dataclass(frozen=True, kw_only=True)
class Diversity(Settings):
    """What is subtracted from an attack's aim: `weight` (lambda) times the divergence of `layers` from equal activation.

    layers: one, several (globs, comma separated) or a preset; their divergences are added. reduce: `suite` (the default) looks at
    what each unit puts out summed over the inputs of a batch, which is what the study's coverage counts; `instance` at each input
    alone; `batch` is the study's code: dense layers summed over the batch, maps as one long vector. direction: `uniform` is
    KL(uniform || shares), as published, `shares` the other way round. attack_first: only inputs that already fail are made
    diverse, so that the regulariser takes nothing from the attack; each for itself.
    """

    weight: float = 1.0
    layers: str = "pre_activation"
    reduce: Literal["suite", "instance", "batch"] | None = None
    direction: Literal["uniform", "shares"] = "uniform"
    attack_first: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        number("diversity", self.weight, "the study uses 0 to 1e5", least=0)
        if self.reduce is not None:
            one_of("reduce", self.reduce, ("suite", "instance", "batch"))
        if self.attack_first and self.coupled:
            raise BadInput(
                "conflict", "attack_first", "attack_first=True needs reduce='instance': a batch as a whole does not fail."
            )

    @property
    def coupled(self) -> bool:
        """Whether one divergence is taken of a whole batch."""
        return self.reduce in ("suite", "batch") or (self.reduce is None and not self.attack_first)

    @property
    def want(self) -> Want:
        return Want(layers=self.layers, keep="map")

    def __call__(self, recorded: Mapping[str, Tensor]) -> Tensor:
        """Divergence of each input, (n,); where they are coupled, of the batch, ()."""
        parts = [divergence(self.rows(self.joined(values)), self.direction) for values in recorded.values()]
        divergences = torch.stack(parts).sum(0)
        return divergences[0] if self.coupled else divergences

    def rows(self, values: Tensor) -> Tensor:
        """What one divergence is taken of, row by row."""
        return values.reshape(1, -1) if self.coupled else values.flatten(1)

    def joined(self, values: Tensor) -> Tensor:
        """What units put out over the batch: their sum; in the study's code maps are one long vector instead."""
        summed = self.coupled and (self.reduce != "batch" or values.ndim == 2)
        return values.relu().sum(0) if summed else values


class DiversityGradient:
    """The regulariser where only its gradient is needed: it is computed as soon as the forward pass reaches a layer.

    Its buffers are overwritten by the next pass: new memory for every layer would cost as much as the arithmetic, and no
    layer's output is kept any longer than without the regulariser.
    """

    def __init__(self, diversity: Diversity) -> None:
        self.diversity = diversity
        self.scale = 1.0  # of the sum over inputs and layers
        self._buffers: dict[str, Tensor] = {}

    def record(self, layer: str, values: Tensor) -> Tensor:
        """For each row of a layer 0, with the gradient of `scale` x divergence; to be added up as it is, or row by row."""
        joined = self.diversity.joined(values)
        rows = self.diversity.rows(joined.detach())
        gradient = slope(rows, self._buffer(layer, rows), self.scale, self.diversity.direction)
        result: Tensor = _KnownGradient.apply(joined, gradient, not self.diversity.attack_first)  # type: ignore[no-untyped-call]
        return result

    def _buffer(self, layer: str, like: Tensor) -> Tensor:
        buffer = self._buffers.get(layer)
        if buffer is None or buffer.shape != like.shape or buffer.dtype != like.dtype or buffer.device != like.device:
            buffer = self._buffers[layer] = torch.empty(like.shape, dtype=like.dtype, device=like.device)
        return buffer
