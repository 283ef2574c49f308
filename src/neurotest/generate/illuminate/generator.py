"""Rounds of illumination: the archive of the smallest changes, which seeds are tried next, and how one climbs to its aim."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from neurotest.devices import widest
from neurotest.generate.fuzz.seeds import Seeds
from neurotest.generate.gradient.engine import Engine
from neurotest.generate.illuminate.settings import BACKWARD, Change, Illuminate
from neurotest.jobs.parts import Arrays
from neurotest.mutate.unit import distances
from neurotest.oracles import predicted

LEAD = 0.2  # of the aimed class over the next, in logits, that a step tries to reach
BEYOND = 1.5  # times that far, because rounding takes some of it back
Numbers = NDArray[np.int64]
Counted = Callable[[Tensor, Numbers], Numbers]
GRADIENT_EVERY = 2  # steps per gradient: a backward pass costs as much as two forward passes


@dataclass(frozen=True, eq=False)
class _RoundFaults:
    """Those of one round."""

    rows: NDArray[np.int64]  # (m,) of the round's tasks
    x: Tensor  # (m, *shape) in [0, 1]
    predicted: NDArray[np.int64]
    steps: NDArray[np.int64]


class _Climb:
    """One round: tasks (seed, aimed class) that share a way of change, all in one batch."""

    def __init__(
        self, engine: Engine, change: Change, seed: Tensor, true: Tensor, aim: Tensor, counted: Counted | None = None
    ) -> None:
        """counted: the classes that logits of some tasks count as; by default the largest logit."""
        self.engine, self.change, self.seed, self.true, self.aim = engine, change, seed, true, aim
        self.counted: Counted = counted or (lambda logits, rows: predicted(logits))
        self.theta = change.start(seed)
        self.direction = torch.zeros_like(self.theta)  # of length 1 in each row
        self._wide = (-1, *[1] * (self.theta.ndim - 1))
        self.lead = torch.zeros(len(seed), dtype=widest(seed.device), device=seed.device)  # at the last forward pass
        self.far = torch.zeros_like(self.lead)  # length of the last step
        self.active = torch.arange(len(seed), device=seed.device)
        self.faults: list[tuple[NDArray[np.int64], Tensor, NDArray[np.int64], int]] = []

    def run(self, steps: int, *, first: bool) -> _RoundFaults:
        for number in range(steps):
            if number % GRADIENT_EVERY == 0:
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
            size = gradient.flatten(1).to(self.lead).norm(dim=1).clamp_min(1e-12)
            self.direction[self.active[stay]] = gradient / size.to(gradient).view(self._wide)
            self._step(stay, lead.detach()[stay].to(self.lead), size)
        self.active = self.active[stay]

    def _same_direction(self, number: int) -> None:
        """Step on in the same direction, by how fast the lead rose since the last forward pass."""
        with torch.no_grad():
            x = self._image(self.seed[self.active], self.theta[self.active])
        logits = self.engine.predict(x)
        stay = self._collect(x, logits, number)
        if bool(stay.any()):
            rows = self.active[stay]
            lead = self._lead(logits)[stay].to(self.lead)
            rise = (lead - self.lead[rows]) / self.far[rows].clamp_min(1e-12)
            # Where it did not rise, as far again: the next gradient decides.
            steep = torch.where(rise > 1e-6, rise, (LEAD - lead) * BEYOND / self.far[rows].clamp_min(1e-12))
            self._step(stay, lead, steep.clamp_min(1e-12))
        self.active = self.active[stay]

    def _image(self, seed: Tensor, theta: Tensor) -> Tensor:
        return self.engine.quantise(self.change.make(seed, theta), seed)

    def _lead(self, logits: Tensor) -> Tensor:
        return self.engine.lead(logits, self.aim[self.active])

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
        rows = self.active.cpu().numpy()
        classes = self.counted(logits, rows)
        wrong = (classes != self.true.cpu().numpy()[rows]) & (number > 0)
        if wrong.any():
            self.faults.append((rows[wrong], x[torch.from_numpy(wrong).to(x.device)], classes[wrong], number))
        reached = wrong & (classes == self.aim.cpu().numpy()[rows])
        return torch.from_numpy(~reached).to(x.device)

    def _result(self) -> _RoundFaults:
        if not self.faults:
            none = np.empty(0, dtype=np.int64)
            return _RoundFaults(none, self.seed[:0], none, none)
        rows, x, classes, numbers = zip(*self.faults, strict=True)
        steps = np.repeat(np.array(numbers, dtype=np.int64), [len(part) for part in rows])
        return _RoundFaults(np.concatenate(rows), torch.cat(x), np.concatenate(classes), steps)


class _Archive:
    """Cells (classes with seeds, classes, ways). Seeds of a class are tried for a cell in the order of how far the other lags."""

    def __init__(self, labels: Numbers, logits: NDArray[np.float64], ways: int) -> None:
        classes = logits.shape[1]
        self.classes, self.ways = classes, ways
        self.present, place, self.seeds = np.unique(labels, return_inverse=True, return_counts=True)
        cells = (len(self.present), classes, ways)
        self.smallest = np.full(cells, np.inf)
        self.elite = np.full(cells, -1, dtype=np.int64)
        self.attempts = np.zeros(cells, dtype=np.int64)
        lag = logits[np.arange(len(logits)), labels][:, None] - logits  # (n, classes)
        # order[p] holds all seeds, class by class, each class by its lag behind p; first[t] is where class t begins.
        self.order = np.stack([np.lexsort((lag[:, p], place)) for p in range(classes)])
        self.first = np.concatenate([[0], np.cumsum(self.seeds)[:-1]])
        self.lag = np.full(cells[:2], np.inf)
        np.minimum.at(self.lag, place, lag)

    def place(self, true: Any) -> Any:
        """Of classes with seeds, in the first axis of the cells."""
        return np.searchsorted(self.present, true)

    @property
    def filled(self) -> NDArray[np.bool_]:
        return np.asarray(self.elite >= 0)

    @property
    def pairs(self) -> int:
        """How many (true, predicted) pairs have a fault."""
        return int(self.filled.any(2).sum())

    @property
    def possible(self) -> int:
        """How many pairs there are: each class that has seeds with every other."""
        return len(self.present) * (int(self.classes) - 1)

    def offer(self, true: int, predicted: int, way: int, size: float, number: int) -> bool:
        """A fault; whether it is the smallest of its cell so far."""
        cell = self.place(true), predicted, way
        if size >= self.smallest[cell]:
            return False
        self.smallest[cell], self.elite[cell] = size, number
        return True

    def tried(self, true: Numbers, aim: Numbers, way: int) -> None:
        """One attempt more, at different cells."""
        self.attempts[self.place(true), aim, way] += 1

    def next(self, most: int) -> tuple[int, Numbers, Numbers]:
        """A way and at most so many (seed, aimed class): empty pairs first, then empty cells, then those tried least."""
        cells = np.argwhere(self._open())
        if not len(cells):
            return 0, np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
        t, p, w = cells.T
        some = np.asarray(self.filled.any(axis=2))
        tier = self.filled[t, p, w] * 1 + some[t, p]  # 0: an empty pair, 1: an empty cell, 2: to be improved
        ranked = np.lexsort((self.lag[t, p], w, self.attempts[t, p, w], tier))
        way, best = int(w[ranked[0]]), tier[ranked[0]]
        chosen = ranked[(w[ranked] == way) & (tier[ranked] == best)][:most]
        t, p = t[chosen], p[chosen]
        seeds = self.order[p, self.first[t] + self.attempts[t, p, way]]
        self.attempts[t, p, way] += 1
        return way, seeds, p

    def _open(self) -> NDArray[np.bool_]:
        """Cells with seeds that were not tried yet."""
        left = self.attempts < self.seeds[:, None, None]
        left[np.arange(len(self.present)), self.present] = False
        return np.asarray(left)


@dataclass(frozen=True, eq=False)
class _Faults:
    """Every fault that entered the archive, in the order they came; `elite` are those that still hold a cell."""

    x: NDArray[np.generic]
    rows: NDArray[np.int64]  # of the seeds
    predicted: NDArray[np.int64]
    way: NDArray[np.int64]
    steps: NDArray[np.int64]
    size: NDArray[np.float64]  # L2 to the seed
    elite: NDArray[np.int64]  # places in the others, by cell


class Generator:
    """One campaign in memory: `step` does a round and gives its faults; `absorb` takes over a round that was saved."""

    def __init__(self, engine: Engine, seeds: Seeds, settings: Illuminate) -> None:
        self.engine, self.seeds, self.settings = engine, seeds, settings
        self.ways = settings.ways(tuple(seeds.x.shape[1:]))
        self.true = seeds.expected
        self.archive = _Archive(self.true, seeds.roots.logits.astype(np.float64), len(self.ways))
        self.rounds: list[Arrays] = []
        self.count = self.unstable = self.failed = 0
        self.exhausted = False

    @property
    def spent(self) -> int:
        """Forward passes, a backward pass counted as two."""
        return self.engine.forwards + BACKWARD * self.engine.backwards

    def step(self, left: float = np.inf) -> Arrays | None:
        """One round with at most `left` passes; None when every seed was tried for every cell, or nothing more is affordable."""
        # Of a task that takes all steps, and of running its result again as it is saved.
        cost = self.settings.steps + 2 + BACKWARD * -(-self.settings.steps // GRADIENT_EVERY)
        way, rows, aim = self.archive.next(int(min(self.settings.batch, left // cost)))
        if not len(rows):
            self.exhausted = left >= cost
            return None
        device = self.engine.target.device
        seed = self.seeds.unit(self.seeds.x[rows], device)
        true, aimed = (torch.from_numpy(np.ascontiguousarray(a)).to(device) for a in (self.true[rows], aim))
        first, before = not self.rounds, self.spent
        climb = _Climb(self.engine, self.ways[way], seed, true, aimed, lambda logits, at: self.seeds.counted(logits, rows[at]))
        faults = climb.run(self.settings.steps, first=first)
        size = distances(faults.x, seed[torch.from_numpy(faults.rows).to(device)])[:, 1]
        better = self._better(self.true[rows[faults.rows]], faults.predicted, way, size)
        better = better[: int(min(len(better), left - (self.spent - before)))]  # each costs one pass
        x = self.seeds.stored(faults.x[torch.from_numpy(better).to(device)])
        # What enters the archive is run again as it is saved, in a batch of its own.
        classes = np.empty(0, dtype=np.int64)
        if len(x):
            classes = self.seeds.counted(self.engine.predict(self.seeds.unit(x, device)), rows[faults.rows[better]])
        stable = classes == faults.predicted[better]
        kept = better[stable]
        part: Arrays = {
            "x": x[stable], "row": rows[faults.rows[kept]], "predicted": faults.predicted[kept], "size": size[kept],
            "steps": faults.steps[kept], "way": np.array(way), "tried": rows, "aim": aim,
            "lost": np.array(int((~stable).sum())), "failed": np.array(len(faults.rows)), "counts": self.engine.counts(),
        }  # fmt: skip
        self._take(part)
        return part

    def _better(
        self, true: NDArray[np.int64], classes: NDArray[np.int64], way: int, size: NDArray[np.float64]
    ) -> NDArray[np.int64]:
        """Of a round's faults the smallest of each cell, where it is smaller than what the archive has; new pairs first."""
        best: dict[tuple[int, int], int] = {}
        for i in np.argsort(size, kind="stable").tolist():
            cell = (int(self.archive.place(true[i])), int(classes[i]))
            if cell[1] >= 0 and 1e-6 < size[i] < self.archive.smallest[(*cell, way)]:
                best.setdefault(cell, i)
        some = np.asarray(self.archive.filled.any(axis=2))
        order = sorted(best, key=lambda cell: (bool(some[cell]), best[cell]))
        return np.array([best[cell] for cell in order], dtype=np.int64)

    def absorb(self, part: Arrays) -> None:
        """A round that was done before: tried seeds are counted, faults offered, passes taken over."""
        true, aim, way = self.true[part["tried"]], part["aim"], int(part["way"])
        self.archive.tried(true, aim, way)
        self.engine.restore(part["counts"])
        self._take(part)

    def _take(self, part: Arrays) -> None:
        way = int(part["way"])
        true = self.true[part["row"]]
        for t, p, size in zip(true.tolist(), part["predicted"].tolist(), part["size"].tolist(), strict=True):
            self.archive.offer(t, p, way, size, self.count)
            self.count += 1
        self.unstable += int(part["lost"])
        self.failed += int(part["failed"])
        self.rounds.append(part)

    def faults(self) -> _Faults:
        """All so far."""
        rounds = self.rounds

        def joined(name: str, kind: type = np.int64) -> NDArray[Any]:
            return np.concatenate([np.empty(0, kind), *(part[name] for part in rounds)]).astype(kind)

        ways = np.repeat([int(part["way"]) for part in rounds], [len(part["row"]) for part in rounds]).astype(np.int64)
        x, elite = np.concatenate([self.seeds.x[:0], *(part["x"] for part in rounds)]), self.archive.elite[self.archive.filled]
        return _Faults(x, joined("row"), joined("predicted"), ways, joined("steps"), joined("size", np.float64), elite)
