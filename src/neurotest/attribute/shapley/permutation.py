"""Values by random orders: neurons join one after the other, and each is credited with what it changed.

`certify` ranks the most excitable neurons over many pairs, with intervals; those that cannot be among them are dropped early.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from neurotest import rng
from neurotest.attribute.shapley.game import Game
from neurotest.attribute.shapley.kernel import Estimate
from neurotest.checks import integer, number
from neurotest.stats.bootstrap import t_quantile

FIRST_ROUNDS = 4  # of `certify`, before anybody is dropped: an interval from fewer says little
BLOCK = 16  # neurons that join before an order is checked for further change


def permutation(
    game: Game, row: int = 0, *, orders: int = 50, level: float = 0.95, truncate: float = 0.01, seed: int = 0
) -> Estimate:
    """Mean credit over so many orders, with Student's interval; costs at most 2 forward passes per neuron and order.

    truncate: an order ends when a whole block of neurons left the worth within this share of the final one; what then lacks is
    spread evenly over the neurons that did not join, so that the values of every order sum to the loss change. 0: never.
    """
    _check(orders, level, truncate)
    who = torch.nonzero(game.active[row])[:, 0]
    n, total = len(who), float(game.full[row] - game.empty[row])
    if n <= 1:
        return Estimate.around(game, who, total, 0.0, 0, True)
    random = rng.stream("shapley.permutation", seed, row)
    order = torch.from_numpy(np.stack([random.permutation(n) for _ in range(orders)]))  # (orders, n)
    worth = torch.full((orders, n + 1), float("nan"), dtype=torch.float64)
    worth[:, 0], worth[:, n] = game.empty[row], game.full[row]
    ran = _fill(game, row, who, order, worth, truncate * abs(total))
    credit = torch.zeros(orders, n, dtype=torch.float64).scatter(1, order, worth.diff(dim=1))
    half: Tensor | float = float("inf")
    if orders > 1:
        half = credit.std(0) / orders**0.5 * t_quantile((1 + level) / 2, orders - 1)
    return Estimate.around(game, who, credit.mean(0), half, ran)


def _check(orders: int, level: float, truncate: float) -> None:
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


@dataclass(frozen=True, eq=False)
class Certified:
    """Mean value over the pairs per player with its interval, how many rounds it was kept, and its mean value per pair."""

    values: Tensor  # (players,)
    low: Tensor
    high: Tensor
    rounds: Tensor  # (players,) 0: silent on every pair
    per_pair: Tensor  # (pairs, players), as far as the player was kept
    top: Tensor  # (k,) players, most excitable first
    settled: bool  # whether the intervals separate the top from the rest
    coalitions: int


def certify(
    game: Game,
    *,
    k: int = 10,
    rounds: int = 30,
    level: float = 0.95,
    drop: bool = True,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Certified:
    """Random orders, one per pair and round. With `drop`, a neuron goes once its interval lies below that of k others.

    A round's mean over the pairs is one draw, so Student's interval over rounds is about the mean value over these pairs. A
    neuron that was dropped keeps the interval it had; only neighbours of kept neurons are run, so rounds get cheaper.
    """
    _check(rounds, level, 0.0)
    integer("k", k, 1, "10 in the paper's figure")
    integer("rounds", rounds, 2, "an interval needs two")
    race = _Race(game, level)
    ran = 0
    for finished in range(rounds):
        ran += race.round(seed, finished)
        if progress is not None:
            progress(finished + 1, rounds)
        if drop and finished + 1 >= FIRST_ROUNDS and race.drop(k) and int(race.kept.sum()) <= k:
            break
    low, high = race.interval()
    top = race.mean.argsort(descending=True, stable=True)[: min(k, int((race.seen > 0).sum()))]
    others = torch.ones(len(game.players), dtype=torch.bool)
    others[top] = False
    rest = high[others & (race.seen > 0)]
    settled = not len(rest) or not len(top) or bool(rest.max() < low[top].min())
    return Certified(race.mean, low, high, race.seen.long(), race.per_pair(), top, settled, ran)


class _Race:
    """Running sums of credits: over rounds (of means over pairs), and per pair."""

    def __init__(self, game: Game, level: float) -> None:
        self.game, self.level = game, level
        players = len(game.players)
        self.kept = game.active.any(0)
        self.sum, self.squares, self.seen = (torch.zeros(players, dtype=torch.float64) for _ in range(3))
        self.pairs = torch.zeros(len(game), players, dtype=torch.float64)

    def round(self, seed: int, number: int) -> int:
        game, n = self.game, len(self.game.players)
        credit = torch.zeros(len(game), n, dtype=torch.float64)
        rows: list[Tensor] = []
        masks: list[Tensor] = []
        ends: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []
        for row in range(len(game)):
            who = torch.nonzero(game.active[row])[:, 0]
            order = who[torch.from_numpy(rng.stream("shapley.certify", seed, number, row).permutation(len(who)))]
            mine = torch.nonzero(self.kept[order])[:, 0]  # when each kept neuron joins
            steps = torch.unique(torch.cat([mine, mine + 1]))
            inner = steps[(steps > 0) & (steps < len(who))]
            place = torch.full((n,), n + 1)
            place[order] = torch.arange(len(order))
            masks.append((place[None] < inner[:, None]) | ~game.active[row])
            rows.append(torch.full((len(inner),), row))
            ends.append((order, mine, inner, torch.tensor(len(who))))
        worth = game.value(torch.cat(rows), torch.cat(masks)) if sum(map(len, rows)) else torch.empty(0, dtype=torch.float64)
        at = 0
        for row, (order, mine, inner, count) in enumerate(ends):
            table = torch.full((int(count) + 1,), float("nan"), dtype=torch.float64)
            table[0], table[-1] = game.empty[row], game.full[row]
            table[inner] = worth[at : at + len(inner)]
            at += len(inner)
            credit[row, order[mine]] = table[mine + 1] - table[mine]
        self._add(credit)
        return at

    def _add(self, credit: Tensor) -> None:
        mean = credit.mean(0)
        self.sum[self.kept] += mean[self.kept]
        self.squares[self.kept] += mean[self.kept].square()
        self.seen[self.kept] += 1
        self.pairs[:, self.kept] += credit[:, self.kept]

    @property
    def mean(self) -> Tensor:
        return self.sum / self.seen.clamp_min(1)

    def per_pair(self) -> Tensor:
        return self.pairs / self.seen.clamp_min(1)

    def interval(self) -> tuple[Tensor, Tensor]:
        mean = self.mean
        several = self.seen > 1
        spread = ((self.squares - self.seen * mean.square()) / (self.seen - 1).clamp_min(1)).clamp_min(0).sqrt()
        reach = torch.tensor([t_quantile((1 + self.level) / 2, max(1.0, float(s) - 1)) for s in self.seen], dtype=torch.float64)
        half = torch.where(several, spread / self.seen.clamp_min(1).sqrt() * reach, 0.0)
        return mean - half, mean + half

    def drop(self, k: int) -> bool:
        """Let go of neurons that lie clearly below the k best; whether anybody is still in question is for the caller."""
        low, high = self.interval()
        floor = torch.where(self.seen > 0, low, -torch.inf).sort(descending=True).values
        if len(floor) <= k:
            return False
        self.kept &= high >= floor[k - 1]
        return True
