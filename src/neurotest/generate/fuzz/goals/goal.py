"""Goals: what a campaign wants to see for the first time. Each divides outcomes into cells; a cell is reached by a fault in it.

A goal is worth its weight until it is reached, and less the more chances it has had: u = 1 / (1 + spent / patience), where
`spent` is the probability that forecasts have put on it so far. Another package's goals come by the entry point group
`neurotest.goal`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from neurotest import registry
from neurotest.checks import Settings, setting
from neurotest.errors import BadInput

MOST_CELLS = 1 << 22  # beyond that cells share a number: some thousands of them are ever touched
Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Outcomes:
    """Possible outcomes of mutants: every row may become a fault of any of its classes."""

    root: Integers  # (n,) rows of the seeds
    true: Integers  # (n,) expected classes
    classes: Integers  # (n, k) predicted ones
    operator: Integers  # (n,) families of mutations
    neurons: Integers  # (n, most) hidden neurons, the one farthest from what is usual first; (n, 0) if no goal asks for them

    def __len__(self) -> int:
        return len(self.root)


@dataclass(frozen=True, eq=False)
class GoalSubject:
    """What goals are divided by: how many seeds, classes and hidden neurons there are, and the operators' names."""

    seeds: int
    classes: int
    operators: tuple[str, ...]
    neurons: int = 0
    class_names: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Goal(Settings, ABC):
    """Settings of a goal. weight: what one of its cells is worth beside those of other goals."""

    weight: float = setting(1.0, "1 by default", least=0)
    top_neurons: ClassVar[int] = 0  # how many hidden neurons of each outcome it asks for

    @abstractmethod
    def start(self, subject: GoalSubject) -> GoalState: ...


class _Worths:
    """What reaching each cell is worth, the last number standing for no cell. A plan lowers it as it goes; `stale` are the
    cells that have to be looked at again before the next plan."""

    def __init__(self, values: Floats) -> None:
        self.values = values
        self.stale: list[Integers] = []

    def __getitem__(self, cells: Integers) -> Floats:
        return self.values[cells]

    def __setitem__(self, cells: Integers, values: Floats) -> None:
        self.values[cells] = values
        self.stale.append(cells)


class GoalState(ABC):
    """A goal during a campaign."""

    def __init__(self, goal: Goal) -> None:
        self.goal = goal
        self.count = self._marked = 0  # reached so far, and when the leg began

    def cells(self, outcomes: Outcomes) -> Integers | None:
        """(n, k) the cell of each class of each row, -1 for none; (n, 1) if it is the same for all classes; None: it has none."""
        return None

    def by_change(self, root: Integers, size: Floats) -> Floats | None:
        """(n, m) what a fault of these seeds (n,) is worth if its change has these sizes (n, m); None: sizes do not matter."""
        return None

    def worth(self) -> _Worths:
        """What reaching each cell is worth now."""
        return _Worths(np.zeros(1))

    @abstractmethod
    def observe(self, outcomes: Outcomes, fault: NDArray[np.bool_], size: Floats) -> Integers:
        """Take in mutants that were run: what was predicted (classes, (n, 1)), which are faults, and the sizes of their changes.

        How many goals each reached, in the order they come.
        """

    def spend(self, cells: Integers, chances: Floats) -> None:
        """The forecasts put so much probability (n, k) on these cells (n, k)."""
        return None

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {"count": np.array([self.count])}

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        self.count = int(arrays["count"][0])

    def begin_leg(self) -> None:
        self._marked = self.count

    def changes(self) -> dict[str, NDArray[Any]]:
        return {"count": np.array([self.count - self._marked])}

    def learn(self, changes: Mapping[str, NDArray[Any]]) -> None:
        self.count += int(changes["count"][0])


class CellGoalState(GoalState):
    """One bit per cell, and how much probability was spent on it. A subclass says the cells of outcomes."""

    def __init__(self, goal: Goal, cells: int, patience: float) -> None:
        super().__init__(goal)
        self.size, self.patience = min(cells, MOST_CELLS), patience
        self.reached = np.zeros(self.size, dtype=bool)
        self.spent = np.zeros(self.size)
        self._worths: _Worths | None = None  # classes x classes x families may be millions: only what changed is computed again
        # Of a leg, on an island: cells and what was spent on them, and cells that were reached.
        self._leg: tuple[list[tuple[Integers, Floats]], list[Integers]] | None = None

    def worth(self) -> _Worths:
        if self._worths is None:
            self._worths = _Worths(np.append(np.full(self.size, self.goal.weight), 0.0))
            self._touch(self._touched())
        if self._worths.stale:
            cells = np.concatenate([part.ravel() for part in self._worths.stale])
            cells = cells[cells >= 0]
            self._worths.values[cells] = self._open(cells)
            self._worths.stale = []
        return self._worths

    def _open(self, cells: Integers) -> Floats:
        return self.goal.weight * np.where(self.reached[cells], 0.0, 1 / (1 + self.spent[cells] / self.patience))

    def _touched(self) -> Integers:
        return np.flatnonzero(self.reached | (self.spent > 0))

    def _touch(self, cells: Integers) -> None:
        if self._worths is not None:
            self._worths.stale.append(cells)

    def spend(self, cells: Integers, chances: Floats) -> None:
        inside = cells >= 0
        np.add.at(self.spent, cells[inside], chances[inside])
        self._touch(cells[inside])
        if self._leg is not None:
            self._leg[0].append((cells[inside], chances[inside]))

    def observe(self, outcomes: Outcomes, fault: NDArray[np.bool_], size: Floats) -> Integers:
        cells, news = self.cells(outcomes), np.zeros(len(outcomes), dtype=np.int64)
        assert cells is not None
        rows = np.flatnonzero(fault & (cells[:, 0] >= 0))
        rows = rows[~self.reached[cells[rows, 0]]]
        _, first = np.unique(cells[rows, 0], return_index=True)
        news[rows[first]] = 1
        self.reached[cells[rows, 0]] = True
        self._touch(cells[rows, 0])
        if self._leg is not None:
            self._leg[1].append(cells[rows[first], 0])
        self.count += len(first)
        return news

    def arrays(self) -> dict[str, NDArray[Any]]:
        touched = self._touched()
        return {**super().arrays(), "cells": touched, "reached": self.reached[touched], "spent": self.spent[touched]}

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        super().restore(arrays)
        self.reached[:], self.spent[:], self._worths = False, 0.0, None
        cells = arrays["cells"] % self.size  # campaigns of an earlier version had four times as many at most
        self.reached[cells], self.spent[cells] = arrays["reached"], arrays["spent"]

    def begin_leg(self) -> None:
        super().begin_leg()
        self._leg = ([], [])

    def changes(self) -> dict[str, NDArray[Any]]:
        none = (np.zeros(0, dtype=np.int64), np.zeros(0))
        spending, reached = self._leg or ([], [])
        cells, chances = (np.concatenate(parts) for parts in zip(none, *spending, strict=True))
        touched, place = np.unique(cells, return_inverse=True)
        spent = np.bincount(place, weights=chances, minlength=len(touched))
        return {"cells": touched, "spent": spent, "reached": np.concatenate([none[0], *reached])}

    def learn(self, changes: Mapping[str, NDArray[Any]]) -> None:
        """Two islands may have reached the same cell: it counts once."""
        self.count += int(np.count_nonzero(~self.reached[changes["reached"]]))
        self.reached[changes["reached"]] = True
        self.spent[changes["cells"]] += changes["spent"]
        self._touch(np.concatenate([changes["reached"], changes["cells"]]))


def _numbered(*parts: tuple[Integers, int]) -> Integers:
    """One number out of several, each with how many values it may have."""
    total = parts[0][0]
    for values, count in parts[1:]:
        total = total * count + values
    return np.asarray(total % MOST_CELLS)


@registry.register("goal", "family", paper="", cost="8 bytes per pair of classes and mutation family", main="weight")
class NewFamily(Goal):
    """A fault of a new family: true class, predicted class, last mutation."""

    def start(self, subject: GoalSubject) -> GoalState:
        return FamilyState(self, subject)


class FamilyState(CellGoalState):
    def __init__(self, goal: Goal, subject: GoalSubject) -> None:
        self.subject = subject
        super().__init__(goal, subject.classes**2 * len(subject.operators), 1.0)

    def cells(self, outcomes: Outcomes) -> Integers:
        k, o = self.subject.classes, len(self.subject.operators)
        return _numbered((outcomes.true[:, None], k), (outcomes.classes, k), (outcomes.operator[:, None], o))


@registry.register("goal", "pair", paper="", cost="8 bytes per pair of classes", main="weight")
class NewPair(Goal):
    """A fault with a new pair of true and predicted class."""

    def start(self, subject: GoalSubject) -> GoalState:
        return _PairState(self, subject.classes)


class _PairState(CellGoalState):
    def __init__(self, goal: Goal, classes: int) -> None:
        self.classes = classes
        super().__init__(goal, classes**2, 1.0)

    def cells(self, outcomes: Outcomes) -> Integers:
        return _numbered((outcomes.true[:, None], self.classes), (outcomes.classes, self.classes))


@registry.register("goal", "seed", paper="", cost="8 bytes per seed", main="weight")
class NewSeed(Goal):
    """The first fault of a seed."""

    def start(self, subject: GoalSubject) -> GoalState:
        return _SeedState(self, subject.seeds, 4.0)


class _SeedState(CellGoalState):
    def cells(self, outcomes: Outcomes) -> Integers:
        return _numbered((outcomes.root[:, None], self.size))


@registry.register("goal", "smaller", paper="", cost="8 bytes per seed", main="weight")
class SmallerChange(Goal):
    """A fault of a broken seed with a smaller change (L2) than any before: worth the share by which it is smaller."""

    weight: float = setting(0.5, "0.5 by default", least=0)

    def start(self, subject: GoalSubject) -> GoalState:
        return _SmallerState(self, subject.seeds)


class _SmallerState(GoalState):
    def __init__(self, goal: Goal, seeds: int) -> None:
        super().__init__(goal)
        self.smallest = np.full(seeds, np.inf)

    def by_change(self, root: Integers, size: Floats) -> Floats:
        return np.asarray(self.goal.weight * np.maximum(0.0, 1 - size / self.smallest[root][:, None]))

    def observe(self, outcomes: Outcomes, fault: NDArray[np.bool_], size: Floats) -> Integers:
        news = np.zeros(len(outcomes), dtype=np.int64)
        for row in np.flatnonzero(fault).tolist():
            root = outcomes.root[row]
            if size[row] < self.smallest[root]:
                news[row] = int(np.isfinite(self.smallest[root]))
                self.smallest[root] = size[row]
        self.count += int(news.sum())
        return news

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {**super().arrays(), "smallest": self.smallest}

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        super().restore(arrays)
        self.smallest = np.array(arrays["smallest"])

    def changes(self) -> dict[str, NDArray[Any]]:
        return {**super().changes(), "smallest": self.smallest}

    def learn(self, changes: Mapping[str, NDArray[Any]]) -> None:
        super().learn(changes)
        self.smallest = np.minimum(self.smallest, changes["smallest"])


@registry.register("goal", "aim", paper="", cost="8 bytes per seed and class", main="at")
class Aim(Goal):
    """For each seed, a fault of the kind aimed at: `at` is `TRUE -> PREDICTED`, names or numbers of classes, `*` for any."""

    weight: float = setting(4.0, "4 by default", least=0)
    at: str = "* -> *"

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self._sides()) != 2 or not all(self._sides()):
            raise BadInput("syntax", "aim", f"aim {self.at!r}: write 'TRUE -> PREDICTED', for example 'stop sign -> *'.")

    def _sides(self) -> list[str]:
        return [side.strip() for side in str(self.at).split("->")]

    def start(self, subject: GoalSubject) -> GoalState:
        return _AimState(self, subject, *(self._matching(side, subject) for side in self._sides()))

    def _matching(self, side: str, subject: GoalSubject) -> NDArray[np.bool_]:
        names = subject.class_names or tuple(str(i) for i in range(subject.classes))
        matches = [fnmatchcase(names[i], side) or str(i) == side if i < len(names) else False for i in range(subject.classes)]
        if not any(matches):
            shown = ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")
            raise BadInput(
                "unknown-name",
                "aim",
                f"aim {self.at!r}: no class is called {side!r}; there are {shown} (or 0 to {subject.classes - 1}).",
            )
        return np.array(matches)


class _AimState(CellGoalState):
    def __init__(self, goal: Goal, subject: GoalSubject, true: NDArray[np.bool_], predicted: NDArray[np.bool_]) -> None:
        self.classes, self.true, self.predicted = subject.classes, true, predicted
        super().__init__(goal, subject.seeds * subject.classes, 1.0)

    def cells(self, outcomes: Outcomes) -> Integers:
        aimed = self.true[outcomes.true][:, None] & self.predicted[outcomes.classes] & (outcomes.classes >= 0)
        return np.where(aimed, _numbered((outcomes.root[:, None], 0), (outcomes.classes, self.classes)), -1)


@registry.register("goal", "neuron", paper="", cost="8 bytes per neuron, or per combination of `top` of them", main="top")
class NewNeuron(Goal):
    """A fault where another hidden neuron (top=1) or decision path (the `top` of them) stands out than at any fault before.

    Neurons of the last hidden layer; the one whose value is farthest from the seeds' mean, in units of their spread, stands out
    most. What stands out in a mutant is forecast to be what stands out in its parent.
    """

    top: int = setting(1, "1 looks at single neurons, 2 or 3 at paths")

    @property
    def top_neurons(self) -> int:  # type: ignore[override]
        return self.top

    def start(self, subject: GoalSubject) -> GoalState:
        return _NeuronState(self, subject.neurons, self.top)


class _NeuronState(CellGoalState):
    def __init__(self, goal: Goal, neurons: int, top: int) -> None:
        self.neurons, self.top = neurons, top
        super().__init__(goal, max(1, neurons) ** top, 2.0)

    def cells(self, outcomes: Outcomes) -> Integers:
        path = np.sort(outcomes.neurons[:, : self.top], axis=1)
        return _numbered(*((path[:, i : i + 1], self.neurons) for i in range(self.top)))
