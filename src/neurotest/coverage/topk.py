"""TKNC, BKNC and TKNP: which neurons of each layer are the strongest or the weakest, and which patterns they make."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from hashlib import blake2b
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from neurotest.checks import setting
from neurotest.coverage.bits import Bits, HitState
from neurotest.coverage.criterion import Arrays, Criterion, Share, State, Value, first_few
from neurotest.measure.context import Context
from neurotest.measure.traces import Joined, Layout, Values
from neurotest.registry import register
from neurotest.stats.diversity import HASH, Distinct, Hashes, as_hashes
from neurotest.target import Trace

DEEPGAUGE = "Ma et al., DeepGauge, ASE 2018"


def _strongest(values: Values, k: int, *, weakest: bool = False) -> NDArray[np.int64]:
    """Positions of the k greatest (or least) values of each row, in order; equal values by position: (n, min(k, width))."""
    return np.argsort(values if weakest else -values, axis=1, kind="stable")[:, :k]


@register(
    "criterion", "tknc", main="k", paper=DEEPGAUGE, cost="one sort per layer and input; one byte kept per neuron",
    differs="Ties go to the neuron with the lower number; peers leave them to an unstable sort, so that after a ReLU "
    "arbitrary zeros are covered. `positive_only` lets only values above 0 count.",
)  # fmt: skip
class TKNC(Criterion):
    """Share of neurons that are, on some input, among the `k` strongest of their layer (all of a layer that is no larger)."""

    k: int = setting(10, "papers use 1 to 10")
    positive_only: bool = False

    weakest: ClassVar[bool] = False
    obligations: ClassVar[bool] = True

    def start(self, context: Context) -> _TopState:
        return _TopState(self, context.layout(self.want))


@register(
    "criterion", "bknc", main="k", paper=f"{DEEPGAUGE}, which mentions it",
    cost="one sort per layer and input; one byte kept per neuron",
    differs="Nobody else has it; it mirrors tknc. After a ReLU most values tie at 0 and the tie rule decides: use it before "
    "activations.",
)  # fmt: skip
class BKNC(TKNC):
    """Share of neurons that are, on some input, among the `k` weakest of their layer."""

    weakest: ClassVar[bool] = True


def _too_wide(layout: Layout, k: int) -> tuple[str, ...]:
    """A sentence about layers that have no more than k neurons."""
    small = first_few([f"{name} ({size})" for name, size in layout.sizes.items() if size <= k])
    return (f"k={k} takes in every neuron of {small}: these are covered at once.",) if small else ()


class _TopState(HitState):
    """One bit per neuron."""

    criterion: TKNC

    def __init__(self, criterion: TKNC, layout: Layout) -> None:
        super().__init__(criterion, layout, per_neuron=1)

    def hits(self, joined: Joined) -> Bits:
        values, criterion = joined.values, self.criterion
        hit = np.zeros(values.shape, dtype=bool)
        for place in self.layout.slices.values():
            part = values[:, place]
            np.put_along_axis(hit[:, place], _strongest(part, criterion.k, weakest=criterion.weakest), True, axis=1)
        if criterion.positive_only:
            hit &= values > 0
        if joined.bad is not None:
            hit &= ~np.isnan(values)
        return hit

    def notes(self) -> tuple[str, ...]:
        return _too_wide(self.layout, self.criterion.k)


@register(
    "criterion", "tknp", main="k", paper=DEEPGAUGE,
    cost="one sort per layer and one hash per input; 16 bytes kept per distinct pattern, of a layer at most `capacity` times",
    differs="A pattern is hashed from its numbers. NeuraL-Coverage, once it is patched to run, compares printed tensors, "
    "which torch abbreviates above 1,000 elements, so patterns of deep networks collide. DeepGauge's pattern is the "
    "set per layer (`pattern=set`), that of the code, and ours, the ordered list. From `capacity` patterns on the count is an "
    "estimate, and says so; everybody else's memory grows with every input.",
)  # fmt: skip
class TKNP(Criterion):
    """How many distinct patterns of the `k` strongest neurons of every layer the inputs make: a count without a bound.

    pattern: `ordered` or `set`. mode: `network` joins all layers to one pattern, `layer` counts per layer and adds up.
    capacity: so many hashes of patterns are kept of each layer; from there on the smallest, which tell about how many there are.
    With k of 3 or more nearly every input is its own pattern.
    """

    k: int = setting(3, "DeepGauge uses 1 to 3, NSGen 50")
    pattern: Literal["ordered", "set"] = "ordered"
    mode: Literal["network", "layer"] = "network"
    capacity: int = setting(100_000, "100,000 by default: an estimate is then off by 0.3 %", least=3)

    starts_empty: ClassVar[bool] = True

    def start(self, context: Context) -> _PatternState:
        return _PatternState(self, context.layout(self.want))

    def memory(self, layout: Layout, inputs: int, train: int) -> int:
        return HASH * min(inputs, self.capacity) * (len(layout.sizes) + 1)


class _PatternState(State):
    """The hashes of the patterns seen, per layer and of the whole network."""

    criterion: TKNP

    def __init__(self, criterion: TKNP, layout: Layout) -> None:
        super().__init__(criterion, layout)
        self.patterns = {name: Distinct(criterion.capacity) for name in ("", *layout.names)}  # "" is the network

    def _hashes(self, values: Values) -> Iterator[tuple[str, Hashes]]:
        orders = []
        for name, place in self.layout.slices.items():
            order = _strongest(values[:, place], self.criterion.k).astype(np.int32)
            orders.append(np.sort(order, axis=1) if self.criterion.pattern == "set" else order)
            yield name, _hashed(orders[-1])
        yield "", _hashed(np.concatenate(orders, axis=1))

    @property
    def counted(self) -> tuple[str, ...]:
        return ("",) if self.criterion.mode == "network" else self.layout.names

    def _update(self, joined: Joined, trace: Trace) -> None:
        for name, hashes in self._hashes(joined.values):
            self.patterns[name].add(hashes)

    def gain(self, trace: Trace) -> NDArray[np.float64]:
        values = self.read(trace).values
        gained = np.zeros(len(values))
        for name, hashes in self._hashes(values):
            if name in self.counted:
                gained += self.patterns[name].gains(hashes)
        return gained

    def _merge(self, other: Self) -> None:
        for name, patterns in other.patterns.items():
            self.patterns[name].merge(patterns)

    def value(self) -> Value:
        layers = {name: Share.count(self.patterns[name].count()) for name in self.layout.names}
        whole = Share.count(sum(self.patterns[name].count() for name in self.counted))
        notes = (*self.warnings(), *_too_wide(self.layout, self.criterion.k), *self._estimates())
        return Value(whole, layers, {}, self.nonfinite(), notes)

    def _estimates(self) -> tuple[str, ...]:
        error = max(self.patterns[name].error for name in self.counted)
        large = f"more than {self.criterion.capacity:,} patterns: the count is an estimate with a standard error of {error:.1%}"
        return (f"{large} (more with a larger capacity).",) if error else ()

    def arrays(self) -> Arrays:
        """All hashes by layer, ascending, and how many each layer has."""
        rows = [one.hashes.view(np.uint8).reshape(-1, HASH) for one in self.patterns.values()]
        return {"hashes": np.concatenate(rows), "counts": np.array([len(row) for row in rows], dtype=np.int64)}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        hashes = np.ascontiguousarray(state["hashes"], dtype=np.uint8).reshape(-1).view(f"S{HASH}")
        counts = np.asarray(state["counts"])
        capacity, ends = self.criterion.capacity, np.cumsum(counts)
        self.patterns = {
            name: Distinct(capacity, hashes[end - count : end])
            for name, end, count in zip(self.patterns, ends, counts, strict=True)
        }


def _hashed(rows: NDArray[np.int32]) -> Hashes:
    return as_hashes([blake2b(row.tobytes(), digest_size=HASH).digest() for row in rows])
