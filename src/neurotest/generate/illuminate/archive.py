"""The archive: for every (true class, predicted class, way of change) the smallest change that fails, and which to try next."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int64]


class Archive:
    """Cells (classes, classes, ways). Seeds of a class are tried for a cell in the order of how little the other class lags."""

    def __init__(self, labels: Numbers, logits: NDArray[np.float64], ways: int) -> None:
        classes = logits.shape[1]
        self.labels, self.classes, self.ways = labels, classes, ways
        self.smallest = np.full((classes, classes, ways), np.inf)
        self.elite = np.full((classes, classes, ways), -1, dtype=np.int64)
        self.attempts = np.zeros((classes, classes, ways), dtype=np.int64)
        self.seeds = np.bincount(labels, minlength=classes)  # of each class
        lag = logits[np.arange(len(logits)), labels][:, None] - logits  # (n, classes)
        # order[p] holds all seeds, class by class, each class by its lag behind p; first[t] is where class t begins.
        self.order = np.stack([np.lexsort((lag[:, p], labels)) for p in range(classes)])
        self.first = np.concatenate([[0], np.cumsum(self.seeds)[:-1]])
        self.lag = np.full((classes, classes), np.inf)
        np.minimum.at(self.lag, labels, lag)

    @property
    def filled(self) -> NDArray[np.bool_]:
        return np.asarray(self.elite >= 0)

    @property
    def pairs(self) -> int:
        """How many (true, predicted) pairs have a fault."""
        return int(self.filled.any(2).sum())

    @property
    def possible(self) -> int:
        """How many pairs there are: each class that has seeds with every other."""
        return int((self.seeds > 0).sum()) * (int(self.classes) - 1)

    def offer(self, true: int, predicted: int, way: int, size: float, number: int) -> bool:
        """A fault; whether it is the smallest of its cell so far."""
        if size >= self.smallest[true, predicted, way]:
            return False
        self.smallest[true, predicted, way], self.elite[true, predicted, way] = size, number
        return True

    def next(self, most: int) -> tuple[int, Numbers, Numbers]:
        """A way and at most so many (seed, aimed class): empty pairs first, then empty cells, then those tried least."""
        cells = np.argwhere(self._open())
        if not len(cells):
            return 0, np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
        t, p, w = cells.T
        some = np.asarray(self.filled.any(axis=2))
        tier = self.filled[t, p, w] * 1 + some[t, p]  # 0: an empty pair, 1: an empty cell, 2: to be improved
        ranked = np.lexsort((self.lag[t, p], w, self.attempts[t, p, w], tier))
        way, best = int(w[ranked[0]]), tier[ranked[0]]
        chosen = ranked[(w[ranked] == way) & (tier[ranked] == best)][:most]
        t, p = t[chosen], p[chosen]
        seeds = self.order[p, self.first[t] + self.attempts[t, p, way]]
        self.attempts[t, p, way] += 1
        return way, seeds, p

    def _open(self) -> NDArray[np.bool_]:
        """Cells with seeds that were not tried yet."""
        left = self.attempts < self.seeds[:, None, None]
        left[np.arange(self.classes), np.arange(self.classes)] = False
        return np.asarray(left)
