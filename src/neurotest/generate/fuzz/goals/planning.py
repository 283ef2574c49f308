"""Which mutants to run next: forecasts of all of them, what each would be worth, and a greedy choice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from neurotest.generate.fuzz.goals.candidates import Arms, ParentRows
from neurotest.generate.fuzz.goals.goal import GoalState, Outcomes

SHORTLIST = 16  # times as many candidates as places are looked at again after each choice
FRONT = 32  # of those, how many are evaluated together
Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Forecasts:
    """What every arm would do to some parents."""

    parents: ParentRows
    true: Integers  # (n,) expected classes
    logits: NDArray[np.float32]  # (n, arms, k) of the parents' classes
    chance: NDArray[np.float32]  # (n, arms, k) that the mutant becomes a fault of that class
    size: Floats  # (n, arms) L2 of the change

    @property
    def fault(self) -> NDArray[np.float32]:
        """(n, arms) the chance of any fault"""
        return np.asarray(self.chance.sum(axis=2))


@dataclass(frozen=True, eq=False)
class Planned:
    """What was planned, row by row, to be compared with what happened."""

    rows: NDArray[np.int64]  # (n,) of the parents
    arms: NDArray[np.int64]  # (n,)
    parents: ParentRows
    logits: NDArray[np.float32]  # (n, k) forecast
    chance: NDArray[np.float32]  # (n, k) of a fault of each class
    expected: float  # goals, of the whole plan
    learning: bool  # nothing was forecast yet

    def some(self, rows: NDArray[np.int64]) -> Planned:
        parts = (self.rows[rows], self.arms[rows], self.parents[rows], self.logits[rows], self.chance[rows])
        return Planned(*parts, self.expected, self.learning)


def chances(
    logits: NDArray[np.float32], is_true: NDArray[np.bool_], temperature: float, rates: tuple[float, float]
) -> NDArray[np.float32]:
    """Softmax (n, arms, k), times how often mutants fail whose prediction is another, or the same (n, k), as expected."""
    probability = torch.softmax(torch.from_numpy(logits / np.float32(temperature)), dim=-1).numpy()
    fails = np.where(is_true, np.float32(rates[1]), np.float32(rates[0])).astype(np.float32)
    return np.asarray(probability * fails[:, None])


class Chooser:
    """Takes one mutant after the other, each time the one that is worth most after those taken before.

    worth = (sum over classes and goals of chance * u + fault * share by which the change is smaller) / (1 + fault), because a
    fault is run twice. u of a goal falls by its chance whenever a mutant is taken that may reach it, and so does what smaller
    changes of a seed are worth; a worth never rises.
    """

    def __init__(self, forecasts: Forecasts, goals: list[GoalState], arms: Arms, allowed: NDArray[np.bool_]) -> None:
        self.forecasts, self.goals, self.arms = forecasts, goals, arms
        self.allowed = allowed.copy()  # (n, arms)
        self.tables = [goal.worth() for goal in goals]
        self.fault = forecasts.fault
        sizes = [goal.by_change(forecasts.parents.root, forecasts.size) for goal in goals]
        self.by_change = np.asarray(sum((part for part in sizes if part is not None), np.zeros(self.fault.shape)))
        self.untouched = np.ones(
            int(forecasts.parents.root.max(initial=0)) + 1
        )  # chance that no fault of each seed was taken yet
        self.expected = [0.0] * len(goals)  # goals that what was taken is expected to reach

    def outcomes(self, rows: Integers, arms: Integers) -> Outcomes:
        parents = self.forecasts.parents
        return Outcomes(
            parents.root[rows], self.forecasts.true[rows], parents.classes[rows], self.arms.kind[arms], parents.neurons[rows]
        )

    def worths(self) -> Floats:
        """(n, arms) of all, one family of mutations after the other: its arms lead to the same cells."""
        chance, n = self.forecasts.chance, len(self.forecasts.parents)
        total = self.fault * self.by_change * self.untouched[self.forecasts.parents.root][:, None]
        rows = np.arange(n)
        for kind, block in enumerate(self.arms.blocks):
            outcomes = self.outcomes(rows, np.full(n, block.start))
            assert self.arms.kind[block.start] == kind
            u = np.zeros(outcomes.classes.shape)
            for goal, table in zip(self.goals, self.tables, strict=True):
                if (cells := goal.cells(outcomes)) is not None:
                    u = u + table[cells]
            total[:, block] += np.matmul(chance[:, block], u.astype(np.float32)[:, :, None])[:, :, 0]
        return np.where(self.allowed, total * self.forecasts.parents.bonus[:, None] / (1 + self.fault), -1.0)

    def take(self, places: int) -> tuple[Integers, Integers]:
        """So many (parent, arm), fewer if there are not as many that are allowed."""
        rows: list[int] = []
        arms: list[int] = []
        while len(rows) < places:
            worths = self.worths().ravel()
            count = min(SHORTLIST * places, len(worths))
            listed = np.argpartition(-worths, count - 1)[:count]
            listed = listed[np.lexsort((listed, -worths[listed]))]
            listed = listed[worths[listed] >= 0]
            if not len(listed):
                break
            floor = float(worths[listed[-1]]) if count < len(worths) else -1.0
            chosen = self._greedy(listed, worths[listed], floor, places - len(rows))
            rows += (chosen // len(self.arms)).tolist()
            arms += (chosen % len(self.arms)).tolist()
        return np.array(rows, dtype=np.int64), np.array(arms, dtype=np.int64)

    def _greedy(self, listed: Integers, bound: Floats, floor: float, places: int) -> Integers:
        """The best of the list one by one, until none is better than what is not in the list; bounds never rise."""
        rows, arms = np.divmod(listed, len(self.arms))
        cells = [goal.cells(self.outcomes(rows, arms)) for goal in self.goals]
        chance, fault = self.forecasts.chance[rows, arms], self.fault[rows, arms]
        bonus, roots = self.forecasts.parents.bonus[rows], self.forecasts.parents.root[rows]
        still = (fault * self.by_change[rows, arms]).astype(np.float64)
        bound = bound.copy()
        taken: list[int] = []
        front: Integers = np.arange(0)
        limit = np.inf
        while len(taken) < places:
            share = still[front] * self.untouched[roots[front]]
            worth = bound[front] = self._exact(front, cells, chance, fault, share) * bonus[front]
            best = int(np.argmax(worth)) if len(front) else -1
            if best < 0 or worth[best] < limit:  # what is outside may be better: look at the highest bounds again
                order = np.argsort(-bound, kind="stable")[: FRONT + 1]
                order = order[bound[order] >= 0]
                if not len(order):
                    break
                front, limit = order[:FRONT], float(bound[order[FRONT]]) if len(order) > FRONT else -1.0
                continue
            if taken and worth[best] < floor:
                break
            row = int(front[best])
            self._spend(row, cells, chance, fault)
            self.untouched[roots[row]] *= 1 - fault[row]
            taken.append(row)
            bound[row] = -1.0
            front = np.delete(front, best)
            self.allowed[rows[row], arms[row]] &= self.arms.repeatable[arms[row]]
        return listed[np.array(taken, dtype=np.int64)]

    def _exact(
        self, rows: Integers, cells: list[Any], chance: NDArray[np.float32], fault: NDArray[np.float32], share: Floats
    ) -> Floats:
        """What these rows of a list are worth now; `share` is what smaller changes are worth."""
        total = share.copy()
        for table, cell in zip(self.tables, cells, strict=True):
            if cell is not None:
                total += (chance[rows] * table[cell[rows]]).sum(axis=1)
        return np.asarray(total / (1 + fault[rows]))

    def spend(self, rows: Integers, arms: Integers) -> None:
        """Count mutants that are run whatever they are worth."""
        cells = [goal.cells(self.outcomes(rows, arms)) for goal in self.goals]
        chance, fault = self.forecasts.chance[rows, arms], self.fault[rows, arms]
        for row, root in enumerate(self.forecasts.parents.root[rows].tolist()):
            self._spend(row, cells, chance, fault)
            self.untouched[root] *= 1 - fault[row]
        self.allowed[rows, arms] &= self.arms.repeatable[arms]

    def _spend(self, row: int, cells: list[Any], chance: NDArray[np.float32], fault: NDArray[np.float32]) -> None:
        for number, (table, cell) in enumerate(zip(self.tables, cells, strict=True)):
            if cell is not None:
                chances_of = chance[row] if cell.shape[1] > 1 else fault[row : row + 1]
                u = table[cell[row]]
                if self.goals[number].goal.weight:
                    self.expected[number] += float((chances_of * u).sum()) / self.goals[number].goal.weight
                table[cell[row]] = u * (1 - chances_of)
