"""Select by how far an input is from what the network learned: the nearest training inputs of the class it is taken for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from neurotest import rng
from neurotest.checks import setting
from neurotest.errors import BadInput
from neurotest.measure.context import Traces
from neurotest.registry import register
from neurotest.select.scorer import BlockState, Pool, TrainedScorer, doubt, steady
from neurotest.target import Trace

Ints = NDArray[np.int64]
BLOCK = 2500  # candidates searched at once
PROJECTED = 64  # directions that a search for candidates uses
SAMPLE = 1000  # training inputs that set these directions
TYPICAL = 300  # training inputs that say how far apart inputs usually are
EASY = 2_000_000  # products per candidate and class up to which everything is compared with everything
THIN, EACH = 500, 50  # training inputs, and of every class, that decide which other class is nearest, at most
FARTHEST = 2.0  # cosine distance of opposite vectors: what a class without training inputs gets


@register(
    "selector",
    "nearest",
    main="k",
    paper="ours: neuron sensitivity (NSS) and surprise (DSA, Kim et al., ICSE 2019) where no original is there",
    cost="one forward pass per input and training input; the search costs a fraction of a pass of LeNet-5 (`bench "
    "select`); keeps 8 bytes per input and the activations of at most 10,000 training inputs",
    differs="NSS measures how far an input moved from its original; here the nearest training inputs of the predicted class "
    "stand for it. DSA takes Euclidean distances of channel means in every layer to any training input; this takes the cosine, "
    "the last map, the mean of `k` neighbours, training inputs the network gets right, and DeepGini as a factor.",
    presets={"plain": {"others": False, "doubt": None, "usual": None}},
)
class Nearest(TrainedScorer):
    """Score by max(d / sqrt(o), u) * (DeepGini + `doubt`).

    d: the mean cosine distance to the `k` nearest training inputs of the predicted class; o: the same for the class of the
    nearest training input of another class (others=false: 1). u: what the share `usual` of training inputs stays below, each
    compared with the others, so that DeepGini alone ranks what lies no farther away than training inputs do (none: 0). doubt: how
    little DeepGini counts; none leaves it out. Only training inputs that the network gets right count, where training data has
    labels. inputs: so many of them at most, drawn at random. search: `exact` compares everything with everything, `projected`
    looks among those nearest in 64 directions, `auto` decides by the cost. layer, neuron: where distances are measured; default
    is the last map of the encoder, every value of it.
    """

    k: int = setting(5, "5 by default")
    others: bool = True
    doubt: float | None = setting(0.1, "0.1 by default; none leaves DeepGini out", least=0)
    usual: float | None = setting(0.95, "0.95 by default; none: every distance counts", above=0, most=1)
    search: Literal["auto", "exact", "projected"] = "auto"
    inputs: int | None = setting(10_000, "10000 by default; none: all")
    layer: str = "encoder"
    neuron: Literal["unit", "channel"] = "unit"

    def start(self, pool: Pool) -> _NearestState:
        return _NearestState(self, pool, self._points(pool.context.traces(self.want, "nearest"), pool.seed))

    def _points(self, traces: Traces, seed: int) -> _Directions:
        good = np.isfinite(traces.values).all(axis=1)
        if traces.labels is not None and bool((traces.predicted == traces.labels).any()):
            good &= (traces.predicted == traces.labels) | (traces.labels < 0)
        rows = np.flatnonzero(good)
        if not len(rows):
            raise BadInput(
                "not-finite",
                "train",
                "nearest needs training inputs with finite activations: none is usable. Give others with --train DATA.",
            )
        if self.inputs is not None and len(rows) > self.inputs:
            rows = np.sort(rng.stream("select.nearest", seed).permutation(rows)[: self.inputs])
        return _Directions(torch.from_numpy(traces.values[rows]), traces.predicted[rows], self.search)


class _Directions:
    """Unit vectors in classes, searched by the cosine.

    Which other class is nearest is decided in a few directions; within a class everything is compared with everything, or, where
    that is too much, with those that are nearest in these directions.
    """

    def __init__(self, points: Tensor, classes: Ints, search: str = "auto") -> None:
        order = np.argsort(classes, kind="stable")
        self.points = unit(points.float()[torch.from_numpy(order)])  # (n, d)
        present, starts = np.unique(classes[order], return_index=True)
        ends = [*starts[1:].tolist(), len(order)]
        self.parts = {int(c): slice(a, b) for c, a, b in zip(present, starts.tolist(), ends, strict=True)}
        n, d = self.points.shape
        self.basis = self._directions() if d > 2 * PROJECTED else None
        self.short = self.points if self.basis is None else self.points @ self.basis  # (n, few)
        most = max(part.stop - part.start for part in self.parts.values())
        self.shortlist = self.basis is not None and (search == "projected" or (search == "auto" and most * d > EASY))
        self.classes: Ints = classes[order]
        step = -(-n // max(THIN, EACH * len(self.parts)))
        self.thin = self.short[::step].contiguous()  # decides which other class is nearest
        thin_classes = self.classes[::step]
        self.thin_present, thin_starts = np.unique(thin_classes, return_index=True)
        self.thin_lengths = np.diff([*thin_starts.tolist(), len(thin_classes)]).tolist()

    def _directions(self) -> Tensor:
        """(d, few) in which the points lie: a power step from random ones, because a decomposition would cost as much as the
        forward passes."""
        step = max(1, len(self.points) // SAMPLE)
        some = self.points[::step][:SAMPLE]
        start = torch.randn(some.shape[1], PROJECTED, generator=rng.torch_stream("select.nearest.directions", 0))
        basis: Tensor = torch.linalg.qr(some.T @ (some @ start))[0].contiguous()
        return basis

    def search(
        self, queries: Tensor, predicted: Ints, k: int, *, others: bool, more: int = 0
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Mean distance to the k (and `more`) nearest of the predicted class, and to k of the nearest other one: (n,) each."""
        own, other = (np.full(len(queries), FARTHEST) for _ in range(2))
        for start in range(0, len(queries), BLOCK):
            part = slice(start, start + BLOCK)
            rows, classes = queries[part].float(), predicted[part]
            lengths = _lengths(rows)
            short = rows if self.basis is None else rows @ self.basis
            own[part] = self._in_class(rows, short, lengths, classes, k + more)
            if others and len(self.parts) > 1:
                other[part] = self._in_class(rows, short, lengths, self._nearest_other(short, classes), k)
        return own, other

    def typical(self, k: int, *, others: bool) -> NDArray[np.float64]:
        """The distances d / sqrt(o) of some of the points themselves, each compared with all others."""
        rows = np.arange(0, len(self.points), max(1, len(self.points) // TYPICAL))[:TYPICAL]
        classes = self.classes[rows]
        own, other = self.search(self.points[torch.from_numpy(rows)], classes, k, others=others, more=1)
        among = np.array([min(k + 1, self.parts[c].stop - self.parts[c].start) for c in classes.tolist()])
        several = among > 1  # the nearest is the point itself, at no distance
        own = own[several] * among[several] / (among[several] - 1)
        return _relative(own, other[several]) if others else own

    def _nearest_other(self, short: Tensor, classes: Ints) -> Ints:
        """The class of the nearest point of another class; a query's own length does not matter for that."""
        alike = self.thin @ short.T  # (few points, b), sorted by class: maxima over rows cost a tenth of those over columns
        best = torch.stack([part.amax(0) for part in alike.split(self.thin_lengths)])  # (classes, b)
        best[torch.from_numpy(self.thin_present[:, None] == classes)] = -torch.inf
        nearest: Ints = self.thin_present[best.argmax(0).numpy()]
        return nearest

    def _in_class(self, rows: Tensor, short: Tensor, lengths: Tensor, classes: Ints, k: int) -> NDArray[np.float64]:
        """Products with unit vectors are divided by the queries' lengths at the end, where few of them are left."""
        order = np.argsort(classes, kind="stable")
        at = torch.from_numpy(order)
        rows, lengths = rows.index_select(0, at), lengths[at]  # a third of the time of rows[at]
        short = short.index_select(0, at) if self.shortlist else short
        distances = np.full(len(rows), FARTHEST)
        present, starts = np.unique(classes[order], return_index=True)
        for c, start, end in zip(present.tolist(), starts.tolist(), [*starts[1:].tolist(), len(rows)], strict=True):
            if c not in self.parts:
                continue
            part, mine = self.parts[c], slice(start, end)
            count = part.stop - part.start
            if self.shortlist:
                wide = min(count, 2 * k)  # projections mix up neighbours, so some more are looked at
                where = (short[mine] @ self.short[part].T).topk(wide, dim=1).indices + part.start
                alike = torch.bmm(self.points[where], rows[mine].unsqueeze(2)).squeeze(2)
            else:
                alike = rows[mine] @ self.points[part].T
            rest = alike.shape[1] - min(k, count)
            near = np.partition(alike.numpy(), rest, axis=1)[:, rest:]
            distances[order[mine]] = np.maximum(1 - near / lengths[mine, None].double().numpy(), 0).mean(1)
        return distances


def _relative(own: NDArray[np.float64], other: NDArray[np.float64]) -> NDArray[np.float64]:
    """d / sqrt(o)"""
    return own / np.sqrt(np.maximum(other, 1e-6))


def unit(rows: Tensor) -> Tensor:
    """Of length 1; a silent row stays 0."""
    return rows / _lengths(rows)[:, None]


def _finite(values: np.ndarray) -> NDArray[np.bool_]:
    """Rows without inf and nan: their sums are finite, or their values have to be looked at one by one."""
    finite: NDArray[np.bool_] = np.isfinite(values.sum(axis=1))
    doubtful = np.flatnonzero(~finite)
    finite[doubtful] = np.isfinite(values[doubtful]).all(axis=1)
    return finite


def _lengths(rows: Tensor) -> Tensor:
    """(n,); 1 of a silent row."""
    lengths = torch.linalg.vector_norm(rows, dim=1)
    return torch.where(lengths > 0, lengths, 1.0)


class _NearestState(BlockState):
    block: ClassVar[int] = BLOCK

    def __init__(self, method: Nearest, pool: Pool, points: _Directions) -> None:
        super().__init__(method.want, pool)
        self.method, self.points = method, points
        self.least = 0.0
        if method.usual is not None and len(typical := points.typical(method.k, others=method.others)):
            self.least = float(np.quantile(typical, method.usual))

    def columns(self, trace: Trace) -> tuple[np.ndarray, ...]:
        return (*super().columns(trace), doubt(trace))

    def score(self, columns: Sequence[np.ndarray]) -> np.ndarray:
        values, predicted, gini = columns
        method = self.method
        own, other = self.points.search(torch.from_numpy(values), predicted, method.k, others=method.others)
        self.foreign += int((~np.isin(predicted, list(self.points.parts))).sum())
        score = np.maximum(_relative(own, other) if method.others else own, self.least)
        if method.doubt is not None:
            score = score * (gini + method.doubt)
        return np.where(_finite(values), steady(score), np.nan)

    def notes(self) -> tuple[str, ...]:
        if not self.foreign:
            return ()
        return (f"{self.foreign} candidates are predicted as a class that no training input has: they count as farthest away.",)
