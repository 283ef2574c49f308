"""KernelSHAP: coalitions in pairs with their complements, a weighted least squares fit, and an interval for every value."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations, islice

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from neurotest import rng
from neurotest.attribute.shapley.game import Game
from neurotest.checks import number
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


@dataclass(frozen=True, eq=False)
class Plan:
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
        raise BadInput(
            "out-of-range",
            "coalitions",
            f"coalitions={coalitions}: {n} neurons play, expected at least {2 * n} (every one alone and left out).",
        )
    zero = torch.zeros(len(game.players), dtype=torch.float64)
    total = float(game.full[row] - game.empty[row])
    if n <= 1:
        zero[who] = total
        return Estimate(zero, zero.clone(), zero.clone(), 0, True)
    plan = choose(n, coalitions, rng.stream("shapley.kernel", seed, row))
    masks = torch.zeros(len(plan.masks), len(game.players), dtype=torch.bool)
    masks[:, who] = torch.from_numpy(plan.masks)
    worth = game.value(torch.full((len(masks),), row), masks | ~game.active[row]).numpy() - float(game.empty[row])
    values, half = fit(plan, worth, total, level)
    mean, reach = zero.clone(), zero.clone()
    mean[who], reach[who] = torch.from_numpy(values), torch.from_numpy(half)
    return Estimate(mean, mean - reach, mean + reach, len(masks), plan.sampled == 0)


def choose(n: int, most: int, random: np.random.Generator) -> Plan:
    """Whole sizes from the outside inwards while drawing would give them as many, then pairs drawn by the kernel's weight."""
    masks: list[NDArray[np.bool_]] = []
    weights: list[float] = []
    size = 1
    while size <= n // 2 and (count := _pairs(n, size)) * 2 <= _due(n, size, most - len(masks)):
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
        return Plan(np.array(masks), np.array(weights), 0)
    mass = (n - 1) / (sizes * (n - sizes))
    drawn = _drawn(n, sizes, mass / mass.sum(), pairs, random)
    each = float(mass.sum()) / (2 * sum(drawn.values()))
    for key, times in drawn.items():
        one = np.frombuffer(key, dtype=bool)
        masks += [one, ~one]
        weights += [each * times, each * times]
    return Plan(np.array(masks), np.array(weights), 2 * len(drawn))


def _pairs(n: int, size: int) -> int:
    return math.comb(n, size) // (2 if 2 * size == n else 1)


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


def fit(plan: Plan, worth: Floats, total: float, level: float) -> tuple[Floats, Floats]:
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
