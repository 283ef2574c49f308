"""A mutant as a chain: the seed it came from and the mutations it went through, enough to make it again, value for value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from neurotest.errors import BadInput
from neurotest.levels import EIGHT, Levels
from neurotest.mutate.base import WIDTH, Draws, Mutations

REGION = "region"  # only this rectangle differs from the seed: top, left, height, width; written by shrinking
FREE = "swarm-"  # steps that begin so follow no rule: the stored image is their record
CHANGED = "changed values"  # how many differ from the seed; what shrinking writes for a step without a rule
MOST_STEPS = 64  # steps a chain may have


class Mutation(NamedTuple):
    """One mutation."""

    operator: str
    parameters: tuple[float, ...]


Chain = tuple[Mutation, ...]


def step(mutations: Mutations, draws: Draws, i: int) -> Mutation:
    """Item i of a draw."""
    name = draws.names[draws.kind[i]]
    return Mutation(name, tuple(float(v) for v in draws.parameters[i, : mutations.find(name).columns]))


def free(operator: str) -> bool:
    """Whether this follows no rule, so that it cannot be replayed from its seed."""
    return operator.startswith(FREE)


def plain(chain: Chain) -> list[dict[str, Any]]:
    """As JSON takes it."""
    return [{"operator": s.operator, "parameters": list(s.parameters)} for s in chain]


def read(content: Any) -> Chain:
    """The inverse of `plain`, out of a run that may be anybody's."""
    try:
        if not isinstance(content, list) or len(content) > MOST_STEPS:
            raise ValueError
        chain = tuple(Mutation(str(one["operator"]), tuple(float(v) for v in one["parameters"])) for one in content)
        if not all(np.isfinite(s.parameters).all() for s in chain):
            raise ValueError
    except (KeyError, TypeError, ValueError):
        raise BadInput(
            "damaged", "mutation", "a chain of mutations in the run cannot be read: the run is damaged or was changed."
        ) from None
    return chain


def words(chain: Chain) -> str:
    """For people: `rotation 12, blur 3`; numbers of noises are left out."""
    shown = []
    for one in chain:
        values = [f"{v:.3g}" for v in one.parameters if abs(v) < 1e6]
        shown.append(" ".join([one.operator, *values]))
    return ", ".join(shown)


def replay(mutations: Mutations, roots: Tensor, chains: Sequence[Chain], *, levels: Levels | None = EIGHT) -> Tensor:
    """The mutants (n, ...) that these chains make of their seeds (n, ...) in [0, 1]."""
    x = roots.clone()
    for depth in range(max((len(chain) for chain in chains), default=0)):
        mine = [i for i, chain in enumerate(chains) if len(chain) > depth and chain[depth].operator != REGION]
        for i, chain in enumerate(chains):
            if len(chain) > depth and chain[depth].operator == REGION:
                x[i] = _inside(x[i], roots[i], chain[depth].parameters)
        if mine:
            index = torch.tensor(mine, device=x.device)
            draws = draws_of(mutations, [chains[i][depth] for i in mine])
            x[index] = mutations.apply(x[index], draws, root=roots[index], levels=levels)
    return x


def draws_of(mutations: Mutations, steps: Sequence[Mutation]) -> Draws:
    """One step for each item; zeros behind a step's last parameter, as pools record them, are ignored."""
    parameters = np.zeros((len(steps), WIDTH))
    for i, one in enumerate(steps):
        columns = mutations.find(one.operator).columns
        if len(one.parameters) < columns or any(one.parameters[columns:]):
            raise BadInput(
                "damaged", "parameters", f"the mutation {one.operator!r} takes {columns} numbers, not {len(one.parameters)}."
            )
        parameters[i, :columns] = one.parameters[:columns]
    return Draws(mutations.names, np.array([mutations.names.index(one.operator) for one in steps], dtype=np.int8), parameters)


def apply_to_all(mutations: Mutations, x: Tensor, mutation: Mutation, *, levels: Levels | None = EIGHT) -> Tensor:
    """One mutation of every input of a batch in [0, 1]."""
    return mutations.apply(x, draws_of(mutations, [mutation])[np.zeros(len(x), dtype=int)], levels=levels)


def _inside(x: Tensor, root: Tensor, region: Sequence[float]) -> Tensor:
    """x within the rectangle, the seed around it."""
    if len(region) != 4:
        raise BadInput("damaged", "region", f"a region has 4 numbers (top, left, height, width), not {len(region)}.")
    top, left, height, width = (int(v) for v in region)
    out = root.clone()
    out[..., top : top + height, left : left + width] = x[..., top : top + height, left : left + width]
    return out
