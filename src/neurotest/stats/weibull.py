"""Where maxima end: the reversed Weibull distribution, fitted by maximum likelihood and checked.

G(y) = exp(-((a - y) / b) ** c) for y < a. Extreme value theory gives it to maxima of something bounded; `a` is the bound.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from neurotest.errors import BadInput

Floats = NDArray[np.float64]
# Ends that are tried, above the largest value in units of the spread of all values. Farther ones are no estimate: nothing that
# was seen points there, and a gradient bound of a thousand times the largest gradient makes every score nearly 0.
NEAREST, FARTHEST, GRID, ROUNDS = 1e-3, 10.0, 33, 4
SHAPE = 8.0  # chosen by lab/scripts/design_clever.py
SAME = 1e-6  # values that differ by less of their size are one: gradients are float32 sums
NEWTON = 40


@dataclass(frozen=True)
class EndPoint:
    """The estimated bound of what the maxima were taken of.

    by: `fit`, or why there is none and the largest value stands for it: `constant` (all are equal), `unfitted` (the likelihood
    has no maximum at an end that can be told), `rejected` (Kolmogorov and Smirnov's test). p: of that test, NaN without a fit.
    """

    value: float
    by: Literal["fit", "constant", "unfitted", "rejected"]
    p: float = math.nan
    shape: float = math.nan
    scale: float = math.nan


def end_point(maxima: ArrayLike, *, level: float = 0.05, largest: float | None = None, shapes: float = SHAPE) -> EndPoint:
    """The end of the reversed Weibull distribution of the maxima or, where it does not fit, the largest value.

    shapes: the greatest that is believed. The distribution comes close to Gumbel's as the shape grows, which has no end, so that
    the end of a great shape is wherever chance puts it: with fifty maxima up to twice the largest of 100,000 values.
    largest: the largest value there was at all, if the maxima do not hold it. Equal maxima are taken as one observation by the
    test: those of resamples of one pool repeat, and are no more independent than the values behind them.
    """
    y = np.sort(np.asarray(maxima, dtype=np.float64).ravel())
    if y.size == 0 or not np.isfinite(y).all():
        raise BadInput("wrong-shape", "maxima", f"maxima have shape {np.shape(maxima)}: expected at least one finite number.")
    top = max(float(y[-1]), -math.inf if largest is None else float(largest))
    if y[-1] - y[0] <= SAME * abs(float(y[-1])):
        return EndPoint(top, "constant")
    distinct = len(np.unique(y))
    fitted = None if distinct < 3 else _fit(y)
    if fitted is None or fitted[1] > shapes:
        return EndPoint(top, "unfitted")
    end, shape, scale = fitted
    p = _p_value(y, distinct, end, shape, scale)
    if p < level:
        return EndPoint(top, "rejected", p, shape, scale)
    return EndPoint(max(end, top), "fit", p, shape, scale)


def _fit(y: Floats) -> tuple[float, float, float] | None:
    """End, shape and scale of greatest likelihood among shapes of at least 1; None where it lies at no finite end.

    Below a shape of 1 the likelihood grows without limit as the end comes to the largest value, so that a search that may go
    there finds nothing but that. For each end the other two are known, so that only the end is searched, on a grid that
    closes in.
    """
    span = float(y[-1] - y[0])
    low, high = math.log(NEAREST), math.log(FARTHEST)
    for number in range(ROUNDS):
        beyond = np.exp(np.linspace(low, high, GRID))  # (grid,)
        gaps = (y[-1] - y)[None] / span + beyond[:, None]  # (grid, n)
        likelihood, shape, scale = _profile(gaps)
        likelihood = np.where(shape >= 1, likelihood, -np.inf)
        best = int(likelihood.argmax())
        if number == 0 and (best == GRID - 1 or not np.isfinite(likelihood[best])):
            return None
        grid = np.log(beyond)
        low, high = grid[max(best - 1, 0)], grid[min(best + 1, GRID - 1)]
    return float(y[-1] + beyond[best] * span), float(shape[best]), float(scale[best] * span)


def _profile(gaps: Floats) -> tuple[Floats, Floats, Floats]:
    """For rows of distances from an end (k, n): mean log-likelihood, shape and scale of the best Weibull distribution."""
    logs = np.log(gaps)
    centre = logs.mean(axis=1)
    logs -= centre[:, None]
    spread = logs.std(axis=1)
    shape = 1.28 / np.maximum(spread, 1e-12)  # the moments of log-distances
    for _ in range(NEWTON):
        powers = np.exp(shape[:, None] * logs)
        weights = powers / powers.sum(axis=1, keepdims=True)
        mean = (weights * logs).sum(axis=1)
        variance = (weights * logs**2).sum(axis=1) - mean**2
        step = (mean - 1 / shape) / (variance + 1 / shape**2)
        new = np.maximum(shape - step, shape / 4)  # a full step may leave the positive numbers
        if np.allclose(new, shape, rtol=1e-10, atol=0):
            break
        shape = new
    log_scale = np.log(np.exp(shape[:, None] * logs).mean(axis=1)) / shape
    likelihood = np.log(shape) - shape * log_scale - 1 - centre
    return likelihood, shape, np.exp(log_scale + centre)


def _p_value(y: Floats, distinct: int, end: float, shape: float, scale: float) -> float:
    """Of Kolmogorov and Smirnov's test with as many observations as there are distinct ones."""
    from scipy.stats import kstwo

    fitted = np.exp(-(((end - y) / scale) ** shape))
    below, above = np.searchsorted(y, y, "left") / y.size, np.searchsorted(y, y, "right") / y.size
    distance = float(np.maximum(above - fitted, fitted - below).max())
    return float(kstwo.sf(distance, distinct))
