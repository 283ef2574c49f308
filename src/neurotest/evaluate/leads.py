"""How far a class leads others at a point, the gradients of these leads, and the nearest input of another class. In [0, 1]."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from neurotest.errors import BadInput
from neurotest.generate.gradient.attacks import CW, PGD, Attack
from neurotest.generate.gradient.engine import NOT_FINITE, ZERO_GRADIENT, Engine
from neurotest.mutate.unit import from_unit
from neurotest.target import Target
from neurotest.target.speed import lies_channels_last

Norm = Literal["l1", "l2", "linf"]
ORDERS: dict[str, float] = {"l1": 1, "l2": 2, "linf": math.inf}
DUAL: dict[str, float] = {"l1": math.inf, "l2": 2, "linf": 1}
STEPS, OVERSHOOT = 30, 1.02  # towards the border; a step ends just behind it
RIVALS = 10  # classes with the largest logits, where there are many
HALVINGS = 14
EPS = (8 / 255, 32 / 255, 96 / 255)
ATTACKS: tuple[Attack, ...] = (*(PGD(eps=eps, step=eps / 8, steps=20) for eps in EPS), CW(steps=100, searches=3))


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


@dataclass(frozen=True, eq=False)
class _Nearest:
    """Of n inputs: x (n, *shape) in [0, 1], distance (n,) infinite where nothing was found, and by what (n,)."""

    x: Tensor
    distance: NDArray[np.float64]
    by: list[str]
    forwards: int
    backwards: int


def nearest(
    leads: Leads, u: Tensor, y: Tensor, norm: Norm, *, positions: Sequence[int], seed: int = 0, towards: int | None = None
) -> _Nearest:
    """The nearest inputs of another class (or of the class `towards`) that the attacks find: an upper bound, and a true one.

    Steps to the nearest border as if borders were planes (DeepFool's, in the norm asked for) and, unless there is one class to
    reach, PGD at three radii and CW; whatever fails is moved back towards its input by halving until it would no longer fail.
    """
    best, best_size = u.clone(), torch.full((len(u),), torch.inf).to(u)
    by = ["none"] * len(u)
    with Engine(leads.target, levels=None) as engine:

        def offer(x: Tensor, name: str) -> None:
            nonlocal best, best_size
            x, size = _closer(engine, u, x, y, norm, towards)
            better = size < best_size
            best = torch.where(_wide(better, u), x, best)
            best_size = torch.where(better, size, best_size)
            for row in better.nonzero()[:, 0].tolist():
                by[row] = name

        if not y.is_floating_point():  # a quantity has no borders
            offer(_to_border(leads, u, y, norm, towards), "deepfool")
        for attack in ATTACKS if towards is None else ():
            try:
                offer(attack.run(engine, u, y, positions=positions, random=seed).detach(), attack.name)
            except BadInput:  # no gradient, or one that is not finite: the others may have found something
                continue
    return _Nearest(best, best_size.cpu().double().numpy(), by, engine.forwards, engine.backwards)


def _wide(mask: Tensor, like: Tensor) -> Tensor:
    return mask.view(-1, *[1] * (like.ndim - 1))


def _reached(engine: Engine, x: Tensor, y: Tensor, towards: int | None) -> Tensor:
    """(n,) which of x have another class, or the one that is asked for."""
    out = engine.predict(x)
    return engine.wrong(out, y) if towards is None else out.argmax(1) == towards


def _closer(engine: Engine, u: Tensor, x: Tensor, y: Tensor, norm: Norm, towards: int | None) -> tuple[Tensor, Tensor]:
    """x moved back towards u as far as it still fails, and its distance; infinite where x itself does not fail."""
    fails = _reached(engine, x, y, towards)
    low, high = torch.zeros(len(u)).to(u), torch.ones(len(u)).to(u)
    for _ in range(HALVINGS if bool(fails.any()) else 0):
        middle = (low + high) / 2
        still = _reached(engine, u + _wide(middle, u) * (x - u), y, towards)
        low, high = torch.where(still, low, middle), torch.where(still, middle, high)
    moved = u + _wide(high, u) * (x - u)
    fails &= _reached(engine, moved, y, towards)
    size = sizes(moved - u, ORDERS[norm])
    return moved, torch.where(fails & (size > 0), size, torch.inf)


def _to_border(leads: Leads, u: Tensor, y: Tensor, norm: Norm, towards: int | None) -> Tensor:
    """Each input moved to the border of the class that would be nearest if leads were linear, again and again."""
    x, active = u.clone(), torch.arange(len(u), device=u.device)
    for _ in range(STEPS):
        part, own = x[active], y[active]
        rivals = _rivals(leads, part, own, towards)  # (rivals, n)
        logits, slopes = leads.slopes(part, own, rivals)
        lead = logits.gather(1, own[:, None]).T - logits.gather(1, rivals.T).T  # (rivals, n)
        slope_sizes = sizes(slopes, DUAL[norm], 2).clamp_min(1e-12)
        which = (lead.clamp_min(0) / slope_sizes).argmin(0)
        rows = torch.arange(len(part), device=u.device)
        step = _step(part, slopes[which, rows], lead[which, rows].clamp_min(1e-4), slope_sizes[which, rows], norm)
        x[active] = (part - OVERSHOOT * step).clamp(0, 1)
        out = leads.logits(x[active]).argmax(1)
        active = active[out == own if towards is None else out != towards]
        if not len(active):
            break
    return x


def _rivals(leads: Leads, part: Tensor, own: Tensor, towards: int | None) -> Tensor:
    if towards is not None:
        return torch.full((1, len(part)), towards, device=part.device)
    logits = leads.logits(part).scatter(1, own[:, None], -torch.inf)
    return logits.topk(min(RIVALS, logits.shape[1] - 1), 1).indices.T


def _step(x: Tensor, slope: Tensor, lead: Tensor, size: Tensor, norm: Norm) -> Tensor:
    """The smallest change, by the norm, that takes `lead` away if it falls as `slope` says; taken from x."""
    length = _wide(lead / size, slope)
    if norm == "l2":
        return length * slope / _wide(size, slope)
    if norm == "linf":
        return length * slope.sign()
    return _sparse_step(x.flatten(1), slope.flatten(1), OVERSHOOT * lead[:, None]).view_as(x) / OVERSHOOT


def _sparse_step(x: Tensor, slope: Tensor, lead: Tensor) -> Tensor:
    """By L1: the steepest values are moved as far as the input range lets them, one after the other, until it is enough."""
    room = torch.where(slope > 0, x, 1 - x)
    gain, order = (slope.abs() * (room > 0)).sort(1, descending=True)
    room = room.gather(1, order)
    before = (gain * room).cumsum(1) - gain * room
    share = ((lead - before) / (gain * room).clamp_min(1e-12)).clamp(0, 1)
    return torch.zeros_like(x).scatter(1, order, share * room) * slope.sign()
