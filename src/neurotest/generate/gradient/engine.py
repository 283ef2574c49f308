"""Gradients of a target with the regulariser from the same forward pass. Everything here lives in [0, 1]."""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from neurotest.errors import BadInput
from neurotest.generate.gradient.diversity import Diversity, Pull
from neurotest.mutate.space import from_unit
from neurotest.target import Probe, Target

MASKED = (
    "every gradient of the target towards its input is zero: it rounds, thresholds or detaches somewhere (or saturates), "
    "so gradient attacks are blind here; use `neurotest fuzz`, or attack the network without that step."
)
BROKEN = "a gradient of the target towards its input is not finite (NaN or infinity): gradient attacks cannot be used on it."
ENOUGH = 20  # inputs after which a network that is flat around all of them is called masked


@dataclass(frozen=True)
class Look:
    """One forward pass: logits (n, classes) and a 0 that carries the gradient of the regulariser, until the next pass."""

    logits: Tensor
    penalty: Tensor | None


class Engine:
    """Runs the target for an attack, counts what it costs, and refuses gradients that lead nowhere. A context manager."""

    def __init__(self, target: Target, diversity: Diversity | None = None, *, eight_bit: bool = True) -> None:
        self.target = target
        self.eight_bit = eight_bit
        self.diversity = diversity if diversity is not None and diversity.weight > 0 else None
        self._pull = None if self.diversity is None else Pull(self.diversity)
        wants, record = ((), None) if self._pull is None else ((self._pull.diversity.want,), self._pull.record)
        self._probe = Probe(target, *wants, grad=True, record=record)
        self.forwards = 0
        self.backwards = 0
        self.asked = 0  # inputs whose first gradient was looked at
        self.flat = 0  # and of them, those where it is zero everywhere

    def __enter__(self) -> Engine:
        self._probe.__enter__()
        self._layers = 0 if self.diversity is None else len(self._probe.layers(self.diversity.want))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._probe.__exit__(kind, error, trace)

    def look(self, u: Tensor, y: Tensor, sign: int = 1) -> Look:
        """Forward inputs in [0, 1] once: logits, and `sign` x the weighted divergence of the same pass (only its gradient)."""
        self.forwards += len(u)
        if self._pull is None:
            return Look(self._probe(from_unit(u, self.target.bounds)).logits, None)
        diversity = self._pull.diversity
        # One batch is one term in the study's code, beside a mean: its share of a sum over n inputs is n times that.
        self._pull.scale = sign * diversity.weight / self._layers * (len(u) if diversity.reduce == "batch" else 1)
        trace = self._probe(from_unit(u, self.target.bounds))
        with torch.enable_grad():
            away = torch.stack(list(trace[diversity.want].values()))  # (layers, n), or (layers, 1) of a batch
            if diversity.attack_first:
                away = away * (trace.logits.argmax(1) != y)
            return Look(trace.logits, away.sum())

    def gradient(self, u: Tensor, y: Tensor, *, first: bool = False) -> Tensor:
        """Of (cross-entropy - lambda x divergence) towards u; inputs do not touch each other unless reduce='batch'."""
        u = u.detach().requires_grad_()
        seen = self.look(u, y, -1)
        with torch.enable_grad():
            # In float64: a confident network's cross-entropy is flat in float32 long before the network is.
            aim = torch.nn.functional.cross_entropy(seen.logits.double(), y, reduction="sum")
            if seen.penalty is not None:
                aim = aim + seen.penalty
        return self.back(aim, u, first=first)

    def back(self, aim: Tensor, u: Tensor, *, first: bool = False, keep: bool = False) -> Tensor:
        """The gradient of `aim` towards `u`, checked; `keep` leaves the graph for another."""
        self.backwards += len(u)
        found = torch.autograd.grad(aim, u, allow_unused=True, retain_graph=keep)[0] if aim.requires_grad else None
        if found is None:
            raise BadInput(MASKED)
        size = found.flatten(1).abs().amax(1)
        if not bool(size.isfinite().all()):
            raise BadInput(BROKEN)
        if first:
            self.asked += len(u)
            self.flat += int((size == 0).sum())
        return found

    def refuse_flat(self, *, last: bool = True) -> None:
        """Refuse a target that was flat around every input so far; before the last batch a few are not enough to tell."""
        if self.flat == self.asked and self.asked >= (1 if last else ENOUGH):
            raise BadInput(MASKED)

    def settle(self, u: Tensor, seed: Tensor, eps: float | None = None) -> Tensor:
        """What will be saved: 8-bit data on its grid, still within eps of the seed; other data as it is."""
        if not self.eight_bit:
            return u.clamp(0, 1)
        base = (seed * 255).round()
        change = (u * 255 - base).round()
        if eps is not None:
            most = int(eps * 255 + 1e-6)  # rounding to the nearest could leave the ball by half a level
            change = change.clamp(-most, most)
        return (base + change).clamp(0, 255).div(255)

    def counts(self) -> NDArray[np.int64]:
        """Everything that is counted, to go on with later."""
        return np.array([self.forwards, self.backwards, self.asked, self.flat], dtype=np.int64)

    def restore(self, counts: NDArray[np.int64]) -> None:
        self.forwards, self.backwards, self.asked, self.flat = (int(n) for n in counts)

    def predict(self, u: Tensor) -> Tensor:
        """Logits without a graph."""
        self.forwards += len(u)
        with torch.no_grad():
            return self.target.logits(from_unit(u, self.target.bounds))
