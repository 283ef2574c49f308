"""Which changes a pool looks as if it had gone through: a classifier of operators, and EM over the unlabelled pool."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from neurotest import rng
from neurotest.select.adaptive.heads import quick_head
from neurotest.select.adaptive.outputs import Outputs

SQUARES, CAP = 30, 9.0  # of the first so many features the squares are looked at too, capped
EACH = 700  # images per operator
DESCENT = 28  # steps of the classifier's descent: it is then as far down as an accelerated one after sixty
STEPS = 60  # of EM


def _expanded(x: Tensor, deviations: Tensor) -> Tensor:
    """[X / sd, the first squares of it, 1]: (n, d) -> (n, d + SQUARES + 1)."""
    even = x / deviations
    return torch.cat([even, even[:, :SQUARES].square().clamp_max(CAP), torch.ones(len(x), 1, dtype=x.dtype)], dim=1)


def estimate(
    features: np.ndarray, operators: np.ndarray, count: int, pool: np.ndarray, *, ridge: float = 30.0, seed: int = 0
) -> np.ndarray:
    """(count,) shares of the operators in the pool, from rows of a bank whose operators are known."""
    rows = np.concatenate([_some(np.flatnonzero(operators == number), seed, number) for number in range(count)])
    x = torch.from_numpy(features[rows]).float()
    deviations = (x - x.mean(dim=0)).square_().mean(dim=0).sqrt_().clamp_min(1e-9)  # `std` takes ten times as long
    z, classes = _expanded(x, deviations), torch.from_numpy(operators[rows])
    aims = torch.nn.functional.one_hot(classes, count).double()
    none = torch.zeros(len(rows), count, dtype=torch.float64)
    ones = torch.ones(len(rows), dtype=torch.float64)
    weights = quick_head(z, Outputs(none), aims, ones, ridge, steps=DESCENT)
    chances = (_expanded(torch.from_numpy(pool).float(), deviations) @ weights.float()).double().softmax(dim=1)
    return _maximise(chances.numpy(), aims.mean(dim=0).numpy())


def _some(rows: np.ndarray, seed: int, number: int) -> np.ndarray:
    return np.sort(rng.stream("select.shares", seed, number).permutation(rows)[:EACH])


def _maximise(chances: np.ndarray, before: np.ndarray, steps: int = STEPS) -> np.ndarray:
    """EM: the class shares under which a classifier's probabilities (n, k), made with shares `before`, fit the pool."""
    shares = before
    ratio = chances / np.maximum(before, 1e-12)
    for _ in range(steps):  # the mean over inputs of ratio x shares, each row divided by its sum
        shares = shares * ((1 / np.maximum(ratio @ shares, 1e-300)) @ ratio) / len(ratio)
    return np.asarray(shares)
