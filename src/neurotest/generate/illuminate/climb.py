"""From seeds to aimed classes in few steps: along the gradient, as far as the decision border seems to be."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from neurotest.generate.gradient.engine import Engine, lead_of
from neurotest.generate.illuminate.changes import Change
from neurotest.oracles import predicted

LEAD = 0.2  # of the aimed class over the next, in logits, that a step tries to reach
BEYOND = 1.5  # times that far, because rounding takes some of it back
EVERY = 2  # steps per gradient: a backward pass costs as much as two forward passes


@dataclass(frozen=True, eq=False)
class Faults:
    """Faults of one round."""

    rows: NDArray[np.int64]  # (m,) of the round's tasks
    x: Tensor  # (m, *shape) in [0, 1]
    predicted: NDArray[np.int64]
    steps: NDArray[np.int64]


class Climb:
    """One round: tasks (seed, aimed class) that share a way of change, all in one batch."""

    def __init__(self, engine: Engine, change: Change, seed: Tensor, true: Tensor, aim: Tensor) -> None:
        self.engine, self.change, self.seed, self.true, self.aim = engine, change, seed, true, aim
        self.theta = change.start(seed)
        self.direction = torch.zeros_like(self.theta)  # of length 1 in each row
        self._wide = (-1, *[1] * (self.theta.ndim - 1))
        self.lead = torch.zeros(len(seed), dtype=torch.float64, device=seed.device)  # at the last forward pass
        self.far = torch.zeros_like(self.lead)  # length of the last step
        self.active = torch.arange(len(seed), device=seed.device)
        self.faults: list[tuple[NDArray[np.int64], Tensor, NDArray[np.int64], int]] = []

    def run(self, steps: int, *, first: bool) -> Faults:
        for number in range(steps):
            if number % EVERY == 0:
                self._new_direction(number, first=first and number == 0)
            else:
                self._same_direction(number)
            if not len(self.active):
                return self._result()
        with torch.no_grad():
            x = self._image(self.seed[self.active], self.theta[self.active])
        self._collect(x, self.engine.predict(x), steps)
        return self._result()

    def _new_direction(self, number: int, *, first: bool) -> None:
        """Step along the gradient as far as the border would be if the network were linear."""
        theta, seed = self.theta[self.active].requires_grad_(), self.seed[self.active]
        with torch.enable_grad():
            x = self.change.make(seed, theta)
            tested = self.engine.quantise_through(x, seed)
            logits = self.engine.forward(tested, self.true[self.active]).logits
            lead = self._lead(logits)
        stay = self._collect(tested.detach(), logits.detach(), number)
        if bool(stay.any()):
            gradient = self.engine.backward(lead.sum(), theta, first=first)[stay]
            size = gradient.flatten(1).double().norm(dim=1).clamp_min(1e-12)
            self.direction[self.active[stay]] = gradient / size.to(gradient).view(self._wide)
            self._step(stay, lead.detach()[stay].double(), size)
        self.active = self.active[stay]

    def _same_direction(self, number: int) -> None:
        """Step on in the same direction, by how fast the lead rose since the last forward pass."""
        with torch.no_grad():
            x = self._image(self.seed[self.active], self.theta[self.active])
        logits = self.engine.predict(x)
        stay = self._collect(x, logits, number)
        if bool(stay.any()):
            rows = self.active[stay]
            lead = self._lead(logits)[stay].double()
            rise = (lead - self.lead[rows]) / self.far[rows].clamp_min(1e-12)
            # Where it did not rise, as far again: the next gradient decides.
            steep = torch.where(rise > 1e-6, rise, (LEAD - lead) * BEYOND / self.far[rows].clamp_min(1e-12))
            self._step(stay, lead, steep.clamp_min(1e-12))
        self.active = self.active[stay]

    def _image(self, seed: Tensor, theta: Tensor) -> Tensor:
        return self.engine.quantise(self.change.make(seed, theta), seed)

    def _lead(self, logits: Tensor) -> Tensor:
        return lead_of(logits, self.aim[self.active])

    def _step(self, stay: Tensor, lead: Tensor, steep: Tensor) -> None:
        """Along each row's direction, not too far at once."""
        rows = self.active[stay]
        seed = self.seed[rows]
        far = (BEYOND * (LEAD - lead) / steep).clamp_min(0).clamp_max(self.change.most(seed))
        self.lead[rows], self.far[rows] = lead, far
        moved = self.theta[rows] + far.to(seed).view(self._wide) * self.direction[rows]
        self.theta[rows] = self.change.clip(seed, moved)

    def _collect(self, x: Tensor, logits: Tensor, number: int) -> Tensor:
        """Collect faults; rows that reached their aim leave. Which rows stay."""
        classes = predicted(logits)
        rows = self.active.cpu().numpy()
        wrong = (classes != self.true.cpu().numpy()[rows]) & (number > 0)
        if wrong.any():
            self.faults.append((rows[wrong], x[torch.from_numpy(wrong).to(x.device)], classes[wrong], number))
        reached = wrong & (classes == self.aim.cpu().numpy()[rows])
        return torch.from_numpy(~reached).to(x.device)

    def _result(self) -> Faults:
        if not self.faults:
            none = np.empty(0, dtype=np.int64)
            return Faults(none, self.seed[:0], none, none)
        steps = np.concatenate([np.full(len(rows), number, dtype=np.int64) for rows, _, _, number in self.faults])
        return Faults(
            np.concatenate([rows for rows, *_ in self.faults]), torch.cat([x for _, x, _, _ in self.faults]),
            np.concatenate([classes for _, _, classes, _ in self.faults]), steps,
        )  # fmt: skip
