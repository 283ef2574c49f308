"""Values by random orders: neurons join one after the other, and each is credited with what it changed."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from neurotest import rng
from neurotest.attribute.shapley.game import Game
from neurotest.attribute.shapley.kernel import Estimate
from neurotest.checks import integer, number
from neurotest.stats.bootstrap import t_quantile

BLOCK = 16  # neurons that join before an order is checked for further change


def permutation(
    game: Game, row: int = 0, *, orders: int = 50, level: float = 0.95, truncate: float = 0.01, seed: int = 0
) -> Estimate:
    """Mean credit over so many orders, with Student's interval; costs at most 2 forward passes per neuron and order.

    truncate: an order ends when a whole block of neurons left the worth within this share of the final one; what then lacks is
    spread evenly over the neurons that did not join, so that the values of every order sum to the loss change. 0: never.
    """
    check(orders, level, truncate)
    who = torch.nonzero(game.active[row])[:, 0]
    n, total = len(who), float(game.full[row] - game.empty[row])
    zero = torch.zeros(len(game.players), dtype=torch.float64)
    if n <= 1:
        zero[who] = total
        return Estimate(zero, zero.clone(), zero.clone(), 0, True)
    random = rng.stream("shapley.permutation", seed, row)
    order = torch.from_numpy(np.stack([random.permutation(n) for _ in range(orders)]))  # (orders, n)
    worth = torch.full((orders, n + 1), float("nan"), dtype=torch.float64)
    worth[:, 0], worth[:, n] = game.empty[row], game.full[row]
    ran = _fill(game, row, who, order, worth, truncate * abs(total))
    credit = torch.zeros(orders, n, dtype=torch.float64).scatter(1, order, worth.diff(dim=1))
    values, half = zero.clone(), zero.clone()
    values[who] = credit.mean(0)
    if orders > 1:
        half[who] = credit.std(0) / orders**0.5 * t_quantile((1 + level) / 2, orders - 1)
    else:
        half[who] = float("inf")
    return Estimate(values, values - half, values + half, ran)


def check(orders: int, level: float, truncate: float) -> None:
    integer("orders", orders, 1, "50 or more give useful intervals")
    number("level", level, "0.95 is usual", above=0, below=1)
    number("truncate", truncate, "0: never, 0.01 is usual", least=0, below=1)


def _fill(game: Game, row: int, who: Tensor, order: Tensor, worth: Tensor, near: float) -> int:
    """Run prefixes block by block until every order is through or has nothing left to change; coalitions that were run."""
    n, ran = order.shape[1], 0
    open_ = torch.arange(len(order))
    place = order.argsort(1)  # when each neuron joins
    for start in range(1, n, BLOCK):
        steps = torch.arange(start, min(start + BLOCK, n))
        masks = torch.zeros(len(open_) * len(steps), len(game.players), dtype=torch.bool)
        masks[:, who] = (place[open_][:, None, :] < steps[None, :, None]).reshape(-1, n)
        values = game.value(torch.full((len(masks),), row), masks | ~game.active[row]).view(len(open_), len(steps))
        worth[open_[:, None], steps] = values
        ran += len(masks)
        steady = ((values - worth[open_, n][:, None]).abs() < near).all(1)
        if bool(steady.any()):
            left = torch.arange(int(steps[-1]), n + 1).double()
            share = (left - left[0]) / (left[-1] - left[0])
            done = open_[steady]
            first, last = worth[done, int(steps[-1])], worth[done, n]
            worth[done, int(steps[-1]) :] = first[:, None] + share * (last - first)[:, None]
            open_ = open_[~steady]
        if not len(open_):
            break
    return ran
