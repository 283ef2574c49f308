"""From seeds to aimed classes in few steps: along the slope, as far as the border seems to be."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from neurotest.generate.gradient.engine import Engine
from neurotest.generate.illuminate.changes import Change
from neurotest.oracles import predicted

LEAD = 0.2  # of the aimed class over the next, in logits: where a step wants to get
BEYOND = 1.5  # and a little farther: rounding takes some of it back
ANEW = 2  # looks until the slope is asked for anew: it costs as much as two looks more


@dataclass(frozen=True, eq=False)
class Faults:
    """Faults of one round: which task, the saved image, what is predicted, after how many steps."""

    rows: NDArray[np.int64]
    x: Tensor  # (m, *shape) in [0, 1]
    predicted: NDArray[np.int64]
    steps: NDArray[np.int64]


class Climb:
    """One round: tasks that share a way of change, all in one batch."""

    def __init__(self, engine: Engine, change: Change, seed: Tensor, true: Tensor, aim: Tensor) -> None:
        self.engine, self.change, self.seed, self.true, self.aim = engine, change, seed, true, aim
        self.theta = change.start(seed)
        self.way = torch.zeros_like(self.theta)  # each row's line, of length 1
        self._wide = (-1, *[1] * (self.theta.ndim - 1))
        self.before = torch.zeros(len(seed), dtype=torch.float64, device=seed.device)  # the lead at the last look
        self.far = torch.zeros_like(self.before)  # and how far was gone since
        self.alive = torch.arange(len(seed), device=seed.device)
        self.found: list[tuple[NDArray[np.int64], Tensor, NDArray[np.int64], int]] = []

    def run(self, steps: int, *, first: bool) -> Faults:
        for number in range(steps):
            if number % ANEW == 0:
                self._turn(number, first=first and number == 0)
            else:
                self._go_on(number)
            if not len(self.alive):
                return self._result()
        with torch.no_grad():
            x = self._image(self.seed[self.alive], self.theta[self.alive])
        self._harvest(x, self.engine.predict(x), steps)
        return self._result()

    def _turn(self, number: int, *, first: bool) -> None:
        """Look with a graph, and set out along the slope as far as the border would be if the network were linear."""
        theta, seed = self.theta[self.alive].requires_grad_(), self.seed[self.alive]
        with torch.enable_grad():
            x = self.change.make(seed, theta)
            tested = self.engine.settle(x.detach(), seed) + (x - x.detach())  # exactly what is saved, with a gradient
            logits = self.engine.look(tested, self.true[self.alive]).logits
            lead = self._lead(logits)
        stay = self._harvest(tested.detach(), logits.detach(), number)
        if bool(stay.any()):
            slope = self.engine.back(lead.sum(), theta, first=first)[stay]
            size = slope.flatten(1).double().norm(dim=1).clamp_min(1e-12)
            self.way[self.alive[stay]] = slope / size.to(slope).view(self._wide)
            self._step(stay, lead.detach()[stay].double(), size)
        self.alive = self.alive[stay]

    def _go_on(self, number: int) -> None:
        """Look without a graph, and go on along the same line as steeply as the lead rose since the last look."""
        with torch.no_grad():
            x = self._image(self.seed[self.alive], self.theta[self.alive])
        logits = self.engine.predict(x)
        stay = self._harvest(x, logits, number)
        if bool(stay.any()):
            rows = self.alive[stay]
            lead = self._lead(logits)[stay].double()
            rise = (lead - self.before[rows]) / self.far[rows].clamp_min(1e-12)
            # Where it did not rise, as far again: the next slope will tell.
            steep = torch.where(rise > 1e-6, rise, (LEAD - lead) * BEYOND / self.far[rows].clamp_min(1e-12))
            self._step(stay, lead, steep.clamp_min(1e-12))
        self.alive = self.alive[stay]

    def _image(self, seed: Tensor, theta: Tensor) -> Tensor:
        return self.engine.settle(self.change.make(seed, theta), seed)

    def _lead(self, logits: Tensor) -> Tensor:
        aim = self.aim[self.alive][:, None]
        return logits.gather(1, aim)[:, 0] - logits.scatter(1, aim, -torch.inf).amax(1)

    def _step(self, stay: Tensor, lead: Tensor, steep: Tensor) -> None:
        """Along each row's line, not too far at once."""
        rows = self.alive[stay]
        seed = self.seed[rows]
        far = (BEYOND * (LEAD - lead) / steep).clamp_min(0).clamp_max(self.change.most(seed))
        self.before[rows], self.far[rows] = lead, far
        moved = self.theta[rows] + far.to(seed).view(self._wide) * self.way[rows]
        self.theta[rows] = self.change.settle(seed, moved)

    def _harvest(self, x: Tensor, logits: Tensor, number: int) -> Tensor:
        """Put out what is wrong; rows that reached their aim leave. Gives which rows stay."""
        said = predicted(logits)
        rows = self.alive.cpu().numpy()
        wrong = (said != self.true.cpu().numpy()[rows]) & (number > 0)
        if wrong.any():
            self.found.append((rows[wrong], x[torch.from_numpy(wrong).to(x.device)], said[wrong], number))
        there = wrong & (said == self.aim.cpu().numpy()[rows])
        return torch.from_numpy(~there).to(x.device)

    def _result(self) -> Faults:
        if not self.found:
            none = np.empty(0, dtype=np.int64)
            return Faults(none, self.seed[:0], none, none)
        steps = np.concatenate([np.full(len(rows), number, dtype=np.int64) for rows, _, _, number in self.found])
        return Faults(
            np.concatenate([rows for rows, *_ in self.found]), torch.cat([x for _, x, _, _ in self.found]),
            np.concatenate([said for _, _, said, _ in self.found]), steps,
        )  # fmt: skip
