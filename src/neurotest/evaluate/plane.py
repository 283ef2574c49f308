"""Features laid out in a plane, and what neighbours say about them: an image alone proves nothing.

Neighbour purity: of an input's nearest neighbours, the share that has its class. By chance: the same with the neighbours' classes
exchanged at random.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from neurotest import rng
from neurotest.errors import BadInput
from neurotest.stats.bootstrap import Interval, mean_interval
from neurotest.stats.distances import squared_distances

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
NEIGHBOURS = 10
DRAWS = 200
PERPLEXITY = 30.0
LEADING = 50  # principal components that a plane is made from
LEAST_INPUTS = 8  # inputs


def nearest(points: Floats, others: Floats, k: int, *, itself: bool = False) -> Integers:
    """Rows of the k nearest among `others`, nearest first: (n, k). itself: they are the same set; none is its own neighbour."""
    apart = squared_distances(points, others)
    if itself:
        np.fill_diagonal(apart, np.inf)
    return np.argsort(apart, axis=1, kind="stable")[:, : min(k, len(others) - itself)]


def purity(neighbours: Integers, classes: Integers, others: Integers) -> Floats:
    """Of each input's neighbours, the share that has its class: (n,). others: the classes of those that neighbours are among."""
    return np.asarray((others[neighbours] == classes[:, None]).mean(axis=1), dtype=np.float64)


def purity_by_chance(neighbours: Integers, classes: Integers, others: Integers, *, seed: int = 0) -> Interval:
    """Mean purity when the neighbours' classes are exchanged at random: its mean, and where 95 % of the exchanges lie."""
    generator = rng.stream("evaluate.plane.chance", seed)
    means = [purity(neighbours, classes, generator.permutation(others)).mean() for _ in range(DRAWS)]
    low, high = np.quantile(means, [0.025, 0.975])
    return Interval(float(np.mean(means)), float(low), float(high))


def over_groups(values: Floats, groups: NDArray[np.generic], *, seed: int = 0) -> Interval:
    """Mean over groups with an interval: what came from one seed is no independent evidence."""
    names, rows = np.unique(groups, return_inverse=True)
    means = np.bincount(rows, values, len(names)) / np.bincount(rows, minlength=len(names))
    return mean_interval(means, seed=seed)


def kept(before: Integers, after: Integers) -> Floats:
    """Of each input's neighbours in the features, the share that is still among its neighbours in the plane: (n,)."""
    shared = (before[:, :, None] == after[:, None, :]).any(axis=2)  # (n, k)
    return np.asarray(shared.mean(axis=1), dtype=np.float64)


def lay_out(features: Floats, method: str = "tsne", *, seed: int = 0) -> Floats:
    """Points in a plane, (n, 2), in which neighbours are kept as far as that goes."""
    methods: dict[str, Callable[[Floats, int], Floats]] = {"tsne": _tsne, "umap": _umap}
    if method not in methods:
        raise BadInput("out-of-range", "map", f"map={method!r}: expected {' or '.join(methods)}.")
    if len(features) < LEAST_INPUTS:
        raise BadInput("too-few", "inputs", f"{len(features)} inputs are too few for a map: {LEAST_INPUTS} are needed.")
    if not np.isfinite(features).all():
        raise BadInput("not-finite", "features", "the last hidden layer is not finite for some inputs: there is no map of them.")
    return methods[method](_leading(features), seed)


def _leading(features: Floats) -> Floats:
    """The leading principal components, in the scale of the features."""
    centred = features - features.mean(axis=0)
    if min(centred.shape) <= LEADING:
        return np.asarray(centred, dtype=np.float64)
    _, _, axes = np.linalg.svd(centred, full_matrices=False)
    return np.asarray(centred @ axes[:LEADING].T, dtype=np.float64)


def _tsne(features: Floats, seed: int) -> Floats:
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    perplexity = min(PERPLEXITY, (len(features) - 1) / 3)
    start = features[:, :2] if features.shape[1] > 1 else np.repeat(features, 2, axis=1)
    spread = start[:, 0].std() or 1.0
    with threadpool_limits(1):  # threads that wait for each other cost more than they give, on a busy machine very much more
        plane = TSNE(perplexity=perplexity, init=1e-4 * start / spread, random_state=seed).fit_transform(features)
    return np.asarray(plane, dtype=np.float64)


def _umap(features: Floats, seed: int) -> Floats:
    try:
        from umap import UMAP
    except ImportError:
        raise BadInput(
            "not-installed",
            "umap",
            "map=umap needs umap-learn, which is not installed: pip install 'neurotest[explain]', or map=tsne.",
        ) from None
    neighbours = min(15, len(features) - 1)
    plane = UMAP(n_neighbors=neighbours, random_state=seed, n_jobs=1).fit_transform(features)
    return np.asarray(plane, dtype=np.float64)
