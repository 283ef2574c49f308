"""NLC: how much the activations of a layer vary together over the inputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from neurotest import rng
from neurotest.checks import setting
from neurotest.coverage.criterion import Arrays, Criterion, Share, State, Value
from neurotest.measure.context import Context
from neurotest.measure.traces import Joined, Layout, Values
from neurotest.registry import register
from neurotest.target import Trace

Floats = NDArray[np.float64]
QUEUED_INPUTS = 64  # inputs that wait to be added together: one matrix product instead of many


@register(
    "criterion",
    "nlc",
    main="mode",
    paper="Yuan et al., Revisiting Neuron Coverage for DNN Testing, ICSE 2023",
    cost="one matrix product per layer and 64 inputs; 8 bytes kept per pair of neurons of a layer, of at most a million pairs",
    presets={"code": {"mode": "gated", "accept_first": False, "offset": 1.0, "neurons": 0}},
    differs="Every input is merged, so the value depends on neither order nor batch size. The published code keeps a batch "
    "only in layers whose norm rises (`mode=gated`), which makes the value depend on both, starts at 1 (`offset=1`), "
    "and never starts at all with batches of one (`accept_first=false`). Of a layer with more than 1,000 neurons so many are "
    "drawn; the published code takes all pairs (`neurons=0`).",
)
class NLC(Criterion):
    """Sum over layers of the mean absolute entry of the covariance of the layer's neurons: grows without a bound.

    mode: `exact` merges every input; `gated` keeps a batch in a layer only if its norm rises there, which depends on order and
    batch size. accept_first: gated layers take what comes until they have two inputs. offset: added to the value. neurons: of a
    wider layer so many are drawn, by its name, and the value is an estimate; 0 takes all.
    """

    mode: Literal["exact", "gated"] = "exact"
    accept_first: bool = True
    offset: float = setting(0.0, "the published code adds 1")
    neurons: int = setting(1000, "1,000 by default; 0 for all", least=0)

    growing: ClassVar[bool] = False  # an input in the middle of the others lowers a covariance

    @property
    def mergeable(self) -> bool:
        return self.mode == "exact"

    def start(self, context: Context) -> _CovarianceState:
        return _CovarianceState(self, context.layout(self.want))

    def memory(self, layout: Layout, inputs: int, train: int) -> int:
        return 24 * sum(self.drawn(size) ** 2 for size in layout.sizes.values())

    def drawn(self, size: int) -> int:
        """Of so many neurons of a layer."""
        return min(size, self.neurons or size)


class Sums:
    """Count, sum and outer products of one layer, shifted by its first batch's mean so that nothing cancels.

    of: the layer's neurons, if only some of them are here.
    """

    def __init__(self, width: int, of: int | None = None) -> None:
        self.count, self.of = 0, width if of is None else of
        self.shift: Floats = np.zeros(width)
        self.total: Floats = np.zeros(width)
        self.products: Floats = np.zeros((width, width))
        self._scratch: Floats | None = None

    def add(self, values: Values) -> None:
        if self.count and len(values) == 1:
            row = values[0] - self.shift
            self.count += 1
            self.total += row
            self.products += self._outer(row, row)
            return
        wide = values.astype(np.float64)
        if not self.count:
            self.shift = wide.mean(axis=0)
        wide -= self.shift
        self.count += len(wide)
        self.total += wide.sum(axis=0)
        self.products += wide.T @ wide

    def copy(self) -> Sums:
        new = Sums(0, self.of)
        new.count, new.shift, new.total, new.products = self.count, self.shift, self.total.copy(), self.products.copy()
        return new

    def merge(self, other: Sums) -> None:
        if not other.count:
            return
        if not self.count:
            self.__dict__.update(other.copy().__dict__)
            return
        apart = other.shift - self.shift
        cross = np.outer(other.total, apart)
        self.products += other.products + cross + cross.T + other.count * np.outer(apart, apart)
        self.total += other.total + other.count * apart
        self.count += other.count

    def covariance(self) -> Floats:
        if not self.count:
            return np.zeros_like(self.products)
        mean = self.total / self.count
        covariance: Floats = self.products / self.count
        covariance -= mean[:, None] * mean
        return covariance

    def dead(self) -> int:
        """How many neurons never changed: what rounding makes of a constant is far below any float32 step."""
        if self.count < 2:
            return 0
        mean = self.total / self.count
        variance = self.products.diagonal() / self.count - mean * mean
        return int(np.count_nonzero(variance <= 1e-26 * np.square(self.shift + mean)))

    def norm(self) -> float:
        """The mean absolute covariance of all pairs; of drawn neurons, with as many pairs of one with itself as all have."""
        if self.count < 2:
            return 0.0
        # Few passes over one array, because those who search with it read this after every input. Not by BLAS: from 100
        # neurons on it wakes a second thread for microseconds of work, which then waits for the next in a loop.
        covariance = self._outer(self.total, self.total * (-1 / self.count))
        covariance += self.products
        np.abs(covariance, out=covariance)
        total = float(covariance.sum())
        if (drawn := len(covariance)) < self.of:
            own = float(covariance.trace())
            total = (own + (total - own) * (self.of - 1) / max(1, drawn - 1)) * drawn / self.of
        return total / (covariance.size * self.count)

    def _outer(self, column: Floats, row: Floats) -> Floats:
        """Every product of the two, in an array that the next call writes over."""
        if self._scratch is None:
            self._scratch = np.empty_like(self.products)
        return np.multiply(column[:, None], row, out=self._scratch)


class _CovarianceState(State):
    criterion: NLC

    def __init__(self, criterion: NLC, layout: Layout) -> None:
        super().__init__(criterion, layout)
        self._sums = self._none()
        self._places = [self._place(name, place) for name, place in layout.slices.items()]
        self._queue: list[Values] = []
        self._waiting = 0

    def _none(self) -> list[Sums]:
        return [Sums(self.criterion.drawn(size), size) for size in self.layout.sizes.values()]

    def _place(self, name: str, place: slice) -> slice | NDArray[np.int64]:
        """Where a layer's neurons are among all, or those of them that were drawn."""
        size = place.stop - place.start
        if (drawn := self.criterion.drawn(size)) == size:
            return place
        some = rng.stream(f"coverage.covariance.{name}", size).choice(size, drawn, replace=False)
        return np.asarray(place.start + np.sort(some))

    def _update(self, joined: Joined, trace: Trace) -> None:
        values = joined.values if joined.bad is None else joined.values[joined.finite_rows]
        if not len(values):
            return
        if self.criterion.mode == "gated":
            self._gated(values)
            return
        self._waiting += len(values)
        if self._waiting >= QUEUED_INPUTS and not self._queue:
            self._add(values)
            return
        self._queue.append(np.array(values))  # a copy: the network may write over what the trace shows
        if self._waiting >= QUEUED_INPUTS:
            self._flush()

    def _add(self, values: Values) -> None:
        for sums, place in zip(self._sums, self._places, strict=True):
            sums.add(values[:, place])
        self._waiting = 0

    def _flush(self) -> None:
        if self._queue:
            waiting, self._queue = self._queue, []
            self._add(np.concatenate(waiting) if len(waiting) > 1 else waiting[0])

    def sums(self) -> list[Sums]:
        """Per layer, with everything that waited."""
        self._flush()
        return self._sums

    def _gated(self, values: Values) -> None:
        for layer, place in enumerate(self._places):
            old = self._sums[layer]
            new = old.copy()
            new.add(values[:, place])
            if new.norm() > old.norm() or (self.criterion.accept_first and old.count < 2):
                self._sums[layer] = new

    def gain(self, trace: Trace) -> NDArray[np.float64]:
        joined = self.read(trace)
        gained = np.zeros(len(joined.values))
        for sums, place in zip(self.sums(), self._places, strict=True):
            before = sums.norm()
            for i in np.flatnonzero(joined.finite_rows):
                new = sums.copy()
                new.add(joined.values[i, place][None])
                change = new.norm() - before
                gained[i] += max(0.0, change) if self.criterion.mode == "gated" else change
        return gained

    def _merge(self, other: Self) -> None:
        for mine, theirs in zip(self.sums(), other.sums(), strict=True):
            mine.merge(theirs)

    def value(self) -> Value:
        pairs = zip(self.layout.names, self.sums(), strict=True)
        layers = {name: Share.count(sums.norm(), sums.dead()) for name, sums in pairs}
        whole = Share.count(self.criterion.offset + sum(s.value for s in layers.values()), sum(s.dead for s in layers.values()))
        return Value(whole, layers, {}, self.nonfinite(), (*self.warnings(), *self._drawn()))

    def _drawn(self) -> tuple[str, ...]:
        wide = [name for name, size in self.layout.sizes.items() if self.criterion.drawn(size) < size]
        named = ", ".join(wide[:3]) + (", ..." if wide[3:] else "")
        return (f"an estimate: of {named} {self.criterion.neurons:,} neurons were drawn (neurons=0 takes all).",) if wide else ()

    def arrays(self) -> Arrays:
        arrays: Arrays = {"count": np.array([sums.count for sums in self.sums()], dtype=np.int64)}
        for name, sums in zip(self.layout.names, self._sums, strict=True):
            arrays |= {f"shift/{name}": sums.shift.copy(), f"total/{name}": sums.total.copy()}
            arrays[f"products/{name}"] = sums.products.copy()
        return arrays

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        self._queue, self._waiting = [], 0
        self._sums = self._none()
        for layer, name in enumerate(self.layout.names):
            sums = self._sums[layer]
            sums.count = int(np.asarray(state["count"])[layer])
            for key in ("shift", "total", "products"):
                setattr(sums, key, np.array(state[f"{key}/{name}"], dtype=np.float64).reshape(getattr(sums, key).shape))
