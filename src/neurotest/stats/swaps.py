"""Two ways of searching on the same seeds: how many kinds each found, and how far apart chance alone would bring them."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any, NamedTuple

import numpy as np

from neurotest import rng

Findings = Iterable[tuple[int, Hashable]]  # (seed, kind)
CHUNK = 1 << 24  # numbers held at once


class _Swapped(NamedTuple):
    """Kinds of the one and of the other, and the interval of their difference if the two did not differ."""

    left: int
    right: int
    low: float
    high: float

    @property
    def difference(self) -> int:
        return self.left - self.right

    @property
    def larger(self) -> str | None:
        """`left`, `right`, or None within chance."""
        return "left" if self.difference > self.high else "right" if self.difference < self.low else None


def swap_interval(left: Findings, right: Findings, *, draws: int = 2000, level: float = 0.95, seed: int = 0) -> _Swapped:
    """Kinds found by two campaigns from the same seeds, with what exchanging the two, seed by seed at random, would give.

    If both search alike, each seed's findings could as well be the other's. A bootstrap would leave a third of the seeds out, and
    with them rare kinds; an exchange leaves none out. Findings of one seed stay together, since they depend on each other.

    >>> swap_interval([(0, "a"), (1, "b")], [(0, "a"), (1, "a")])[:2]
    (2, 1)
    """
    pairs = [list(dict.fromkeys(side)) for side in (left, right)]
    seeds = {s: i for i, s in enumerate(sorted({s for side in pairs for s, _ in side}))}
    kinds = {k: i for i, k in enumerate(dict.fromkeys(k for side in pairs for _, k in side))}
    if not kinds:
        return _Swapped(0, 0, 0.0, 0.0)
    ours, theirs = (_table([(seeds[s], kinds[k]) for s, k in side], len(seeds), len(kinds)) for side in pairs)
    generator = rng.stream("stats.swaps", seed)
    differences = np.empty(draws)
    rows = max(1, CHUNK // (len(seeds) + len(kinds)))
    for start in range(0, draws, rows):
        swap = generator.integers(0, 2, (min(rows, draws - start), len(seeds))).astype(np.float32)
        a = (1 - swap) @ ours + swap @ theirs > 0  # (draws, kinds)
        b = swap @ ours + (1 - swap) @ theirs > 0
        differences[start : start + len(swap)] = a.sum(1) - b.sum(1, dtype=np.float64)
    reach = float(np.quantile(np.abs(differences), level))  # exchanging everything turns the sign: the interval is symmetric
    return _Swapped(len({k for _, k in pairs[0]}), len({k for _, k in pairs[1]}), -reach, reach)


def _table(places: list[tuple[int, int]], seeds: int, kinds: int) -> Any:
    """A sparse table (seeds, kinds) of 0 and 1."""
    from scipy.sparse import csr_array

    rows, columns = np.array(places, dtype=np.int64).reshape(-1, 2).T
    return csr_array((np.ones(len(rows), dtype=np.float32), (rows, columns)), shape=(seeds, kinds))
