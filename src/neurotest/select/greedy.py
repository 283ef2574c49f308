"""Coverage-greedy selection: by how much each input covers (CTM), or by how much it adds to those before it (CAM)."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from neurotest import registry
from neurotest.checks import shown
from neurotest.coverage.criterion import Criterion
from neurotest.coverage.surprise import SurpriseState
from neurotest.errors import BadInput
from neurotest.registry import register
from neurotest.select.scorer import Pool, Scorer
from neurotest.target import Trace, Want

Ints = NDArray[np.int32]
FENG = "Feng et al., DeepGini, ISSTA 2020, after Rothermel et al. 1999"
COST = "one forward pass per input; 4 bytes kept per obligation that an input hits (kmnc: 4 per neuron; surprise: 8 in all)"


@dataclass(frozen=True, eq=False)
class _Covers:
    """Which input covers which obligations, input by input: those of input i are `ids[starts[i]:starts[i + 1]]`."""

    starts: NDArray[np.int64]  # (n + 1,)
    ids: Ints

    @property
    def counts(self) -> NDArray[np.int64]:
        return np.diff(self.starts)

    @classmethod
    def joined(cls, index: NDArray[np.int64], counts: NDArray[np.int64], ids: Ints) -> _Covers:
        """From batches that came in any order; `index` are the inputs' positions as they came."""
        starts = np.concatenate([[0], np.cumsum(counts)])
        if len(index) and (np.diff(index) != 1).any():
            order = np.argsort(index)
            ids = ids[_flat(starts[order], counts[order])]
            starts = np.concatenate([[0], np.cumsum(counts[order])])
        return cls(starts, ids)


def _flat(starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """start, start + 1, ... for each start, so many as its length says."""
    ends = np.cumsum(lengths)
    places = np.repeat(starts - ends + lengths, lengths)
    places += np.arange(len(places))
    return places


def _additional(covers: _Covers) -> NDArray[np.int64]:
    """What each input adds when always the one that adds most comes next (the first of equals); 0 for those that add nothing.

    Gains only ever fall, so among equal gains positions rise: sorting by gain, stably, gives the order of the picks back. An
    index from obligations to inputs keeps all gains exact at the cost of one step per hit, whatever the order.
    """
    from scipy.sparse import csr_matrix

    n, ids = len(covers.starts) - 1, covers.ids
    if not len(ids):
        return np.zeros(n, dtype=np.int64)
    wide = int(ids.max()) + 1
    turned = csr_matrix((np.ones(len(ids), dtype=np.int8), ids, covers.starts), shape=(n, wide)).tocsc()
    inputs, places = turned.indices, turned.indptr
    open_ = np.ones(wide, dtype=bool)
    gain = covers.counts.astype(np.int32)
    added = np.zeros(n, dtype=np.int64)
    while (best := gain[first := int(gain.argmax())]) > 0:
        added[first] = best
        new = ids[covers.starts[first] : covers.starts[first + 1]]
        new = new[open_[new]]
        open_[new] = False
        begin = places[new]
        np.subtract.at(gain, inputs[_flat(begin, places[new + 1] - begin)], 1)
    return added


@dataclass(frozen=True, kw_only=True)
class _ByCoverage(Scorer):
    """What CTM and CAM share. criterion: a coverage criterion as text (`kmnc:1000`; options apart by `;`) or as object.
    layer, neuron: override the criterion's own."""

    criterion: Any = "nac"
    layer: str | None = None
    neuron: str | None = None

    def __post_init__(self) -> None:
        own = self._own()
        if not isinstance(own, Criterion) or not own.obligations:
            criteria = registry.entries("criterion").items()
            countable = ", ".join(name for name, entry in criteria if getattr(entry.make, "obligations", False))
            raise BadInput(
                "unsuitable", "criterion", f"criterion={shown(self.criterion)} has no obligations to count: use {countable}."
            )
        object.__setattr__(self, "layer", self.layer or own.layers)
        object.__setattr__(self, "neuron", self.neuron or own.neuron)
        _ = self.measure

    def _own(self) -> Any:
        text = self.criterion.replace(";", ",") if isinstance(self.criterion, str) else self.criterion
        return registry.build("criterion", text)

    @cached_property
    def measure(self) -> Criterion:
        criterion: Criterion = replace(self._own(), layers=self.layer, neuron=self.neuron)
        return criterion

    @property
    def want(self) -> Want:
        return self.measure.want

    @property
    def learns(self) -> tuple[str, Want] | None:
        return (self.measure.needs, self.want) if self.measure.needs in ("profile", "traces") else None

    @abstractmethod
    def order_by(self, covers: _Covers) -> NDArray[np.float64]: ...

    def remarks(self, covers: _Covers) -> tuple[str, ...]:
        return ()

    def start(self, pool: Pool) -> Collected:
        state = self.measure.start(pool.context)
        return _Bucketed(self, state, len(pool)) if isinstance(state, SurpriseState) else Collected(self, state)


class Collected:
    """Keeps which obligations each candidate hits."""

    def __init__(self, method: _ByCoverage, state: Any) -> None:
        self.method, self.state = method, state
        self.batches: list[tuple[np.ndarray, NDArray[np.int64], Ints]] = []  # positions, counts, obligations
        self._notes: tuple[str, ...] = ()

    def update(self, index: np.ndarray, trace: Trace, partners: Sequence[Trace]) -> None:
        rows, hit = self.state.obligations(trace)
        self.batches.append((index, np.bincount(rows, minlength=len(index)), hit.astype(np.int32)))

    def fresh(self, n: int) -> Self:
        part = copy.copy(self)
        part.batches = []
        return part

    def result(self) -> Any:
        """Positions in the piece, counts and obligations: a summary that greedy selection works on at the end."""
        return self.batches

    def merge(self, index: np.ndarray, result: Any) -> None:
        self.batches += [(index[places], counts, ids) for places, counts, ids in result]

    def covers(self) -> _Covers:
        index, counts, ids = (np.concatenate(parts) for parts in zip(*self.batches, strict=True))
        self.batches = []  # what is joined is not needed twice
        return _Covers.joined(index, counts, ids)

    def value(self) -> np.ndarray:
        covers = self.covers()
        self._notes = self.method.remarks(covers)
        return self.method.order_by(covers)

    def notes(self) -> tuple[str, ...]:
        return self._notes


class _Bucketed(Collected):
    """Surprise coverage: one bucket per candidate, which depends on all scores."""

    def __init__(self, method: _ByCoverage, state: SurpriseState, n: int) -> None:
        super().__init__(method, state)
        self.scores = np.full(n, np.nan)

    def update(self, index: np.ndarray, trace: Trace, partners: Sequence[Trace]) -> None:
        self.scores[index] = self.state.score(trace)

    def fresh(self, n: int) -> Self:
        part = super().fresh(n)
        part.scores = np.full(n, np.nan)
        return part

    def result(self) -> np.ndarray:
        return self.scores

    def merge(self, index: np.ndarray, result: np.ndarray) -> None:
        self.scores[index] = result

    def covers(self) -> _Covers:
        return _bucketed(self.state, self.scores)


def _bucketed(state: SurpriseState, scores: np.ndarray) -> _Covers:
    """Each score's bucket as its one obligation, buckets numbered from 0."""
    rows, ids = state.buckets_of(scores)
    numbers = np.unique(ids, return_inverse=True)[1].astype(np.int32)
    counts = np.bincount(rows, minlength=len(scores))
    return _Covers(np.concatenate([[0], np.cumsum(counts)]), numbers)


@register(
    "selector", "ctm", main="criterion", paper=f"coverage total method: {FENG}", cost=COST,
    differs="Ties keep the pool's order (peers: an unstable sort). It says nothing where every input covers as much: always "
    "for tknc, nearly always for kmnc; a note says so.",
)  # fmt: skip
class CTM(_ByCoverage):
    """Score by how many of a criterion's obligations an input covers by itself.

    criterion: one that counts obligations, such as nac, kmnc or dsc; `ctm:kmnc:1000`, options apart by `;`. layer, neuron:
    override the criterion's own.
    """

    pointwise: ClassVar[bool] = True

    def order_by(self, covers: _Covers) -> NDArray[np.float64]:
        return covers.counts.astype(np.float64)

    def remarks(self, covers: _Covers) -> tuple[str, ...]:
        counts = covers.counts
        if counts.min() < counts.max():
            return ()
        return (f"every candidate covers as much ({counts[0]}): the order is the pool's own. Use cam, or another criterion.",)


@register(
    "selector", "cam", main="criterion", paper=f"coverage additional method: {FENG}",
    cost=f"{COST}, as much again while the order is made",
    differs="Starts with the input that covers most (DeepGini's code: with a random one) and goes on until nothing is added, "
    "then by ctm, as dnn-tip does. The order equals dnn-tip's; a sparse index replaces its dense profiles.",
)  # fmt: skip
class CAM(_ByCoverage):
    """Score by how many obligations an input adds to those of all inputs before it; below 1, by how many it covers by itself.

    criterion, layer, neuron: as for `ctm` (`cam:kmnc:1000`).
    """

    pointwise: ClassVar[bool] = False

    def order_by(self, covers: _Covers) -> NDArray[np.float64]:
        alone = covers.counts / (1.0 + covers.counts.max(initial=0))
        added = _additional(covers)
        return np.where(added > 0, added, alone)
