"""Gradients of a target with the regulariser from the same forward pass. Inputs here are in [0, 1]."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from neurotest.devices import exact
from neurotest.errors import BadInput
from neurotest.generate.gradient.diversity import Diversity, DiversityGradient
from neurotest.levels import EIGHT, Levels
from neurotest.mutate.space import from_unit
from neurotest.target import Probe, Target
from neurotest.target.outputs import Bins

ZERO_GRADIENT = (
    "every gradient of the target towards its input is zero: it rounds, thresholds or detaches somewhere (or saturates), "
    "so gradient attacks are blind here; use `neurotest fuzz`, or attack the network without that step."
)
NOT_FINITE = "a gradient of the target towards its input is not finite (NaN or infinity): gradient attacks cannot be used on it."
ENOUGH = 20  # inputs after which a network whose gradient is zero at all of them is refused


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
        gradient = gradient_of(objective, u, keep=keep)
        if gradient is None:
            raise BadInput("no-gradient", "zero", ZERO_GRADIENT)
        size = gradient.flatten(1).abs().amax(1)
        if not bool(size.isfinite().all()):
            raise BadInput("not-finite", "gradient", NOT_FINITE)
        if first:
            self.starts += len(u)
            self.flat += int((size == 0).sum())
        return gradient

    def refuse_flat(self, *, last: bool = True) -> None:
        """Refuse targets whose gradient was zero at every input so far; before the last batch a few are not enough."""
        if self.flat == self.starts and self.starts >= (1 if last else ENOUGH):
            raise BadInput("no-gradient", "zero", ZERO_GRADIENT)

    def counts(self) -> NDArray[np.int64]:
        """All counters, for `restore`."""
        return np.array([self.forwards, self.backwards, self.starts, self.flat], dtype=np.int64)

    def restore(self, counts: NDArray[np.int64]) -> None:
        self.forwards, self.backwards, self.starts, self.flat = (int(n) for n in counts)


def gradient_of(objective: Tensor, u: Tensor, *, keep: bool = False) -> Tensor | None:
    """None where the objective does not depend on u."""
    if not objective.requires_grad:
        return None
    return torch.autograd.grad(objective, u, allow_unused=True, retain_graph=keep)[0]


def lead_of(logits: Tensor, y: Tensor) -> Tensor:
    """How far the class y leads the best other: (n,)."""
    return logits.gather(1, y[:, None])[:, 0] - logits.scatter(1, y[:, None], -torch.inf).amax(1)


def moved(values: Tensor, before: Tensor, bins: Bins) -> Tensor:
    """(n,) how far quantities have moved. Where they have not, both sides are equally far: towards the middle there is more
    room."""
    middle = (bins.low + bins.high) / 2
    away = (values - before).detach().sign()
    return (values - before) * torch.where(away != 0, away, (middle - before).sign() + (before == middle).to(before))


@dataclass(frozen=True)
class Output:
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
        self._regulariser: DiversityGradient | None = None
        self._probe = Probe(target, grad=True)
        if self.diversity is not None:
            self._regulariser = DiversityGradient(self.diversity)
            self._probe = Probe(target, self.diversity.want, grad=True, record=self._regulariser.record)

    def __enter__(self) -> Engine:
        self._probe.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._probe.__exit__(*error)

    def forward(self, u: Tensor, y: Tensor, sign: int = 1) -> Output:
        """Logits, and `sign` x the weighted divergence of the same pass (only its gradient)."""
        self.forwards += len(u)
        if self._regulariser is None:
            return Output(self._probe(from_unit(u, self.target.bounds)).logits, None)
        diversity = self._regulariser.diversity
        # One batch is one term in the study's code, beside a mean: its share of a sum over n inputs is n times that.
        self._regulariser.scale = sign * diversity.weight * (len(u) if diversity.coupled else 1)
        trace = self._probe(from_unit(u, self.target.bounds))
        with torch.enable_grad():
            penalty = torch.stack(list(trace[diversity.want].values()))  # (layers, n), or (layers, 1) of a batch
            if diversity.attack_first:
                penalty = penalty * self.wrong(trace.logits, y)
            return Output(trace.logits, penalty.sum())

    def lead(self, logits: Tensor, y: Tensor) -> Tensor:
        """(n,) how far the class y leads the best other; of a quantity y, how much farther it may move."""
        if (bins := self.target.bins) is None or not y.is_floating_point():
            return lead_of(logits, y)
        return bins.tolerance - moved(bins.values(logits), y.to(logits), bins)

    def wrong(self, logits: Tensor, y: Tensor) -> Tensor:
        """(n,) whether the class is another one than y, or the quantity farther from y than the tolerance."""
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
        """Of (cross-entropy - lambda x divergence) towards u; inputs are independent unless they are coupled. Of a quantity y
        it is the distance from it, in bins, that counts instead of the cross-entropy.

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
