"""A score from labels that are there already: how many of an input's labelled neighbours are faults."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from neurotest.checks import setting
from neurotest.errors import BadInput
from neurotest.measure.traces import joined
from neurotest.registry import register
from neurotest.select.scorer import Hidden, PerInput, Pool, activations, doubt
from neurotest.stats.distances import squared_distances
from neurotest.target import Trace, Want

Ints = NDArray[np.int64]
LABELLED_SCORE = -1.0  # the score of what is labelled already


@register(
    "selector",
    "neighbours",
    main="k",
    paper="the neighbour part of TestRank (Li et al., NeurIPS 2021), without its second network",
    cost="one forward pass per input and one more per labelled input; 8 bytes kept per input and the activations of the labelled",
    differs="It is not TestRank: no self-supervised features, no graph network. The share has few values, so DeepGini decides "
    "between equals, at a scale that never changes the order of different shares. What is labelled already comes last.",
)
class NeighbourFault(Hidden):
    """Score by the share of faults among the `k` nearest labelled inputs; needs labels of some candidates (--labels).

    layer, neuron: where distances are measured; default is the last hidden layer.
    """

    k: int = setting(10, "10 is usual")

    def start(self, pool: Pool) -> _Nearby:
        if pool.labels is None or not len(labelled := np.flatnonzero(pool.labels >= 0)):
            raise BadInput(
                "missing",
                "labels",
                "neighbours needs labels of some candidates: give --labels FILE (CSV with position or content, and label), or "
                "begin with deepgini.",
            )
        traces = activations(pool, pool.source.take(labelled), self.want)
        return _Nearby(self, pool, labelled, traces.values.astype(np.float64), traces.predicted != pool.labels[labelled])


class _Nearby(PerInput):
    def __init__(self, method: NeighbourFault, pool: Pool, labelled: Ints, points: np.ndarray, wrong: np.ndarray) -> None:
        super().__init__(len(pool))
        self.want: Want = method.want
        self.layout = pool.context.layout(self.want)
        self.k = min(method.k, len(labelled))
        self.points, self.wrong, self.labelled = points, wrong.astype(np.float64), labelled

    def update(self, index: np.ndarray, trace: Trace, partners: Sequence[Trace]) -> None:
        values = joined(trace, self.want, self.layout).values.astype(np.float64)
        apart = squared_distances(values, self.points)  # (n, labelled)
        near = np.argpartition(apart, self.k - 1, axis=1)[:, : self.k]
        share = self.wrong[near].mean(axis=1)
        gini = doubt(trace)  # below 1
        self.scores[index] = np.where(np.isfinite(apart).all(axis=1), share + gini / self.k / 2, np.nan)

    def value(self) -> np.ndarray:
        self.scores[self.labelled] = LABELLED_SCORE
        return self.scores

    def notes(self) -> tuple[str, ...]:
        return (f"{len(self.labelled)} labels are known, {int(self.wrong.sum())} of them faults.",)
