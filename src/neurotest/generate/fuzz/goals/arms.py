"""What a plan chooses from: every rule of the mutations, and how much two rules have to do with each other."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from neurotest.mutate.base import WIDTH, Draws, Family, Mutations

NEAR, LEAST = 0.15, 0.01  # of a family's range: how far one rule tells of another; and what any two rules of a family share


def _kinship(family: Family) -> NDArray[np.float64]:
    """(rules, rules) how much the rules of a family tell of each other: 1 of itself, less with the distance of parameters."""
    rows = np.asarray(family.rules, dtype=float)
    if family.operator.mildest_first is not None:  # numbers that name kinds are no distances
        apart = 1.0 - np.eye(len(rows))
    else:
        width = np.ptp(rows, axis=0)
        scaled = (rows - rows.min(axis=0)) / np.where(width > 0, width, 1)
        apart = np.sqrt(((scaled[:, None] - scaled[None]) ** 2).sum(-1))
    return np.maximum(np.exp(-((apart / NEAR) ** 2)), LEAST)


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
