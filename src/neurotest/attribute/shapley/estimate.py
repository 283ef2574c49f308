"""Estimates of Shapley values, each with an interval.

KernelSHAP: coalitions in pairs with their complements, and a weighted least squares fit. Random orders: neurons join one after
the other, and each is credited with what it changed. `certify` ranks the most excitable neurons over many pairs; those that
cannot be among them are dropped early.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations, islice

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from neurotest import rng
from neurotest.attribute.shapley.game import Game
from neurotest.checks import integer, number
from neurotest.errors import BadInput
from neurotest.stats.bootstrap import t_quantile

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Estimate:
    """Values of one pair with their intervals: each (players,), 0 for neurons that do not play."""

    values: Tensor
    low: Tensor
    high: Tensor
    coalitions: int  # how many were run
    complete: bool = False  # every coalition was: the values are exact

    @classmethod
    def around(
        cls, game: Game, who: Tensor, values: Tensor | float, half: Tensor | float, coalitions: int, complete: bool = False
    ) -> Estimate:
        """Of the neurons that play (n,): values and half widths of their intervals."""
        mean, reach = (torch.zeros(len(game.players), dtype=torch.float64) for _ in range(2))
        mean[who], reach[who] = values, half
        return cls(mean, mean - reach, mean + reach, coalitions, complete)


@dataclass(frozen=True, eq=False)
class Coalitions:
    """Coalitions (m, n), complements next to each other, and their weights; `sampled` are the last so many."""

    masks: NDArray[np.bool_]
    weights: Floats
    sampled: int


def kernel(game: Game, row: int = 0, *, coalitions: int = 200, level: float = 0.95, seed: int = 0) -> Estimate:
    """Fit the values of one pair to so many coalitions (2 forward passes each); they sum to the loss change exactly.

    The smallest and largest coalitions, which weigh most, are enumerated as far as the number goes; the rest is drawn, each with
    its complement, which cancels what two neurons do together.
    """
    number("level", level, "0.95 is usual", above=0, below=1)
    who = torch.nonzero(game.active[row])[:, 0]
    n = len(who)
    if n > 2 and coalitions < 2 * n:
        message = f"coalitions={coalitions}: {n} neurons play, expected at least {2 * n} (every one alone and left out)."
        raise BadInput("out-of-range", "coalitions", message)
    total = float(game.full[row] - game.empty[row])
    if n <= 1:
        return Estimate.around(game, who, total, 0.0, 0, True)
    plan = choose(n, coalitions, rng.stream("shapley.kernel", seed, row))
    masks = torch.zeros(len(plan.masks), len(game.players), dtype=torch.bool)
    masks[:, who] = torch.from_numpy(plan.masks)
    worth = game.value(torch.full((len(masks),), row), masks | ~game.active[row]).numpy() - float(game.empty[row])
    values, half = _fit(plan, worth, total, level)
    return Estimate.around(game, who, torch.from_numpy(values), torch.from_numpy(half), len(masks), plan.sampled == 0)


def choose(n: int, most: int, random: np.random.Generator) -> Coalitions:
    """Whole sizes from the outside inwards while drawing would give them as many, then pairs drawn by the kernel's weight."""
    masks: list[NDArray[np.bool_]] = []
    weights: list[float] = []
    size = 1
    while size <= n // 2 and (count := math.comb(n, size) // (2 if 2 * size == n else 1)) * 2 <= _due(n, size, most - len(masks)):
        each = (n - 1) / (math.comb(n, size) * size * (n - size))
        for members in islice(combinations(range(n), size), count):  # half of the sets of half size are the others' complements
            one = np.zeros(n, dtype=bool)
            one[list(members)] = True
            masks += [one, ~one]
            weights += [each, each]
        size += 1
    sizes = np.arange(size, n - size + 1)
    pairs = (most - len(masks)) // 2
    if not len(sizes) or pairs < 1:
        return Coalitions(np.array(masks), np.array(weights), 0)
    mass = (n - 1) / (sizes * (n - sizes))
    drawn = _drawn(n, sizes, mass / mass.sum(), pairs, random)
    each = float(mass.sum()) / (2 * sum(drawn.values()))
    for key, times in drawn.items():
        one = np.frombuffer(key, dtype=bool)
        masks += [one, ~one]
        weights += [each * times, each * times]
    return Coalitions(np.array(masks), np.array(weights), 2 * len(drawn))


def _due(n: int, size: int, left: int) -> float:
    """How many of `left` coalitions have this size or its complement's when they are drawn from this size on inwards."""
    if left >= sum(math.comb(n, s) for s in range(size, n - size + 1)):
        return left
    sizes = np.arange(size, n - size + 1)
    mass = 1 / (sizes * (n - sizes))
    return float(left * mass[sizes == size].sum() * (1 if 2 * size == n else 2) / mass.sum())


def _drawn(n: int, sizes: NDArray[np.int64], chances: Floats, pairs: int, random: np.random.Generator) -> dict[bytes, int]:
    """Distinct pairs, and how often each was drawn."""
    counts: dict[bytes, int] = {}
    for _ in range(20 * pairs):
        one = np.zeros(n, dtype=bool)
        one[random.permutation(n)[: int(random.choice(sizes, p=chances))]] = True
        key = one.tobytes() if one[0] else (~one).tobytes()
        if key not in counts and len(counts) >= pairs:
            break
        counts[key] = counts.get(key, 0) + 1
    return counts


def _fit(plan: Coalitions, worth: Floats, total: float, level: float) -> tuple[Floats, Floats]:
    """Least squares under the condition that the values sum to `total`; half widths of the intervals beside them."""
    z = plan.masks.astype(np.float64)
    n = z.shape[1]
    normal = (z * plan.weights[:, None]).T @ z
    system = np.block([[normal, np.ones((n, 1))], [np.ones((1, n)), np.zeros((1, 1))]])
    inverse = np.linalg.pinv(system)
    values = (inverse @ np.concatenate([(z * plan.weights[:, None]).T @ worth, [total]]))[:n]
    pairs = plan.sampled // 2
    if pairs < 2:
        # Enumerated only: no chance was involved, unless sizes in the middle were left out for want of coalitions.
        return values, np.zeros(n) if plan.masks.shape[0] == 2**n - 2 else np.full(n, np.abs(worth).max())
    pull = inverse[:n, :n]
    lever = plan.weights * np.einsum("ij,jk,ik->i", z, pull, z)  # how far the fit bends towards each coalition
    rest = (worth - z @ values) * plan.weights / np.clip(1 - lever, 0.05, None)
    drawn = (z * rest[:, None])[-plan.sampled :].reshape(pairs, 2, n).sum(1)  # what each drawn pair pulled
    spread = drawn - drawn.mean(0)
    middle = spread.T @ spread * pairs / (pairs - 1)
    error = np.sqrt(np.clip(np.diag(pull @ middle @ pull.T), 0, None))
    # The fit takes n - 1 degrees of freedom away from what the drawn pairs still show.
    return values, error * t_quantile((1 + level) / 2, max(1.0, pairs - (n - 1) * 2 * pairs / len(z)))


# -- random orders

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
