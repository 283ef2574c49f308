"""A diverse batch on top of any score: inputs close to one that is picked already have to wait."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from neurotest import rng
from neurotest.errors import BadInput
from neurotest.select.scorer import Pool, activations
from neurotest.select.selection import Nearness
from neurotest.stats.distances import nearest_other, squared_distances
from neurotest.target import Want

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
DEPTH = 4  # so many times the budget, from the top of the ranking, are looked at
CLOSE = 0.05  # near duplicates: closer than so many of a random batch of the same size are to each other
LARGEST_RANDOM = 2000  # of a random batch, which only gives a scale
LEAST_DISTANCES = 200  # distances that scale is taken from: small batches are drawn several times


def _disperse(points: Floats, count: int, reach: float) -> Ints:
    """Pick `count` of points that come best first: the worth of one falls with its rank, and with its closeness to a pick within
    `reach`; beyond it nothing is gained, so that outliers are not preferred."""
    worth = 1 - np.arange(len(points)) / (len(points) + 1)
    apart = np.full(len(points), np.inf)
    free = np.ones(len(points))
    chosen = []
    for _ in range(min(count, len(points))):
        closeness = np.minimum(1.0, apart / reach) if reach > 0 else (apart > 0).astype(np.float64)
        value = worth * closeness + 1e-9 * worth  # exact duplicates of picks still come in their order
        value[free == 0] = -1
        best = int(value.argmax())
        chosen.append(best)
        free[best] = 0
        apart = np.minimum(apart, np.sqrt(squared_distances(points, points[[best]])[:, 0]))
    return np.array(chosen, dtype=np.int64)


def spread(pool: Pool, order: Ints) -> tuple[Ints, Nearness]:
    """The order with a diverse batch at its head; distances are those of what the encoder found."""
    want = _space(pool)
    top = order[: min(len(order), DEPTH * pool.picked)]
    here = _values(pool, top, want)
    usual = _usual(pool, want)
    close = float(np.quantile(usual, CLOSE))
    chosen = _disperse(here, pool.picked, float(np.median(usual)))
    head = top[chosen]
    rates = [float((nearest_other(points) < close).mean()) for points in (here[chosen], here[: pool.picked])]
    rest = order[~np.isin(order, head)]
    return np.concatenate([head, rest]), Nearness(rates[0], rates[1], float((usual < close).mean()))


def _space(pool: Pool) -> Want:
    """What the encoder found, or, in a network without a dense layer, the channels of all layers."""
    try:
        pool.target.survey().find("features")
    except BadInput:
        return Want()
    return Want(layers="features", neuron="unit", inputs=True)


def _values(pool: Pool, index: Ints, want: Want) -> Floats:
    return activations(pool, pool.source.take(index), want).values.astype(np.float64)


def _usual(pool: Pool, want: Want) -> Floats:
    """How far inputs of random batches of the same size are from their nearest other."""
    size = min(pool.picked, LARGEST_RANDOM)
    if size < 2:
        return np.zeros(1)
    random = rng.stream("select.spread", pool.seed)
    batches = [random.permutation(len(pool))[:size] for _ in range(max(1, -(-LEAST_DISTANCES // size)))]
    values = _values(pool, np.concatenate(batches), want)
    return np.concatenate([nearest_other(part) for part in np.split(values, len(batches))])
