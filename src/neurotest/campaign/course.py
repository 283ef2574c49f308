"""How a campaign went: faults, families and broken seeds over forward passes, beside those of its control."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from neurotest.campaign.status import tally_of
from neurotest.campaign.store import Store
from neurotest.generate.fuzz.mutants import Key
from neurotest.runs.store import Run

Firsts = dict[tuple[int, Key], int]  # (row of the seed, family) -> forward passes when it was seen first


class Curve(NamedTuple):
    """A count that grows with forward passes: after `forwards[i]` of them it is `counts[i]`."""

    forwards: NDArray[np.int64]
    counts: NDArray[np.int64]


def new_families(firsts: Firsts) -> Curve:
    return _steps(_least((family, forwards) for (_, family), forwards in firsts.items()))


def new_seeds(firsts: Firsts) -> Curve:
    return _steps(_least((seed, forwards) for (seed, _), forwards in firsts.items()))


def _least(pairs: Iterable[tuple[object, int]]) -> list[int]:
    least: dict[object, int] = {}
    for key, forwards in pairs:
        least[key] = min(forwards, least.get(key, forwards))
    return list(least.values())


def _steps(times: list[int]) -> Curve:
    forwards, counts = np.unique(np.array(times, dtype=np.int64), return_counts=True)
    return Curve(forwards, counts.cumsum())


def faults(run: Run, firsts: Firsts) -> Curve:
    """All faults. Rows name their batch only; what is new in a batch says how many passes were made by then, and batches in
    between are laid between those."""
    store = Store(run)
    _, rows = store.seeds()
    anchors = {0: 0, tally_of(run).batches: tally_of(run).forwards}
    for (position, expected, predicted, operator), batch in store.first_batches().items():
        key = (rows.get(position, -1), (expected, predicted, operator))
        if key in firsts:
            anchors[batch] = firsts[key]
    batches, counts = zip(*store.faults_by_batch(), strict=True)
    at = sorted(anchors)
    forwards = np.interp(batches, at, np.maximum.accumulate([anchors[batch] for batch in at])).round().astype(np.int64)
    return Curve(forwards, np.cumsum(counts))
