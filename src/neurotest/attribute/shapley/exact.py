"""Exact values, by enumerating every coalition: for a dozen players."""

from __future__ import annotations

import torch
from torch import Tensor

from neurotest.attribute.shapley.game import Game, shapley_weights, subsets
from neurotest.errors import BadInput

MOST = 16  # 65,536 coalitions, twice as many forward passes


def exact(game: Game, row: int = 0) -> Tensor:
    """The values of one pair: (players,), 0 for those that do not play. Costs 2 * 2^players forward passes."""
    who = torch.nonzero(game.active[row])[:, 0]
    n = len(who)
    if n > MOST:
        raise BadInput(f"{n} neurons play: exact values are for at most {MOST}; name fewer layers, or use kernel or permutation.")
    values = torch.zeros(len(game.players), dtype=torch.float64)
    if n == 0:
        return values
    small = subsets(n)
    masks = torch.zeros(len(small), len(game.players), dtype=torch.bool)
    masks[:, who] = small
    masks |= ~game.active[row]  # those who do not play stay as they are
    worth = game.value(torch.full((len(small),), row), masks)  # by counting order
    values[who] = from_table(worth, n)
    return values


def from_table(worth: Tensor, n: int) -> Tensor:
    """Values of n players when `worth` lists all 2^n coalitions in counting order."""
    masks = subsets(n)
    sizes = masks.sum(1)
    weights = torch.tensor(shapley_weights(n), dtype=torch.float64)
    values = torch.zeros(n, dtype=torch.float64)
    for player in range(n):
        without = torch.nonzero(~masks[:, player])[:, 0]
        gain = worth[without + (1 << player)] - worth[without]
        values[player] = (weights[sizes[without]] * gain).sum()
    return values
