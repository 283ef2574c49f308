"""What can be learned before the first label: a head corrected on changed training images, weighted as the pool looks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from neurotest import rng
from neurotest.select.adaptive.bank import PLAIN, Bank
from neurotest.select.adaptive.features import Facts
from neurotest.select.adaptive.learner import quick_head, stacked
from neurotest.select.adaptive.outputs import Outputs

SQUARES, CAP = 30, 9.0  # of the first so many features the squares are looked at too, capped
EACH = 700  # images per operator
EM_STEPS = 60
# Steps of descents, which are then as far down as accelerated ones after sixty.
OPERATOR_STEPS, HEAD_STEPS = 28, 12
EVERYWHERE = 0.1  # weight of every row, whatever the pool looks like
NATURAL, LITTLE = 0.5, 3.0  # a pool that looks so plain, and a promise below so many points: DeepGini's start
PROMISED = (0.02, 0.05, 0.10)


def _expanded(x: Tensor, deviations: Tensor) -> Tensor:
    """[X / sd, the first squares of it, 1]: (n, d) -> (n, d + SQUARES + 1)."""
    even = x / deviations
    return torch.cat([even, even[:, :SQUARES].square().clamp_max(CAP), torch.ones(len(x), 1, dtype=x.dtype)], dim=1)


def _shares_of_operators(
    features: np.ndarray, operators: np.ndarray, count: int, pool: np.ndarray, *, ridge: float = 30.0, seed: int = 0
) -> np.ndarray:
    """(count,) shares of the operators in the pool, from rows of a bank whose operators are known."""
    shuffled = [
        rng.stream("select.shares", seed, number).permutation(np.flatnonzero(operators == number)) for number in range(count)
    ]
    rows = np.concatenate([np.sort(images[:EACH]) for images in shuffled])
    x = torch.from_numpy(features[rows]).float()
    deviations = (x - x.mean(dim=0)).square_().mean(dim=0).sqrt_().clamp_min(1e-9)  # `std` takes ten times as long
    z, classes = _expanded(x, deviations), torch.from_numpy(operators[rows])
    aims = torch.nn.functional.one_hot(classes, count).double()
    none = torch.zeros(len(rows), count, dtype=torch.float64)
    ones = torch.ones(len(rows), dtype=torch.float64)
    weights = quick_head(z, Outputs(none), aims, ones, ridge, steps=OPERATOR_STEPS)
    chances = (_expanded(torch.from_numpy(pool).float(), deviations) @ weights.float()).double().softmax(dim=1)
    return _maximise(chances.numpy(), aims.mean(dim=0).numpy())


def _maximise(chances: np.ndarray, before: np.ndarray, steps: int = EM_STEPS) -> np.ndarray:
    """EM: the class shares under which a classifier's probabilities (n, k), made with shares `before`, fit the pool."""
    shares = before
    ratio = chances / np.maximum(before, 1e-12)
    for _ in range(steps):  # the mean over inputs of ratio x shares, each row divided by its sum
        shares = shares * ((1 / np.maximum(ratio @ shares, 1e-300)) @ ratio) / len(ratio)
    return np.asarray(shares)


@dataclass(frozen=True)
class Prior:
    """head (d + 1, classes): what to add to the logits. stack: weights of 1, DeepGini and the head in log-odds.

    shares: of the operators in the pool, by EM. promise: expected gain over DeepGini in points of FDR. guarded: the pool looks
    natural and little was promised, so the start is DeepGini's.
    """

    head: Tensor
    stack: tuple[float, float, float]
    shares: dict[str, float]
    promise: float
    guarded: bool
    trained: bool = True  # with true labels; False: with the network's own predictions, from the pool itself


def _with_one(features: np.ndarray) -> Tensor:
    x = torch.from_numpy(np.ascontiguousarray(features)).float()
    return torch.cat([x, torch.ones(len(x), 1)], dim=1)


def learn(bank: Bank, pool: Facts, *, ridge: float = 30.0, seed: int = 0) -> Prior:
    """From a bank with true labels and the unlabelled pool, in one basis."""
    count = len(bank.names)
    pi = _shares_of_operators(bank.facts.features, bank.operators, count, pool.features, ridge=ridge, seed=seed)
    sizes = np.bincount(bank.operators, minlength=count)
    portion = pi[bank.operators] / sizes[bank.operators]  # sums to 1
    weights = torch.from_numpy((1 - EVERYWHERE) * portion * len(bank) + EVERYWHERE)
    outputs, labels = bank.facts.outputs, torch.from_numpy(bank.labels)
    head, oof = _crossfit(bank, weights, ridge)
    faults = (labels != outputs.predicted).double()
    gini = outputs.gini_odds()
    constant, plain, slope = stacked(torch.stack([gini, oof], dim=1), faults, weights)
    mixed = constant + plain * gini + slope * oof
    promise = _gain(mixed.numpy(), gini.numpy(), faults.numpy() > 0.5, portion)
    by_name = dict(zip(bank.names, pi.tolist(), strict=True))
    guarded = by_name.get(PLAIN, 0.0) >= NATURAL and promise < LITTLE
    return Prior(head, (0.0, 1.0, 0.0) if guarded else (constant, plain, slope), by_name, promise, guarded)


def _crossfit(bank: Bank, weights: Tensor, ridge: float) -> tuple[Tensor, Tensor]:
    """The mean of the heads of the even and of the odd images, and each row's fault odds by the head that has not seen it."""
    x, outputs, labels = _with_one(bank.facts.features), bank.facts.outputs, torch.from_numpy(bank.labels)
    odd = torch.from_numpy(bank.images % 2 == 1)
    heads, odds = [], torch.empty(len(bank), dtype=torch.float64)
    for half in (odd, ~odd):
        some = outputs[half]
        aims = some.aims(labels[half])
        heads.append(quick_head(x[half], some, aims, weights[half], ridge, steps=HEAD_STEPS))
        others = outputs[~half]
        odds[~half] = others.corrected(x[~half].double(), heads[-1]).fault_odds(others.predicted)
    return (heads[0] + heads[1]) / 2, odds


def _gain(ours: np.ndarray, theirs: np.ndarray, faults: np.ndarray, portion: np.ndarray) -> float:
    """Difference of two scores in points: the share of faults among the rows that make up 2, 5 and 10 % of the weight."""
    first, second = (np.array(_rates(scores, faults, portion, PROMISED)) for scores in (ours, theirs))
    return 100 * float((first - second).mean())


def _rates(scores: np.ndarray, faults: np.ndarray, portion: np.ndarray, budgets: Sequence[float]) -> list[float]:
    """Weighted share of faults in the highest-scored rows that together weigh each of these budgets of all."""
    order = np.argsort(-scores, kind="stable")
    weight = portion[order] / portion.sum()
    before = np.cumsum(weight) - weight
    inside = [np.clip(budget - before, 0, weight) for budget in budgets]  # the last row counts in part
    return [float((part * faults[order]).sum() / part.sum()) for part in inside]


def from_pool(bank: Bank, *, ridge: float = 30.0) -> Prior:
    """Without training data: from changed copies of pool inputs whose prediction is taken for the truth."""
    head, _ = _crossfit(bank, torch.ones(len(bank), dtype=torch.float64), ridge)
    return Prior(head, (0.0, 1.0, 0.0), {}, 0.0, guarded=False, trained=False)
