"""The small learners of adaptive selection: corrected heads, a fault regression, a scale, and their stack.

Each is a convex problem solved from zero, so that what is learned depends on the labels alone, not on how they arrived.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from neurotest.select.adaptive.outputs import Outputs

STEPS = 60
ENOUGH = 1e-3  # largest entry of the preconditioned gradient: probabilities then agree to about three digits
STACKS = 11  # candidate weights of the learner in the stack, 0 .. 1
DOUBT = 6.0  # the learner's full weight starts exp(-DOUBT) times as probable as none
BEND = 0.03  # how far an input counts for the curvature at the least, for it may turn out that the network is wrong there
BLOCK = 2048  # rows of a regression that stay in a processor's cache
MEMORY = 10  # steps from which the curvature is guessed
FALL = 1e-4  # of what the slope promises: a step that lowers the value by less is halved
HALVINGS = 10
Function = Callable[[Tensor], tuple[float, Tensor]]  # where -> value and slope


def corrected_head(x: Tensor, outputs: Outputs, aims: Tensor, weights: Tensor, ridge: float) -> Tensor:
    """Multinomial regression: what to add to the network's own logits so that they give the people's labels.

    x (n, d) features, outputs the network's, aims (n, c) wanted probabilities, weights (n,). Gives (d, rank of the outputs).
    Accelerated descent in coordinates where Boehning's bound of the curvature is the identity, so that a step of one never
    overshoots and no value has to be computed. For many rows there is `quick_head`.
    """
    bound = outputs.curvature * x.T @ (x * weights[:, None])
    bound.diagonal().add_(ridge)
    lower = torch.linalg.cholesky(bound)
    back = torch.linalg.solve_triangular(lower.T, torch.eye(len(lower), dtype=x.dtype), upper=True)  # coordinates -> weights
    # Classes are rows and inputs columns here: a softmax along columns of a few values is several times slower.
    xb, pull = (x @ back).T.contiguous(), ridge * back.T @ back  # (d, n), (d, d)
    values, wanted = (a.T.contiguous() for a in (outputs.values, aims))
    vectors = outputs.vectors()
    vectors = None if vectors is None else vectors.permute(2, 1, 0).contiguous()  # (rank, c, n)
    here = ahead = torch.zeros(outputs.rank, x.shape[1], dtype=x.dtype)
    speed = 1.0
    for _ in range(STEPS):
        added = ahead @ xb
        added = added if vectors is None else _summed(vectors, added)
        wrong = ((values + added).softmax(dim=0) - wanted) * weights
        wrong = wrong if vectors is None else _summed(vectors.transpose(0, 1), wrong)
        slope = wrong @ xb.T + ahead @ pull
        new = ahead - slope
        if float((slope * (new - here)).sum()) > 0:  # going uphill: forget the momentum
            speed = 1.0
        faster = (1 + (1 + 4 * speed * speed) ** 0.5) / 2
        ahead = new + (speed - 1) / faster * (new - here)
        here, speed = new, faster
        if float(slope.abs().max()) < ENOUGH:
            break
    coefficients: Tensor = back @ here.T
    return coefficients


def _summed(vectors: Tensor, factors: Tensor) -> Tensor:
    """(k, m, n), (k, n) -> (m, n): the sum of products over k, one after the other, so that nothing as large is made anew."""
    total = torch.zeros(vectors.shape[1:], dtype=vectors.dtype)
    for some, factor in zip(vectors, factors, strict=True):
        total.addcmul_(some, factor)
    return total


def _logistic(
    x: Tensor,
    faults: Tensor,
    middle: Tensor,
    hold: Tensor,
    steps: int = STEPS,
    *,
    weights: Tensor | float = 1.0,
    jitter: float = 0.0,
    longest: float = torch.inf,
) -> Tensor:
    """Logistic regression by Newton's method, each coefficient kept near `middle` by `hold`: (n, d), (n,) in {0, 1} -> (d,).

    jitter: added to the curvature. longest: no coefficient moves further in one step.
    """
    coefficients = middle
    for _ in range(steps):
        chance = torch.sigmoid(x @ coefficients)
        slope = x.T @ (weights * (chance - faults)) + hold * (coefficients - middle)
        curve = x.T @ (x * (weights * chance * (1 - chance))[:, None])
        curve.diagonal().add_(hold + jitter)
        step = torch.linalg.solve(curve, slope)
        coefficients = coefficients - step.clamp(-longest, longest)
        if float(step.abs().max()) < 1e-6:
            break
    return coefficients


def fault_regression(x: Tensor, faults: Tensor, ridge: float) -> Tensor:
    """Regression of "is it a fault?" on the features: (n, d), (n,) in {0, 1} -> (d,)."""
    zero = torch.zeros(x.shape[1], dtype=x.dtype)
    return _logistic(x, faults, zero, torch.full_like(zero, ridge))


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


def rising(x: Tensor, faults: Tensor, weights: Tensor, middle: Tensor, hold: Tensor) -> Tensor:
    """Weighted logistic regression with a constant whose slopes are not negative: (n, d), (n,), (n,), (1 + d,) -> (1 + d,).

    Each coefficient is kept near `middle` by `hold`. A slope that would fall below zero is held there (active set).
    """
    z = torch.cat([torch.ones(len(x), 1, dtype=x.dtype), x], dim=1)
    free = torch.ones(z.shape[1], dtype=torch.bool)
    coefficients = middle.clone()
    for _ in range(2 * z.shape[1]):
        fit = _logistic(z[:, free], faults, middle[free], hold[free], weights=weights, jitter=1e-9, longest=2)
        fixed = torch.zeros_like(middle).masked_scatter(free, fit)
        negative = free & (fixed < 0)
        negative[0] = False
        coefficients = fixed
        if not bool(negative.any()):
            slope = z.T @ (weights * (torch.sigmoid(z @ fixed) - faults)) + hold * (fixed - middle)
            back = ~free & (slope < -1e-6)
            if not bool(back.any()):
                break
            free = free | back
        else:
            free = free & ~negative
    return coefficients.clamp(min=torch.cat([torch.tensor([-torch.inf]), torch.zeros(z.shape[1] - 1)]).to(x))


def stacked(x: Tensor, faults: Tensor, weights: Tensor) -> tuple[float, ...]:
    """Constant and slopes of a stack of scores in log-odds, hardly held."""
    middle = torch.zeros(1 + x.shape[1], dtype=x.dtype)
    return tuple(rising(x, faults, weights, middle, torch.full_like(middle, 1e-3)).tolist())


def log_posterior(x: Tensor, faults: Tensor, coefficients: Tensor, middle: Tensor, hold: Tensor) -> float:
    """Log-likelihood of labels under constant and slopes, less what their distance from `middle` costs."""
    odds = coefficients[0] + x @ coefficients[1:]
    fit = torch.nn.functional.logsigmoid(torch.where(faults > 0.5, odds, -odds)).sum()
    return float(fit - 0.5 * (hold * (coefficients - middle).square()).sum())


def quick_head(
    x: Tensor,
    outputs: Outputs,
    aims: Tensor,
    weights: Tensor,
    ridge: float,
    *,
    steps: int,
    precision: torch.dtype = torch.float32,
) -> Tensor:
    """As `corrected_head`, for many rows: a few steps down instead of many.

    x (n, d), outputs, aims (n, c), weights (n,) -> (d, rank of the outputs). L-BFGS in coordinates where the curvature at the
    start is about the identity: an input of which the network is sure hardly bends the function, so each counts by its Gini
    impurity. That is no bound, so values are computed and steps halved where one leads up.
    """
    x, weights = x.to(precision), weights.to(precision)
    bend = weights * (BEND + 1 - outputs.probs().to(precision).square().sum(dim=1)) / 2
    bound = x.T @ (x * bend[:, None])
    bound.diagonal().add_(ridge)
    upper = torch.linalg.cholesky(bound).T
    back = torch.linalg.solve_triangular(upper, torch.eye(len(upper), dtype=precision), upper=True)  # coordinates -> weights
    parts = [_head_rows(back.T @ x[rows].T, outputs[rows], aims[rows], weights[rows]) for rows in _blocks(len(x))]
    pull = ridge * back.T @ back

    def function(head: Tensor) -> tuple[float, Tensor]:  # (rank, d)
        slope = head @ pull
        value = float((head * slope).sum()) / 2
        for part in parts:
            value += part.add_slope(head, slope)
        return value, slope

    start = torch.zeros(outputs.rank, x.shape[1], dtype=precision)
    coefficients: Tensor = (back @ _minimise(function, start, steps=steps, enough=ENOUGH).T).double()
    return coefficients


def _blocks(n: int) -> list[slice]:
    return [slice(i, i + BLOCK) for i in range(0, n, BLOCK)]


@dataclass(frozen=True)
class _HeadRows:
    """Some rows of a regression, as many as stay in a processor's cache. Classes are rows and inputs columns here: a softmax
    along columns of a few values is several times slower."""

    x: Tensor  # (d, n)
    values: Tensor  # (c, n)
    wanted: Tensor  # (c, n), times the weights
    weights: Tensor  # (n,)
    vectors: Tensor | None  # (rank, c, n)

    def add_slope(self, head: Tensor, slope: Tensor) -> float:
        """The cross-entropy of these rows; its slope is added to `slope`."""
        vectors = self.vectors
        z = torch.addmm(self.values, head, self.x) if vectors is None else self.values + _summed(vectors, head @ self.x)
        z -= z.amax(dim=0)
        reached = torch.dot(z.view(-1), self.wanted.view(-1))
        total = z.exp_().sum(dim=0)
        value = float(torch.dot(self.weights, total.log()) - reached)
        z.mul_(self.weights / total).sub_(self.wanted)
        slope.addmm_(z if vectors is None else _summed(vectors.transpose(0, 1), z), self.x.T)
        return value


def _head_rows(x: Tensor, outputs: Outputs, aims: Tensor, weights: Tensor) -> _HeadRows:  # x (d, n)
    values, wanted = (a.to(x).T.contiguous() for a in (outputs.values, aims))
    vectors = outputs.vectors()
    vectors = None if vectors is None else vectors.to(x).permute(2, 1, 0).contiguous()
    return _HeadRows(x, values, wanted.mul_(weights), weights, vectors)


def _minimise(function: Function, start: Tensor, *, steps: int, enough: float) -> Tensor:
    """L-BFGS with halved steps, until no entry of the slope is greater than `enough`; no random number, no state.

    A step counts as one down as long as the value rises by no more than its own rounding.
    """
    here, (value, slope) = start, function(start)
    moves: list[Tensor] = []
    bends: list[Tensor] = []  # how the slope changed by each move
    for _ in range(steps):
        if float(slope.abs().max()) < enough:
            break
        way = _direction(slope, moves, bends)
        promise, slack, length = float((slope * way).sum()), 10 * torch.finfo(start.dtype).eps * abs(value), 1.0
        for _ in range(HALVINGS):
            there = here + length * way
            lower, new = function(there)
            if lower <= value + FALL * length * promise + slack:
                break
            length /= 2
        move, bend = there - here, new - slope
        if float((move * bend).sum()) > 0:
            moves, bends = [*moves, move][-MEMORY:], [*bends, bend][-MEMORY:]
        here, value, slope = there, lower, new
    return here


def _direction(slope: Tensor, moves: list[Tensor], bends: list[Tensor]) -> Tensor:
    """Minus the slope, times the inverse curvature that the last moves show (Nocedal's two loops)."""
    way, shares = -slope, []
    for move, bend in zip(reversed(moves), reversed(bends), strict=True):
        shares.append(float((move * way).sum() / (move * bend).sum()))
        way = way - shares[-1] * bend
    if moves:
        way = way * float((moves[-1] * bends[-1]).sum() / bends[-1].square().sum())
    for move, bend, share in zip(moves, bends, reversed(shares), strict=True):
        way = way + (share - float((bend * way).sum() / (move * bend).sum())) * move
    return way
