"""How far to trust a number: bootstrap intervals, exact ones where they exist, and what a random order would give."""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from neurotest import rng
from neurotest.errors import BadInput
from neurotest.stats.faults import as_faults, check_count, fdr

# Resampled values held at once: keeps memory near 32 MB whatever the pool and the number of draws.
CHUNK = 1 << 22
Metric = Callable[[NDArray[np.generic]], float]  # of an order


class Interval(NamedTuple):
    """A number and the interval around it."""

    value: float
    low: float
    high: float


def _check(draws: int, level: float) -> None:
    if draws < 1:
        raise BadInput("out-of-range", "draws", f"draws={draws}: expected an integer >= 1 (2000 is usual).")
    if not 0 < level < 1:
        raise BadInput("out-of-range", "level", f"level={level}: expected a number between 0 and 1 (0.95 is usual).")


def _percentiles(samples: NDArray[np.float64], level: float) -> tuple[float, float]:
    low, high = np.quantile(samples, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def fdr_interval(faults_in_order: ArrayLike, m: int, *, draws: int = 2000, level: float = 0.95, seed: int = 0) -> Interval:
    """FDR of the first m with a bootstrap interval: the pool is resampled, each resample keeps the order, its first m count.

    The first m of a sorted resample are the m smallest of n uniform numbers, which running sums of exponentials give
    directly (Rényi): the same distribution as multinomial weights over the pool, without drawing all n of them.
    """
    faults = as_faults(faults_in_order)
    n, m = faults.size, check_count(m, faults.size)
    _check(draws, level)
    generator = rng.stream("stats.bootstrap.fdr", seed)
    rates = np.empty(draws)
    rows = max(1, CHUNK // m)
    for start in range(0, draws, rows):
        count = min(rows, draws - start)
        reach = np.cumsum(generator.standard_exponential((count, m)), axis=1)  # (count, m)
        total = reach[:, -1:] + generator.standard_gamma(n + 1 - m, (count, 1))  # (count, 1)
        places = np.minimum((reach / total * n).astype(np.int64), n - 1)
        rates[start : start + count] = faults[places].mean(axis=1)
    return Interval(fdr(faults, m), *_percentiles(rates, level))


def order_interval(
    metric: Metric, items_in_order: ArrayLike, *, draws: int = 500, level: float = 0.95, seed: int = 0
) -> Interval:
    """Any metric of an order (`apfd`, `ftcr_auc`, ...) with a bootstrap interval over the pool; each resample keeps the order.

    Resamples on which the metric is NaN (no fault drawn) are left out. The percentiles are bias-corrected (Efron's BC): a
    resample repeats inputs and so holds fewer fault types, which alone would push a plain interval below the value.
    """
    items = _items(items_in_order)
    _check(draws, level)
    generator = rng.stream("stats.bootstrap.order", seed)
    n = len(items)
    defined = _defined([metric(items[np.sort(generator.integers(0, n, n))]) for _ in range(draws)])
    value = float(metric(items))
    if math.isnan(value) or defined.size == 0:
        return Interval(value, math.nan, math.nan)
    normal = NormalDist()
    below = float(np.mean(defined < value) + np.mean(defined == value) / 2)
    shift = 2 * normal.inv_cdf(min(max(below, 0.5 / defined.size), 1 - 0.5 / defined.size))
    reach = normal.inv_cdf((1 + level) / 2)
    low, high = np.quantile(defined, [normal.cdf(shift - reach), normal.cdf(shift + reach)])
    return Interval(value, min(value, float(low)), max(value, float(high)))


def random_interval(metric: Metric, items: ArrayLike, *, draws: int = 500, level: float = 0.95, seed: int = 0) -> Interval:
    """What random orders of the pool give for any metric of an order: mean and the middle `level` of `draws` permutations."""
    items = _items(items)
    _check(draws, level)
    generator = rng.stream("stats.random.order", seed)
    defined = _defined([metric(generator.permutation(items)) for _ in range(draws)])
    if defined.size == 0:
        return Interval(math.nan, math.nan, math.nan)
    return Interval(float(defined.mean()), *_percentiles(defined, level))


def _items(items: ArrayLike) -> NDArray[np.generic]:
    array = np.asarray(items)
    if array.ndim < 1 or len(array) == 0:
        raise BadInput("empty", "order", "the order is empty: expected at least one input.")
    return array


def _defined(samples: list[float]) -> NDArray[np.float64]:
    values = np.array(samples, dtype=np.float64)
    return values[~np.isnan(values)]


def mean_interval(values: ArrayLike, *, draws: int = 2000, level: float = 0.95, seed: int = 0) -> Interval:
    """The mean with its percentile bootstrap interval; with one value the interval is that value."""
    data = np.asarray(values, dtype=np.float64)
    if data.ndim != 1 or data.size == 0 or not np.isfinite(data).all():
        raise BadInput(
            "wrong-shape", "values", f"values have shape {data.shape}: expected one row of at least one finite number."
        )
    _check(draws, level)
    generator = rng.stream("stats.bootstrap.mean", seed)
    means = np.empty(draws)
    rows = max(1, CHUNK // data.size)
    for start in range(0, draws, rows):
        count = min(rows, draws - start)
        means[start : start + count] = data[generator.integers(0, data.size, (count, data.size))].mean(axis=1)
    return Interval(float(data.mean()), *_percentiles(means, level))


def wilson(k: int, m: int, *, level: float = 0.95) -> Interval:
    """The share k / m with Wilson's interval: never empty, never outside [0, 1], also for 0 of m and m of m."""
    _check(1, level)
    if m < 1 or not 0 <= k <= m:
        raise BadInput("out-of-range", "k", f"k={k}, m={m}: expected 0 <= k <= m and m >= 1.")
    z = NormalDist().inv_cdf((1 + level) / 2)
    share = k / m
    centre = (share + z * z / (2 * m)) / (1 + z * z / m)
    half = z / (1 + z * z / m) * math.sqrt(share * (1 - share) / m + z * z / (4 * m * m))
    # At the ends the algebra gives exactly 0 and 1; rounding would not.
    return Interval(share, 0.0 if k == 0 else centre - half, 1.0 if k == m else centre + half)


def t_quantile(share: float, freedom: float) -> float:
    """The value below which `share` of Student's t with `freedom` degrees of freedom lies.

    >>> round(t_quantile(0.975, 9), 3)
    2.262
    """
    from scipy.special import stdtrit

    return float(stdtrit(freedom, share))


def random_fdr(n: int, faults: int, m: int, *, level: float = 0.95) -> Interval:
    """FDR of m inputs taken at random from n of which `faults` are faults: hypergeometric mean and central interval, exact."""
    _check(1, level)
    if n < 1 or not 0 <= faults <= n:
        raise BadInput("out-of-range", "faults", f"n={n}, faults={faults}: expected 0 <= faults <= n and n >= 1.")
    m = check_count(m, n)
    log_factorial = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, n + 1)))])

    def log_choose(total: int, part: NDArray[np.int64]) -> NDArray[np.float64]:
        chosen: NDArray[np.float64] = log_factorial[total] - log_factorial[part] - log_factorial[total - part]
        return chosen

    hits = np.arange(max(0, m - (n - faults)), min(m, faults) + 1)
    log_mass = log_choose(faults, hits) + log_choose(n - faults, m - hits)
    mass = np.exp(log_mass - log_mass.max())
    below = np.cumsum(mass) / mass.sum()
    low, high = (int(hits[min(int(np.searchsorted(below, q)), hits.size - 1)]) for q in ((1 - level) / 2, (1 + level) / 2))
    return Interval(faults / n, low / m, high / m)
