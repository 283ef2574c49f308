"""States of the set-type criteria: one bit per obligation, a fixed number of obligations per neuron."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from neurotest.coverage.criterion import Arrays, Criterion, Share, State, Value, first_few
from neurotest.errors import BadInput
from neurotest.measure.traces import Joined, Layout
from neurotest.target import Trace

NAMED_NEURONS = 100_000  # neurons of a layer, of which nothing was covered, that are named
Bits = NDArray[np.bool_]
Hits = tuple[NDArray[np.int64], NDArray[np.int64]]  # rows of a batch and the obligations they hit, pair by pair, rows in order


class PackedState(State):
    """A state that is `bits` and nothing else: merged by or, saved as one bit each."""

    bits: Bits

    @property
    def exact(self) -> bool:
        return True

    def _merge(self, other: Self) -> None:
        self.bits |= other.bits

    def arrays(self) -> Arrays:
        return {"bits": np.packbits(self.bits.ravel())}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        packed, size = np.asarray(state["bits"], dtype=np.uint8), (self.bits.size + 7) // 8
        if packed.size != size:
            raise BadInput(
                "damaged", "bits", f"the saved state of {self.criterion!r} has {packed.size} bytes of bits, not {size}."
            )
        self.bits = np.unpackbits(packed, count=self.bits.size).astype(bool).reshape(self.bits.shape)


class BitState(PackedState):
    """`bits[neuron, i]` says whether obligation i of a neuron is covered; order and batch size make no difference."""

    def __init__(self, criterion: Criterion, layout: Layout, per_neuron: int) -> None:
        super().__init__(criterion, layout)
        self.per_neuron = per_neuron
        self.bits = self.blank()
        self.exclude_dead = bool(getattr(criterion, "exclude_dead", False))

    def blank(self) -> NDArray[Any]:
        return np.zeros((self.layout.neurons, self.per_neuron), dtype=bool)

    @abstractmethod
    def dead(self) -> Bits:
        """Which neurons never change: (neurons,)."""

    def _total(self, neurons: int, dead: int) -> int:
        return (neurons - dead if self.exclude_dead else neurons) * self.per_neuron

    @property
    def total(self) -> int:
        return self._total(self.layout.neurons, int(np.count_nonzero(self.dead())))

    def covered(self) -> NDArray[np.int64]:
        """How many obligations of each neuron are: (neurons,)."""
        return np.asarray(np.count_nonzero(self.bits, axis=1))

    def value(self) -> Value:
        dead, covered = self.dead(), self.covered()
        layers, never = {}, {}
        for name, place in self.layout.slices.items():
            gone = int(np.count_nonzero(dead[place]))
            layers[name] = Share.ratio(int(covered[place].sum()), self._total(self.layout.sizes[name], gone), gone)
            if missed := tuple(np.flatnonzero(covered[place] == 0)[:NAMED_NEURONS].tolist()):
                never[name] = missed
        gone = int(np.count_nonzero(dead))
        whole = Share.ratio(int(covered.sum()), self._total(self.layout.neurons, gone), gone)
        many = first_few([name for name, missed in never.items() if len(missed) == NAMED_NEURONS])
        named = (
            (f"nothing of {NAMED_NEURONS:,} neurons or more was covered in {many}: the first {NAMED_NEURONS:,} are named.",)
            if many
            else ()
        )
        return Value(whole, layers, never, self.nonfinite(), (*self.warnings(), *self.notes(), *named))

    def notes(self) -> tuple[str, ...]:
        return ()


class HitState(BitState):
    """A bit state that asks per input and obligation whether it is hit; keeps the range seen, to tell dead neurons."""

    def __init__(self, criterion: Criterion, layout: Layout, per_neuron: int) -> None:
        super().__init__(criterion, layout, per_neuron)
        self.low = np.full(layout.neurons, np.inf)
        self.high = np.full(layout.neurons, -np.inf)

    @abstractmethod
    def hits(self, joined: Joined) -> Bits:
        """(n, neurons * per_neuron)"""

    def dead(self) -> Bits:
        return np.asarray(self.low == self.high)

    def _update(self, joined: Joined, trace: Trace) -> None:
        self.bits |= self.hits(joined).any(axis=0).reshape(self.bits.shape)
        if not len(joined.values):
            return
        low, high = joined.extremes
        np.fmin(self.low, low, out=self.low)
        np.fmax(self.high, high, out=self.high)

    def gain(self, trace: Trace) -> NDArray[np.float64]:
        new = self.hits(self.read(trace)) & ~self.bits.ravel()
        return np.asarray(np.count_nonzero(new, axis=1) / max(1, self.total))

    def obligations(self, trace: Trace) -> Hits:
        """Which input hits which obligation."""
        rows, hit = np.nonzero(self.hits(self.read(trace)))
        return rows, hit

    def _merge(self, other: Self) -> None:
        super()._merge(other)
        np.fmin(self.low, other.low, out=self.low)
        np.fmax(self.high, other.high, out=self.high)

    def arrays(self) -> Arrays:
        return {**super().arrays(), "low": self.low.copy(), "high": self.high.copy()}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        super().restore(state)
        self.low, self.high = (np.array(state[key], dtype=np.float64) for key in ("low", "high"))
