"""What all mutations have in common: families of changes that are drawn, described, applied and replayed in one way."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from neurotest.checks import Settings
from neurotest.devices import exact
from neurotest.errors import BadInput
from neurotest.levels import EIGHT, Levels
from neurotest.mutate.operators import Affine, Operator, RangeOperator, warp

UNIFORMS = 3  # per draw: which family or rule, which value, which noise
WIDTH = 3  # columns of a parameter row
PORTIONS = np.arange(15, 0, -1) / 16  # how far towards changing nothing
# A value halfway between two of 8 bits is rounded up though the arithmetic may fall just below it: how a batch is put together
# changes the last bits of a blur, and a mutant must come out the same when it is made again alone.
NUDGE = 2e-3


@dataclass(frozen=True)
class Draws:
    """What was drawn for each item: `kind[i]` numbers the family in `names`, `parameters[i]` are its values."""

    names: tuple[str, ...]
    kind: np.ndarray  # (n,) int8
    parameters: np.ndarray  # (n, columns) float64, unused columns are 0
    rule: np.ndarray | None = None  # (n,) which of all rules; -1: a draw that is not from a list of rules

    def __len__(self) -> int:
        return len(self.kind)

    def __getitem__(self, index: Any) -> Draws:
        return Draws(self.names, self.kind[index], self.parameters[index], None if self.rule is None else self.rule[index])

    def describe(self, i: int) -> dict[str, Any]:
        """Item i's draw as plain data; a list of such is what `chain.read` takes."""
        return {"operator": self.names[self.kind[i]], "parameters": [float(v) for v in self.parameters[i]]}


@dataclass(frozen=True)
class Family:
    """One family: an operator and the parameter rows it may take, its rules; without rules any value of the operator's range.

    neutral: the row that changes nothing. once: allowed once per lineage; the reference image moves with it. seeded: a last
    column numbers the noise. exempt: not subject to validity.
    """

    name: str
    operator: Operator
    rules: tuple[tuple[float, ...], ...]
    neutral: tuple[float, ...]
    once: bool = False
    seeded: bool = False
    exempt: bool = False

    @property
    def columns(self) -> int:
        return len(self.neutral) + self.seeded

    @property
    def numbered(self) -> bool:
        """Whether a rule says all: its result on an input is always the same."""
        return bool(self.rules) and not self.seeded

    def pick(self, value: NDArray[np.float64], noise: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Parameter rows (n, columns) out of two uniform numbers each, and which rules they are."""
        if not self.rules:
            assert isinstance(self.operator, RangeOperator)
            return self.operator.at(np.column_stack([value, noise])), np.zeros(len(value), dtype=np.int64)
        rule = np.minimum((value * len(self.rules)).astype(np.int64), len(self.rules) - 1)
        rows = np.asarray(self.rules)[rule]
        return (np.column_stack([rows, np.floor(noise * 2**53)]) if self.seeded else rows), rule

    def milder(self, parameters: tuple[float, ...]) -> Iterator[tuple[float, ...]]:
        """The same change with less of it, least first."""
        if (order := self.operator.mildest_first) is not None:
            yield from ((value,) for value in order[: order.index(parameters[0]) if parameters[0] in order else 0])
            return
        width = len(self.neutral)
        for portion in PORTIONS:
            row = tuple(float(v + portion * (n - v)) for v, n in zip(parameters, self.neutral, strict=False))
            row = tuple(float(round(v)) for v in row) if self.operator.integers else row
            if row not in (self.neutral, parameters[:width]):
                yield (*row, *parameters[width:])


@dataclass(frozen=True, kw_only=True)
class Mutations(Settings, ABC):
    """Base of all mutations: a subclass says its families."""

    formerly: ClassVar[tuple[str, ...]] = ()  # names of the class in the runs of older versions
    audio: ClassVar[bool] = False  # whether it changes waveforms

    @abstractmethod
    def _families(self) -> Sequence[Family]: ...

    @cached_property
    def families(self) -> tuple[Family, ...]:
        return tuple(self._families())

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(family.name for family in self.families)

    @cached_property
    def once(self) -> NDArray[np.bool_]:
        return np.array([family.once for family in self.families])

    @property
    def exact(self) -> bool:
        """Matrices in double precision and halves rounded up: no bit depends on what else is in the batch."""
        return True

    def fitted(self, x: Tensor) -> Mutations:
        """With what these images (n, ...) in [0, 1] say of the data; most mutations have nothing to learn from them."""
        return self

    def unfitted(self) -> Mutations:
        """As it was before."""
        return self

    @property
    def needs_root(self) -> bool:
        """Whether `apply` looks at the seed."""
        return False

    @cached_property
    def idle(self) -> NDArray[np.bool_]:
        """(rules + 1,) which change nothing; the last stands for draws that are not from a list of rules."""
        same = [not family.seeded and rule == family.neutral for family in self.families for rule in family.rules]
        return np.array([*same, False])

    def find(self, name: str) -> Family:
        if name in self.names:
            return self.families[self.names.index(name)]
        raise BadInput("unknown-name", "mutation", f"{name!r} is none of these mutations: {', '.join(self.names)}.")

    def draw(self, random: np.random.Generator, n: int) -> Draws:
        """One mutation for each of n items."""
        return self.draw_from(random.random((n, UNIFORMS)))

    def draw_from(self, uniforms: NDArray[np.float64], used: NDArray[np.bool_] | None = None) -> Draws:
        """One mutation per row of uniform numbers (n, 3); where `used`, the lineage has had its once-only one."""
        used = np.zeros(len(uniforms), dtype=bool) if used is None else used
        kind = np.zeros(len(uniforms), dtype=np.int8)
        for state in (False, True):
            rows = np.flatnonzero(used == state)
            if len(rows):
                kind[rows] = self._choose(uniforms[rows, 0], state)
        parameters, rules, first = np.zeros((len(uniforms), WIDTH)), np.full(len(uniforms), -1, dtype=np.int64), 0
        for number, family in enumerate(self.families):
            mine = np.flatnonzero(kind == number)
            if len(mine):
                parameters[mine, : family.columns], rule = family.pick(uniforms[mine, 1], uniforms[mine, 2])
                rules[mine] = first + rule if family.numbered else -1
            first += len(family.rules)
        return Draws(self.names, kind, parameters, rules)

    def _choose(self, uniforms: NDArray[np.float64], used: bool) -> NDArray[np.int8]:
        allowed = np.flatnonzero(~self.once) if used else np.arange(len(self.families))
        if not len(allowed):
            raise BadInput("conflict", "max_depth", "each of these mutations is allowed once per lineage: set max_depth to 1.")
        weights = np.array([self._weight(self.families[i]) for i in allowed], dtype=float)
        edges = np.cumsum(weights) / weights.sum()
        place = np.minimum(np.searchsorted(edges, uniforms, side="right"), len(allowed) - 1)
        return allowed[place].astype(np.int8)

    def _weight(self, family: Family) -> int:
        """How often a family is drawn beside the others."""
        return 1

    def apply(self, x: Tensor, draws: Draws, *, root: Tensor | None = None, levels: Levels | None = EIGHT) -> Tensor:
        """Apply each item's draw to a batch in [0, 1], clipped and rounded to the levels a file holds."""
        self.check(tuple(x.shape[1:]))
        if len(draws) != len(x) or draws.names != self.names:
            raise BadInput(
                "wrong-count",
                "draws",
                f"{len(draws)} draws of {', '.join(draws.names)} do not fit {len(x)} inputs and {', '.join(self.names)}.",
            )
        like, x = x, self._working(x, levels)
        out = x.clone()
        parameters = torch.from_numpy(draws.parameters)
        parameters = parameters if self.exact else parameters.to(x)
        matrices, moved = [], []
        for number, family in enumerate(self.families):
            mine = torch.from_numpy(np.flatnonzero(draws.kind == number)).to(x.device)
            if not len(mine):
                continue
            rows = parameters[mine.to(parameters.device)]
            if isinstance(family.operator, Affine) and family.operator.batched:
                moved.append(mine)
                matrices.append(family.operator.matrix(rows, x.shape[2], x.shape[3]))
            else:
                out[mine] = family.operator.apply(x[mine], rows)
        if moved:  # one call for every affine item of a batch
            index = torch.cat(moved)
            out[index] = warp(x[index], torch.cat(matrices).to(x))
        return self._finish(out, None if root is None else root.to(x.device), levels).to(like)

    def _working(self, x: Tensor, levels: Levels | None) -> Tensor:
        """In the precision that operators need: where nothing is rounded, the last bit would depend on the rest of the batch."""
        return exact(x) if levels is None and self.exact else x

    def _finish(self, x: Tensor, root: Tensor | None, levels: Levels | None) -> Tensor:
        """Clip and round, in place: x belongs to `apply`."""
        if levels and not self.exact:
            return levels.nearest(x)
        x = x.nan_to_num_()
        if levels is None:
            return x.clamp_(0, 1)
        return x.mul_(levels.steps).add_(0.5 + NUDGE).clamp_(0, levels.highest).floor_().div_(levels.steps)

    def check(self, shape: tuple[int, ...]) -> None:
        """Refuse inputs that cannot be changed so."""
        if len(shape) != 3:
            raise BadInput(
                "unsuitable",
                "shape",
                f"these mutations need images (channels, height, width), not inputs of shape {shape}; `fuzz --mutations "
                "audio` takes audio, `--mutations tensorfuzz` anything.",
            )


@dataclass(frozen=True, kw_only=True)
class RuleMutations(Mutations):
    """Base of those with lists of rules. choice: `family` draws families equally often, `rule` rules."""

    choice: Literal["family", "rule"] = "family"

    def _weight(self, family: Family) -> int:
        return len(family.rules) if self.choice == "rule" else 1


@dataclass(frozen=True, kw_only=True)
class RoundedMutations(Mutations):
    """Base of the mutations of pools and scores. rounding: `exact` (a mutant is the same in every batch, so that it can be
    replayed), or `pool` (single precision and halves to even, as in the candidate pools and scores published so far)."""

    rounding: Literal["exact", "pool"] = "exact"

    @property
    def exact(self) -> bool:
        return self.rounding == "exact"


def single(values: Sequence[float]) -> tuple[tuple[float, ...], ...]:
    """Rules of one parameter."""
    return tuple((float(v),) for v in values)
