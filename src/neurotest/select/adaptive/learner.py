"""The small learners of adaptive selection, in float64 torch: a corrected head, a fault regression, a scale, and their stack.

Each is a convex problem solved from zero, so that what is learned depends on the labels alone, not on how they arrived.
"""

from __future__ import annotations

import torch
from torch import Tensor

STEPS = 60
ENOUGH = 1e-3  # largest entry of the preconditioned gradient: probabilities then agree to about three digits
STACKS = 11  # candidate weights of the learner in the stack, 0 .. 1
DOUBT = 6.0  # the learner's full weight starts exp(-DOUBT) times as probable as none


def corrected_head(x: Tensor, offset: Tensor, aims: Tensor, weights: Tensor, ridge: float) -> Tensor:
    """Multinomial regression: what to add to the network's own logits so that they give the people's labels.

    x (n, d) features, offset (n, k) logits, aims (n, k) wanted probabilities, weights (n,). Gives (d, k). Accelerated descent in
    coordinates where Boehning's bound of the curvature is the identity, so that a step of one never overshoots.
    """
    bound = 0.5 * x.T @ (x * weights[:, None])
    bound.diagonal().add_(ridge)
    lower = torch.linalg.cholesky(bound)
    back = torch.linalg.solve_triangular(lower.T, torch.eye(len(lower), dtype=x.dtype), upper=True)  # coordinates -> weights
    xb, pull = x @ back, ridge * back.T @ back
    here = ahead = torch.zeros(x.shape[1], offset.shape[1], dtype=x.dtype)
    speed = 1.0
    for _ in range(STEPS):
        wrong = ((offset + xb @ ahead).softmax(dim=1) - aims) * weights[:, None]
        slope = xb.T @ wrong + pull @ ahead
        new = ahead - slope
        if float((slope * (new - here)).sum()) > 0:  # going uphill: forget the momentum
            speed = 1.0
        faster = (1 + (1 + 4 * speed * speed) ** 0.5) / 2
        ahead = new + (speed - 1) / faster * (new - here)
        here, speed = new, faster
        if float(slope.abs().max()) < ENOUGH:
            break
    coefficients: Tensor = back @ here
    return coefficients


def _logistic(x: Tensor, faults: Tensor, middle: Tensor, hold: Tensor, steps: int) -> Tensor:
    """Logistic regression by Newton's method, each coefficient kept near `middle` by `hold`: (n, d), (n,) in {0, 1} -> (d,)."""
    coefficients = middle
    for _ in range(steps):
        chance = torch.sigmoid(x @ coefficients)
        slope = x.T @ (chance - faults) + hold * (coefficients - middle)
        curve = x.T @ (x * (chance * (1 - chance))[:, None])
        curve.diagonal().add_(hold)
        step = torch.linalg.solve(curve, slope)
        coefficients = coefficients - step
        if float(step.abs().max()) < 1e-6:
            break
    return coefficients


def fault_regression(x: Tensor, faults: Tensor, ridge: float) -> Tensor:
    """Regression of "is it a fault?" on the features: (n, d), (n,) in {0, 1} -> (d,)."""
    zero = torch.zeros(x.shape[1], dtype=x.dtype)
    return _logistic(x, faults, zero, torch.full_like(zero, ridge), STEPS)


def scale(scores: Tensor, faults: Tensor, strength: float = 5.0) -> tuple[float, float]:
    """Intercept and slope that turn log-odds into those the labels show, kept near 0 and 1 by `strength` imagined labels."""
    x = torch.stack([torch.ones_like(scores), scores], dim=1)
    middle, hold = (torch.tensor(pair, dtype=x.dtype) for pair in ([0.0, 1.0], [strength / 5, strength]))
    intercept, slope = _logistic(x, faults, middle, hold, 25).tolist()
    return intercept, slope


def stack(plain: Tensor, learned: Tensor, faults: Tensor) -> float:
    """How far to trust the learner against DeepGini: the posterior mean of its weight in log-odds.

    plain, learned (n,): the log-odds of each for an input before its label came. The learner must prove itself (DOUBT).
    """
    weights = torch.linspace(0, 1, STACKS, dtype=torch.float64)
    odds = (1 - weights)[:, None] * plain + weights[:, None] * learned  # (STACKS, n)
    fits = torch.nn.functional.logsigmoid(torch.where(faults > 0.5, odds, -odds)).sum(dim=1)
    return float((torch.softmax(fits - DOUBT * weights, dim=0) * weights).sum())


def log_odds(chance: Tensor) -> Tensor:
    return torch.logit(chance, eps=1e-6)
