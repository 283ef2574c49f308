"""PACE: prototypes of the clusters a hidden layer falls into, and a spread of what falls into none."""

from __future__ import annotations

import warnings
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from neurotest.checks import setting
from neurotest.registry import register
from neurotest.select.estimation import as_scores
from neurotest.select.scorer import Hidden, HiddenState, Pool
from neurotest.stats.distances import squared_distances

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
CHUNK = 1 << 21  # kernel values in memory at once
NOISE = -1


def _reduced(values: NDArray[np.floating], dimensions: int, seed: int) -> Floats:
    """Independent components of the values scaled to 0 .. 1: (n, dimensions)."""
    from sklearn.decomposition import FastICA

    span = np.ptp(values, axis=0)
    moving = np.flatnonzero(span > 0)
    if len(moving) < 2 or len(values) < 3:
        return np.asarray(values[:, moving], dtype=np.float64)
    scaled = ((values[:, moving] - values[:, moving].min(axis=0)) / span[moving]).astype(np.float64)
    rank = int(np.linalg.matrix_rank(scaled - scaled.mean(axis=0)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a rotation that has not quite converged clusters as well
        ica = FastICA(max(1, min(dimensions, rank)), random_state=seed, whiten="unit-variance")
        return np.asarray(ica.fit_transform(scaled))


def _clusters(points: Floats, least: int, core: int) -> Ints:
    """Cluster of each point, -1 for noise."""
    from sklearn.cluster import HDBSCAN

    if len(points) < max(2, least, core) or not points.shape[1]:
        return np.full(len(points), NOISE)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return np.asarray(HDBSCAN(min_cluster_size=least, min_samples=core).fit_predict(points), dtype=np.int64)


def _shares(sizes: Ints, budget: int) -> Ints:
    """The budget in proportion to the sizes: largest remainders first, nobody gets more than there is."""
    exact = sizes * (budget / max(1, sizes.sum()))
    picks: Ints = np.minimum(np.floor(exact).astype(np.int64), sizes)
    while picks.sum() < min(budget, int(sizes.sum())):
        picks[np.argmax(np.where(picks < sizes, exact - picks, -np.inf))] += 1
    return picks


def _prototypes(points: Floats, count: int) -> Ints:
    """Greedy MMD-critic with a Gaussian kernel: points whose mean embedding is nearest to that of all."""
    gamma = 1 / max(1, points.shape[1])
    mean = np.empty(len(points))
    step = max(1, CHUNK // len(points))
    for start in range(0, len(points), step):
        mean[start : start + step] = np.exp(-gamma * squared_distances(points[start : start + step], points)).mean(axis=1)
    chosen: list[int] = []
    near = np.zeros(len(points))  # summed kernel to the chosen
    for taken in range(1, min(count, len(points)) + 1):
        worth = 2 * mean - (2 * near + 1) / taken
        worth[chosen] = -np.inf
        chosen.append(int(worth.argmax()))
        near += np.exp(-gamma * squared_distances(points, points[chosen[-1:]])[:, 0])
    return np.array(chosen, dtype=np.int64)


def _farthest(points: Floats, count: int, start: int = 0, published: bool = False) -> Ints:
    """Always the point farthest from those taken; as published the last one that lies apart from them at all."""
    chosen = [start]
    apart = squared_distances(points, points[[start]])[:, 0]
    while len(chosen) < min(count, len(points)):
        apart[chosen[-1]] = -1
        ahead = np.flatnonzero(apart > 0) if published else chosen[:0]
        chosen.append(int(ahead[-1]) if len(ahead) else int(apart.argmax()))
        apart = np.minimum(apart, squared_distances(points, points[chosen[-1:]])[:, 0])
        apart[chosen] = -1
    return np.array(chosen[:count], dtype=np.int64)


@register(
    "estimator",
    "pace",
    paper="Chen et al., Practical Accuracy Estimation for Efficient Deep Neural Network Testing, TOSEM 2020",
    cost="one forward pass per input, then clustering (seconds for 10,000); 4 bytes kept per hidden unit and input",
    differs="Clusters and noise get picks in proportion to their sizes, and every pick counts for the part of the pool it stands "
    "for. Noise is spread by farthest points; the published loop never updates its running maximum and takes the last "
    "candidate instead (`noise=published`). Without any cluster the whole pool counts as one.",
)
class PACE(Hidden):
    """Pick prototypes of the clusters of the last hidden layer (FastICA, HDBSCAN, MMD-critic), and a spread of the rest.

    dimensions: independent components kept. least: inputs that make a cluster. core: neighbours that make a core point. noise:
    `farthest` spreads what is in no cluster, `published` takes its last inputs. layer, neuron: where activations are taken from.
    """

    dimensions: int = setting(8, "the paper's code uses 8")
    least: int = setting(80, "the paper's code uses 80", least=2)
    core: int = setting(4, "the paper's code uses 4")
    noise: Literal["farthest", "published"] = "farthest"

    pointwise: ClassVar[bool] = False

    def start(self, pool: Pool) -> _Clustered:
        return _Clustered(self, pool)


class _Clustered(HiddenState):
    """Holds the activations, then clusters them."""

    method: PACE
    share: Floats
    _notes: tuple[str, ...] = ()

    def value(self) -> np.ndarray:
        self.check("pace")
        points = _reduced(self.values, self.method.dimensions, self.pool.seed)
        of = _clusters(points, self.method.least, self.method.core)
        if (of == NOISE).all():
            of = np.zeros(len(of), dtype=np.int64)
            self._notes = ("no clusters were found: the whole pool counts as one.",)
        names, sizes = np.unique(of, return_counts=True)
        counts = _shares(sizes, self.pool.picked)
        picks, weights = [], []
        for name, size, count in zip(names.tolist(), sizes.tolist(), counts.tolist(), strict=True):
            if count:
                here = np.flatnonzero(of == name)
                if name == NOISE:
                    chosen = _farthest(points[here], count, published=self.method.noise == "published")
                else:
                    chosen = _prototypes(points[here], count)
                picks.append(here[chosen])
                weights.append(np.full(count, size / count))
        order = np.argsort(-np.concatenate(weights), kind="stable")  # what stands for most of the pool first
        self.share = np.concatenate(weights)[order] / len(of)
        return as_scores(np.concatenate(picks)[order], len(of))

    def weights(self) -> Floats:
        return self.share

    def notes(self) -> tuple[str, ...]:
        return self._notes
