"""What a plan chooses from: seeds, for each seed and class the mutant closest to it, and the rules that may be applied."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neurotest.mutate.base import WIDTH, Draws, Family, Mutations

Integers = NDArray[np.int64]
Cell = tuple[int, int, bool]  # seed, class, whether the lineage has had its once-only mutation
NEAR_SHARE = 0.15  # of a family's range: how far one rule tells of another
LEAST_KINSHIP = 0.01  # of any two rules of a family


@dataclass(frozen=True, eq=False)
class ParentRows:
    """What is known of some inputs, in columns."""

    number: Integers  # (n,) of corpus entries
    root: Integers  # (n,) rows of the seeds
    used: NDArray[np.bool_]  # (n,)
    depth: Integers  # (n,) mutations
    change: NDArray[np.float64]  # (n,) L2 to the seed
    features: NDArray[np.float32]  # (n, width)
    classes: Integers  # (n, k) the classes that count for it
    logits: NDArray[np.float32]  # (n, k) of those, centred and scaled
    neurons: Integers  # (n, top)
    bonus: NDArray[np.float64]  # (n,) what its mutants' worth is multiplied with

    def __len__(self) -> int:
        return len(self.number)

    def __getitem__(self, rows: Any) -> ParentRows:
        return ParentRows(**{name: getattr(self, name)[rows] for name in COLUMNS})


COLUMNS = tuple(column.name for column in fields(ParentRows))


class Parents:
    """Seeds stand in the first rows and stay; elites come and go in the rows behind them."""

    def __init__(self, seeds: ParentRows, arms: int) -> None:
        self.seeds, self.arms = len(seeds), arms
        self._columns = {name: np.array(getattr(seeds, name)) for name in COLUMNS}
        self.alive = np.ones(len(seeds), dtype=bool)
        self.tried = np.zeros((len(seeds), arms), dtype=bool)
        self.elites: dict[Cell, tuple[float, int]] = {}  # margin and number
        self._cells: Counter[int] = Counter()  # of each elite
        self._row = {int(number): row for row, number in enumerate(seeds.number)}

    @property
    def rows(self) -> Integers:
        return np.flatnonzero(self.alive)

    def __getitem__(self, rows: Any) -> ParentRows:
        return ParentRows(**{name: column[rows] for name, column in self._columns.items()})

    def add(self, one: ParentRows, cells: list[tuple[Cell, float]]) -> set[int]:
        """A new elite (one row) that takes these cells; the numbers of those that have none any more."""
        number = int(one.number[0])
        row = self._free()
        for name, column in self._columns.items():
            column[row] = getattr(one, name)[0]
        self.alive[row], self.tried[row], self._row[number] = True, False, row
        retired = set()
        for cell, margin in cells:
            before = self.elites.get(cell)
            self.elites[cell] = (margin, number)
            self._cells[number] += 1
            if before is not None:
                self._cells[before[1]] -= 1
                if not self._cells[before[1]]:
                    retired.add(before[1])
        self.drop(retired)
        return retired

    def drop(self, numbers: set[int]) -> None:
        """These are gone; a seed is too if it has left the corpus."""
        for number in numbers:
            row = self._row.pop(number, None)
            if row is not None:
                self.alive[row] = False
        if any(self._cells.pop(number, 0) for number in numbers):
            self.elites = {cell: elite for cell, elite in self.elites.items() if elite[1] not in numbers}

    def keep_only(self, numbers: set[int]) -> None:
        self.drop(self._row.keys() - numbers)

    def _free(self) -> int:
        """The first row behind the seeds that is not in use."""
        empty = np.flatnonzero(~self.alive[self.seeds :])
        if not len(empty):
            self._resize(2 * len(self.alive) + 16)
            return self._free()
        return self.seeds + int(empty[0])

    def _resize(self, length: int) -> None:
        def grown(column: NDArray[Any]) -> NDArray[Any]:
            return np.concatenate([column, np.zeros((length - len(column), *column.shape[1:]), dtype=column.dtype)])

        self._columns = {name: grown(column) for name, column in self._columns.items()}
        self.alive, self.tried = grown(self.alive), grown(self.tried)

    # -- saving: the seeds' columns are made again

    def arrays(self) -> dict[str, NDArray[Any]]:
        cells = [(*cell, number) for cell, (_, number) in self.elites.items()]
        return {
            **{name: column[self.seeds :] for name, column in self._columns.items()},
            "alive": self.alive, "tried": np.packbits(self.tried, axis=1),
            "elites": np.array(cells, dtype=np.int64).reshape(-1, 4),
            "margins": np.array([margin for margin, _ in self.elites.values()], dtype=np.float64),
        }  # fmt: skip

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        self._columns = {name: np.concatenate([c[: self.seeds], arrays[name]]) for name, c in self._columns.items()}
        self.alive = np.array(arrays["alive"], dtype=bool)
        self.tried = np.unpackbits(arrays["tried"], axis=1, count=self.arms).astype(bool)
        rows = zip(arrays["elites"].tolist(), arrays["margins"].tolist(), strict=True)
        self.elites = {(root, p, bool(used)): (margin, number) for (root, p, used, number), margin in rows}
        self._cells = Counter(number for _, number in self.elites.values())
        self._row = {int(self._columns["number"][row]): int(row) for row in self.rows}


def _kinship(family: Family) -> NDArray[np.float64]:
    """(rules, rules) how much the rules of a family tell of each other: 1 of itself, less with the distance of parameters."""
    rows = np.asarray(family.rules, dtype=float)
    if family.operator.mildest_first is not None:  # numbers that name kinds are not distances
        apart = 1.0 - np.eye(len(rows))
    else:
        width = np.ptp(rows, axis=0)
        scaled = (rows - rows.min(axis=0)) / np.where(width > 0, width, 1)
        apart = np.sqrt(((scaled[:, None] - scaled[None]) ** 2).sum(-1))
    return np.maximum(np.exp(-((apart / NEAR_SHARE) ** 2)), LEAST_KINSHIP)


@dataclass(frozen=True, eq=False)
class Arms:
    """One arm per rule that changes something, families one after the other.

    A family whose rules do not say all of a mutant (noise with a number, values of a range) is a single arm: what is learned of
    it is what its mutants have in common.
    """

    mutations: Mutations
    kind: NDArray[np.int64]  # (arms,) which family
    rule: NDArray[np.int64]  # (arms,) which of all rules; -1: a whole family
    blocks: tuple[slice, ...]  # the arms of each family
    kernels: tuple[NDArray[np.float64], ...]  # of each family, between its arms

    @classmethod
    def of(cls, mutations: Mutations) -> Arms:
        kinds: list[int] = []
        rules: list[int] = []
        blocks, kernels, first = [], [], 0
        for number, family in enumerate(mutations.families):
            start = len(kinds)
            if family.numbered:
                mine = np.flatnonzero(~mutations.idle[first : first + len(family.rules)])
                rules += (first + mine).tolist()
                kinds += [number] * len(mine)
                kernels.append(_kinship(family)[np.ix_(mine, mine)])
            else:
                rules.append(-1)
                kinds.append(number)
                kernels.append(np.ones((1, 1)))
            blocks.append(slice(start, len(kinds)))
            first += len(family.rules)
        return cls(mutations, np.array(kinds), np.array(rules), tuple(blocks), tuple(kernels))

    def __len__(self) -> int:
        return len(self.kind)

    @property
    def repeatable(self) -> NDArray[np.bool_]:
        """(arms,) which give another mutant each time."""
        return self.rule < 0

    @property
    def once(self) -> NDArray[np.bool_]:
        """(arms,) which are allowed once per lineage."""
        return self.mutations.once[self.kind]

    def draws(self, arms: NDArray[np.int64], uniforms: NDArray[np.float64]) -> Draws:
        """The mutations of these arms; uniform numbers (n, 2) say what a rule leaves open."""
        parameters = np.zeros((len(arms), WIDTH))
        firsts = np.cumsum([0, *(len(family.rules) for family in self.mutations.families)])
        for number, family in enumerate(self.mutations.families):
            mine = np.flatnonzero(self.kind[arms] == number)
            if not len(mine):
                continue
            if family.numbered:
                parameters[mine, : family.columns] = np.asarray(family.rules)[self.rule[arms[mine]] - firsts[number]]
            else:
                parameters[mine, : family.columns] = family.pick(uniforms[mine, 0], uniforms[mine, 1])[0]
        return Draws(self.mutations.names, self.kind[arms].astype(np.int8), parameters, self.rule[arms])
