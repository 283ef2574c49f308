"""The diversity regulariser, and gradients of a target with it from the same forward pass. Inputs here are in [0, 1]."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from neurotest.checks import Settings, number, one_of
from neurotest.devices import exact
from neurotest.errors import BadInput
from neurotest.levels import EIGHT, Levels
from neurotest.mutate.unit import from_unit
from neurotest.target import Probe, Target, Want
from neurotest.target.outputs import Bins

FLOOR = 1e-20  # added to every share, as published: a silent neuron costs 46 nats and not infinity
LEAST_SUM = 1e-12  # the smallest sum, for layers in which nothing is active


class _Divergence(torch.autograd.Function):
    """With its gradient written down: what autograd would record costs a third of a step when every layer is regularised."""

    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        ctx.save_for_backward(values)
        active = values.relu()
        total = active.sum(-1, keepdim=True).clamp_min(LEAST_SUM)
        logs = active.add_(FLOOR * total).log_()
        value: Tensor = total.squeeze(-1).log() - logs.mean(-1) - math.log(values.shape[-1])
        return value

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        (values,) = ctx.saved_tensors
        rows = values.reshape(-1, values.shape[-1])
        return _slope(rows, torch.empty_like(rows), 1.0).view(values.shape) * grads[0].unsqueeze(-1)


def _slope(values: Tensor, out: Tensor, scale: float, direction: str = "uniform") -> Tensor:
    """The gradient of `scale` x divergence of each row (rows, n), written to `out` without any other memory of that size.

    1/s - (1/n) / (a + f s) - (f/n) sum 1 / (a + f s) where something is active, for activations a of sum s and the floor f. In
    the last term only silent neurons count, 1 / (f s) each: together they take their share off 1/s. Signs are added up, because
    counting truth values is several times slower.
    """
    if direction == "shares":
        return _slope_of_shares(values, out, scale)
    n = values.shape[1]
    total = torch.clamp_min(values, 0, out=out).sum(1, keepdim=True).clamp_min_(LEAST_SUM)
    common = torch.addcdiv(out.new_zeros(()), out.sign_().sum(1, keepdim=True), total, value=scale / n)
    # Where nothing is active this gives anything, infinity included; the last line takes 0 there.
    torch.add(total.mul_(-FLOOR * n / scale), values, alpha=-n / scale, out=out).reciprocal_().add_(common)
    torch.ops.aten.threshold_backward.grad_input(out, values, 0, grad_input=out)
    return out


def _slope_of_shares(values: Tensor, out: Tensor, scale: float) -> Tensor:
    """Of KL(p || uniform): (log p - sum p log p) / s where something is active, for shares p of the sum s."""
    total = torch.clamp_min(values, 0, out=out).sum(1, keepdim=True).clamp_min_(LEAST_SUM)
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


def _divergence(values: Tensor, direction: str = "uniform") -> Tensor:
    """KL(uniform || shares of the positive parts) along the last axis, in nats: 0 when all are equally active. With
    direction="shares" KL(shares || uniform), which silent neurons cost nothing by themselves.

    With p = a / s + floor this is log s - mean log(a + floor s) - log n: written so, no map is divided.

    >>> float(_divergence(torch.tensor([1.0, 3.0])))  # log(1/2) - (log(1/4) + log(3/4)) / 2
    0.1438410...
    """
    if direction == "shares":
        active = values.relu()
        shares = active / active.sum(-1, keepdim=True).clamp_min(LEAST_SUM)
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
        parts = [_divergence(self.rows(self.joined(values)), self.direction) for values in recorded.values()]
        divergences = torch.stack(parts).sum(0)
        return divergences[0] if self.coupled else divergences

    def rows(self, values: Tensor) -> Tensor:
        """What one divergence is taken of, row by row."""
        return values.reshape(1, -1) if self.coupled else values.flatten(1)

    def joined(self, values: Tensor) -> Tensor:
        """What units put out over the batch: their sum; in the study's code maps are one long vector instead."""
        summed = self.coupled and (self.reduce != "batch" or values.ndim == 2)
        return values.relu().sum(0) if summed else values


class _DiversityGradient:
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
        gradient = _slope(rows, self._buffer(layer, rows), self.scale, self.diversity.direction)
        result: Tensor = _KnownGradient.apply(joined, gradient, not self.diversity.attack_first)  # type: ignore[no-untyped-call]
        return result

    def _buffer(self, layer: str, like: Tensor) -> Tensor:
        buffer = self._buffers.get(layer)
        if buffer is None or buffer.shape != like.shape or buffer.dtype != like.dtype or buffer.device != like.device:
            buffer = self._buffers[layer] = torch.empty(like.shape, dtype=like.dtype, device=like.device)
        return buffer


ZERO_GRADIENT = (
    "every gradient of the target towards its input is zero: it rounds, thresholds or detaches somewhere (or saturates), "
    "so gradient attacks are blind here; use `neurotest fuzz`, or attack the network without that step."
)
NOT_FINITE = "a gradient of the target towards its input is not finite (NaN or infinity): gradient attacks cannot be used on it."
FLAT_INPUTS = 20  # inputs after which a network whose gradient is zero at all of them is refused


class Passes:
    """Counts forward and backward passes, and refuses gradients that are useless."""

    targets: tuple[Target, ...]

    def __init__(self) -> None:
        self.forwards = self.backwards = 0
        self.starts = 0  # inputs whose first gradient was taken
        self.flat = 0  # and of them, those where it is zero everywhere

    def backward(self, objective: Tensor, u: Tensor, *, first: bool = False, keep: bool = False) -> Tensor:
        """The gradient of `objective` towards `u`, checked; `keep` leaves the graph for another."""
        self.backwards += len(u) * len(self.targets)
        gradient = self.gradient_of(objective, u, keep=keep)
        if gradient is None:
            raise BadInput("no-gradient", "zero", ZERO_GRADIENT)
        size = gradient.flatten(1).abs().amax(1)
        if not bool(size.isfinite().all()):
            raise BadInput("not-finite", "gradient", NOT_FINITE)
        if first:
            self.starts += len(u)
            self.flat += int((size == 0).sum())
        return gradient

    @staticmethod
    def gradient_of(objective: Tensor, u: Tensor, *, keep: bool = False) -> Tensor | None:
        """None where the objective does not depend on u."""
        if not objective.requires_grad:
            return None
        return torch.autograd.grad(objective, u, allow_unused=True, retain_graph=keep)[0]

    def refuse_flat(self, *, last: bool = True) -> None:
        """Refuse targets whose gradient was zero at every input so far; before the last batch a few are not enough."""
        if self.flat == self.starts and self.starts >= (1 if last else FLAT_INPUTS):
            raise BadInput("no-gradient", "zero", ZERO_GRADIENT)

    def counts(self) -> NDArray[np.int64]:
        """All counters, for `restore`."""
        return np.array([self.forwards, self.backwards, self.starts, self.flat], dtype=np.int64)

    def restore(self, counts: NDArray[np.int64]) -> None:
        self.forwards, self.backwards, self.starts, self.flat = (int(n) for n in counts)


def moved(values: Tensor, before: Tensor, bins: Bins) -> Tensor:
    """(n,) how far regression values have moved. Where they have not, both sides are equally far: towards the middle there is
    more room."""
    middle = (bins.low + bins.high) / 2
    away = (values - before).detach().sign()
    return (values - before) * torch.where(away != 0, away, (middle - before).sign() + (before == middle).to(before))


@dataclass(frozen=True)
class _Output:
    """Of one forward pass: logits (n, classes) and a 0 that carries the gradient of the regulariser, until the next pass."""

    logits: Tensor
    penalty: Tensor | None


class Engine(Passes):
    """Runs the target for an attack. A context manager."""

    def __init__(self, target: Target, diversity: Diversity | None = None, *, levels: Levels | None = EIGHT) -> None:
        super().__init__()
        self.target, self.targets = target, (target,)
        self.levels = levels
        self.diversity = diversity if diversity is not None and diversity.weight > 0 else None
        self._regulariser: _DiversityGradient | None = None
        self._probe = Probe(target, grad=True)
        if self.diversity is not None:
            self._regulariser = _DiversityGradient(self.diversity)
            self._probe = Probe(target, self.diversity.want, grad=True, record=self._regulariser.record)

    def __enter__(self) -> Engine:
        self._probe.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._probe.__exit__(*error)

    def forward(self, u: Tensor, y: Tensor, sign: int = 1) -> _Output:
        """Logits, and `sign` x the weighted divergence of the same pass (only its gradient)."""
        self.forwards += len(u)
        if self._regulariser is None:
            return _Output(self._probe(from_unit(u, self.target.bounds)).logits, None)
        diversity = self._regulariser.diversity
        # One batch is one term in the study's code, beside a mean: its share of a sum over n inputs is n times that.
        self._regulariser.scale = sign * diversity.weight * (len(u) if diversity.coupled else 1)
        trace = self._probe(from_unit(u, self.target.bounds))
        with torch.enable_grad():
            penalty = torch.stack(list(trace[diversity.want].values()))  # (layers, n), or (layers, 1) of a batch
            if diversity.attack_first:
                penalty = penalty * self.wrong(trace.logits, y)
            return _Output(trace.logits, penalty.sum())

    def lead(self, logits: Tensor, y: Tensor) -> Tensor:
        """(n,) how far the class y leads the best other; of a regression value y, how much farther it may move."""
        if (bins := self.target.bins) is None or not y.is_floating_point():
            return logits.gather(1, y[:, None])[:, 0] - logits.scatter(1, y[:, None], -torch.inf).amax(1)
        return bins.tolerance - moved(bins.values(logits), y.to(logits), bins)

    def wrong(self, logits: Tensor, y: Tensor) -> Tensor:
        """(n,) whether the class is another one than y, or the regression value farther from y than the tolerance."""
        if (bins := self.target.bins) is None or not y.is_floating_point():
            return logits.argmax(1) != y
        values = bins.values(exact(logits))
        return ((values - exact(y)).abs() > bins.tolerance).to(logits.device)

    def _objective(self, logits: Tensor, y: Tensor) -> Tensor:
        """What an attack climbs. In float64: a confident network's cross-entropy is constant in float32 long before it is."""
        if (bins := self.target.bins) is None or not y.is_floating_point():
            scores = exact(logits)
            return torch.nn.functional.cross_entropy(scores, y.to(scores.device), reduction="sum").to(logits)
        values = bins.values(exact(logits))
        return (moved(values, exact(y), bins).sum() / bins.width).to(logits)

    def gradient(self, u: Tensor, y: Tensor, *, first: bool = False) -> Tensor:
        """Of (cross-entropy - lambda x divergence) towards u; inputs are independent unless they are coupled. Of a regression
        value y it is the distance from it, in bins, that counts instead of the cross-entropy.

        Where they are independent, photographs go through a large network in parts.
        """
        coupled = self.diversity is not None and self.diversity.coupled
        if not coupled and (most := self.target.graph(u)) < len(u):
            parts = zip(u.split(most), y.split(most), strict=True)
            return torch.cat([self.gradient(part, labels, first=first) for part, labels in parts])
        u = u.detach().requires_grad_()
        output = self.forward(u, y, -1)
        with torch.enable_grad():
            objective = self._objective(output.logits, y)
            if output.penalty is not None:
                objective = objective + output.penalty
        return self.backward(objective, u, first=first)

    def quantise(self, u: Tensor, seed: Tensor, eps: float | None = None) -> Tensor:
        """What will be saved: on the levels of 8 or 16 bits, still within eps of the seed; floating point as it is."""
        if (levels := self.levels) is None:
            return u.clamp(0, 1)
        base = (seed * levels.steps).round()
        change = (u * levels.steps - base).round()
        if eps is not None:
            most = int(eps * levels.steps + 1e-6)  # rounding to the nearest could leave the ball by half a level
            change = change.clamp(-most, most)
        return (base + change).clamp(0, levels.highest).div(levels.steps)

    def quantise_through(self, x: Tensor, seed: Tensor) -> Tensor:
        """Exactly what is saved of x, with x's gradient."""
        return self.quantise(x.detach(), seed) + (x - x.detach())

    def predict(self, u: Tensor) -> Tensor:
        """Logits without a graph."""
        self.forwards += len(u)
        with torch.no_grad():
            return self.target.logits(from_unit(u, self.target.bounds))
