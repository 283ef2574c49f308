"""KMNC, NBC and SNAC: where values fall in, or beyond, the range that training data spanned."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from neurotest.checks import setting
from neurotest.coverage.bits import Bits, BitState, Hits
from neurotest.coverage.criterion import Arrays, Criterion
from neurotest.errors import BadInput
from neurotest.measure.context import Context
from neurotest.measure.traces import Joined, Layout, Values
from neurotest.registry import register
from neurotest.target import Profile, Trace

BYTES = 1 << 28  # sections, a byte each; more of them are kept as bits
COLUMNS = 1 << 16  # neurons whose sections are computed at once where there are many
ONES = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).sum(axis=1, dtype=np.uint8)  # bits of a byte
DEEPGAUGE = "Ma et al., DeepGauge, ASE 2018"


@register(
    "criterion", "kmnc", main="sections", paper=DEEPGAUGE,
    cost="one index and one write per neuron and input; one byte kept per neuron and section, a bit from 268 million of them on "
    "(ten million units with 1,000 sections: 1.25 GB) and when saved",
    differs="Sections are closed at both ends of the training range, so the training minimum and maximum cover a section "
    "each. NeuraL-Coverage makes them (left, right], dnn-tip [left, right) with edges added up in float32; `edges` "
    "gives both. A neuron that never changed in training has no section that could be covered: it counts in the "
    "total as everywhere, and is named as dead (`exclude_dead=true` takes it out).",
)  # fmt: skip
class KMNC(Criterion):
    """Share of the `sections` equal parts of every neuron's training range that some input falls into.

    edges: `closed`, or as `neural_coverage` or `dnn_tip` cut them. exclude_dead: leave neurons out that training never moved.
    """

    sections: int = setting(1000, "papers use 1000")
    edges: Literal["closed", "neural_coverage", "dnn_tip"] = "closed"
    exclude_dead: bool = False

    needs: ClassVar[str] = "profile"
    obligations: ClassVar[bool] = True
    shrink: ClassVar[str] = "fewer sections than {sections}, --neuron channel, --neuron sample or fewer --layers"

    def start(self, context: Context) -> _SectionState:
        layout, profile = context.layout(self.want), context.profile(self.want, "kmnc")
        return self._state(layout)(self, layout, profile)

    def _state(self, layout: Layout) -> type[_SectionState]:
        """A byte per section is quicker; of many neurons it would be gigabytes."""
        return _SectionState if layout.neurons * self.sections <= BYTES else _PackedSectionState

    def memory(self, layout: Layout, inputs: int, train: int) -> int:
        return layout.neurons * self._state(layout).per_row(self.sections)


class _Span:
    """The training range in the type of the values, so that sections are computed as papers' code does: without widening."""

    def __init__(self, layout: Layout, profile: Profile, dtype: np.dtype[np.floating]) -> None:
        self.low = np.concatenate([profile.layers[name].low for name in layout.names]).astype(dtype)
        self.high = np.concatenate([profile.layers[name].high for name in layout.names]).astype(dtype)
        self.std = np.concatenate([profile.layers[name].std for name in layout.names])
        self.width = self.high - self.low

    def __getitem__(self, neurons: slice) -> _Span:
        part = copy.copy(self)
        part.__dict__.pop("dead", None)
        part.low, part.high, part.std, part.width = (a[neurons] for a in (self.low, self.high, self.std, self.width))
        return part

    @cached_property
    def dead(self) -> Bits:
        """Constant in training, or never a number there."""
        return ~(self.width > 0)


class _RangeState(BitState):
    def __init__(self, criterion: Criterion, layout: Layout, profile: Profile, per_neuron: int) -> None:
        super().__init__(criterion, layout, per_neuron)
        self.profile = profile
        self._spans: dict[np.dtype[np.floating], _Span] = {}
        self._dead: Bits | None = None

    def span(self, dtype: np.dtype[np.floating]) -> _Span:
        if dtype not in self._spans:
            self._spans[dtype] = _Span(self.layout, self.profile, dtype)
        return self._spans[dtype]

    def dead(self) -> Bits:
        if self._dead is None:
            self._dead = _Span(self.layout, self.profile, np.dtype(np.float64)).dead
        return self._dead

    def notes(self) -> tuple[str, ...]:
        bad = [name for name in self.layout.names if not np.isfinite(self.profile.layers[name].mean).all()]
        return (f"the training data gave NaN or infinite activations in {', '.join(bad[:8])}.",) if bad else ()


class _SectionState(_RangeState):
    """A byte per neuron and section; only the sections that were hit are touched."""

    criterion: KMNC

    def __init__(self, criterion: KMNC, layout: Layout, profile: Profile) -> None:
        super().__init__(criterion, layout, profile, criterion.sections)

    @staticmethod
    def per_row(sections: int) -> int:
        """Bytes of a neuron."""
        return sections

    @cached_property
    def _first(self) -> NDArray[np.int64]:
        """Obligation 0 of each neuron."""
        return np.arange(self.layout.neurons, dtype=np.int64) * self.criterion.sections

    def _sections(self, values: Values, span: _Span) -> tuple[NDArray[np.int64], Bits]:
        """The section of every value, and whether it is in one."""
        k = self.criterion.sections
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            inside = (values >= span.low) & (values <= span.high) & ~span.dead
            section = SECTION[self.criterion.edges](values, span, k)
        inside &= (section >= 0) & (section < k)
        return section, inside

    def _hits(self, values: Values) -> tuple[NDArray[np.int64], Bits]:
        section, inside = self._sections(values, self.span(values.dtype))
        section += self._first
        return section, inside

    def _update(self, joined: Joined, trace: Trace) -> None:
        section, inside = self._hits(joined.values)
        self.bits.reshape(-1)[section[inside]] = True

    def gain(self, trace: Trace) -> NDArray[np.float64]:
        section, inside = self._hits(self.read(trace).values)
        section[~inside] = 0
        new = inside & ~self.bits.reshape(-1)[section]
        return np.asarray(np.count_nonzero(new, axis=1) / max(1, self.total))

    def obligations(self, trace: Trace) -> Hits:
        """Which input falls into which section."""
        section, inside = self._hits(self.read(trace).values)
        return np.nonzero(inside)[0], section[inside]


class _PackedSectionState(_SectionState):
    """A bit per neuron and section, for networks of which bytes would be gigabytes; worked on some neurons at a time."""

    bits: NDArray[Any]  # (neurons, bytes)

    @staticmethod
    def per_row(sections: int) -> int:
        return (sections + 7) // 8

    def blank(self) -> NDArray[Any]:
        return np.zeros((self.layout.neurons, self.per_row(self.criterion.sections)), dtype=np.uint8)

    def fresh(self, start: int = 0) -> _PackedSectionState | None:
        if self.seen:
            return None
        new = copy.copy(self)  # without the copies that a state and its arrays are: pages that nobody writes to cost nothing
        new.bits, new.bad = self.blank(), self.bad.copy()
        return new

    def _blocks(self, values: Values) -> Iterator[tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.uint8], Bits]]:
        """Some neurons at a time: their bits, and per value the byte and the bit that it is about and whether it counts."""
        span, row = self.span(values.dtype), self.bits.shape[1]
        for start in range(0, self.layout.neurons, COLUMNS):
            block = slice(start, start + COLUMNS)
            section, inside = self._sections(values[:, block], span[block])
            flags = np.uint8(128) >> (section & 7).astype(np.uint8)  # the first section is the highest bit, as numpy packs
            section >>= 3
            section += np.arange(section.shape[1]) * row
            section[~inside] = 0
            yield self.bits[block].reshape(-1), section, flags, inside

    def _update(self, joined: Joined, trace: Trace) -> None:
        for bits, byte, flags, inside in self._blocks(joined.values):
            for i in range(len(byte)):  # an input is in one section of a neuron, so no byte comes twice
                chosen = byte[i, inside[i]]
                bits[chosen] |= flags[i, inside[i]]

    def gain(self, trace: Trace) -> NDArray[np.float64]:
        values = self.read(trace).values
        new = np.zeros(len(values))
        for bits, byte, flags, inside in self._blocks(values):
            new += np.count_nonzero(inside & ((bits[byte] & flags) == 0), axis=1)
        return new / max(1, self.total)

    def covered(self) -> NDArray[np.int64]:
        blocks = (self.bits[start : start + COLUMNS] for start in range(0, self.layout.neurons, COLUMNS))
        return np.concatenate([ONES[block].sum(axis=1, dtype=np.int64) for block in blocks])

    def arrays(self) -> Arrays:
        return {"bits": self.bits.reshape(-1).copy()}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        packed = np.asarray(state["bits"], dtype=np.uint8)
        if packed.size != self.bits.size:
            raise BadInput(
                "damaged", "bits", f"the saved state of {self.criterion!r} has {packed.size} bytes of bits, not {self.bits.size}."
            )
        self.bits = packed.reshape(self.bits.shape).copy()


def _closed(values: Values, span: _Span, k: int) -> NDArray[np.int64]:
    section: NDArray[np.int64] = ((values - span.low) / span.width * k).astype(np.int64)
    np.minimum(section, k - 1, out=section)
    return section


def _ceiling(values: Values, span: _Span, k: int) -> NDArray[np.int64]:
    """(left, right]: the minimum itself is in no section."""
    section: NDArray[np.int64] = np.ceil((values - span.low) / span.width * k).astype(np.int64) - 1
    return section


def _added(values: Values, span: _Span, k: int) -> NDArray[np.int64]:
    """[left, right) with edges low + i * step as floats: the quotient is a guess that the edges correct."""
    step = (span.width / k).astype(values.dtype)
    section = np.floor((values - span.low) / step).clip(-1, k)
    for _ in range(2):
        section -= values < span.low + step * section.astype(values.dtype)
        section += values >= span.low + step * (section + 1).astype(values.dtype)
    return section.astype(np.int64)


SECTION = {"closed": _closed, "neural_coverage": _ceiling, "dnn_tip": _added}

BEYOND = (
    "A value must lie beyond the training range, not on it. dnn-tip takes values on it too (`strict=false`), and then every zero "
    "of a ReLU and every dead unit is a corner case. The spread of `scale` is that of the training data, divided by the count."
)


@register(
    "criterion", "nbc", main="scale", paper=DEEPGAUGE, cost="two comparisons per neuron; two bytes kept per neuron",
    differs=BEYOND,
)  # fmt: skip
class NBC(Criterion):
    """Share of the corners, two per neuron, that some input goes beyond: below low - scale * std, above high + scale * std."""

    scale: float = setting(0.0, "DeepGauge uses 0, 0.5 and 1", least=0)
    strict: bool = True
    exclude_dead: bool = False

    needs: ClassVar[str] = "profile"
    obligations: ClassVar[bool] = True
    sides: ClassVar[tuple[str, ...]] = ("lower", "upper")

    def start(self, context: Context) -> _CornerState:
        return _CornerState(self, context.layout(self.want), context.profile(self.want, "nbc and snac"))

    def memory(self, layout: Layout, inputs: int, train: int) -> int:
        return layout.neurons * len(self.sides)


@register(
    "criterion", "snac", paper=DEEPGAUGE, cost="one comparison per neuron; one byte kept per neuron", differs=BEYOND, main="scale"
)
class SNAC(NBC):
    """Share of neurons that some input drives above high + scale * std of the training data."""

    sides: ClassVar[tuple[str, ...]] = ("upper",)


class _CornerState(_RangeState):
    """A byte per neuron and corner."""

    criterion: NBC

    def __init__(self, criterion: NBC, layout: Layout, profile: Profile) -> None:
        super().__init__(criterion, layout, profile, len(criterion.sides))
        self._limits: dict[np.dtype[np.floating], tuple[Values, Values]] = {}

    def limits(self, dtype: np.dtype[np.floating]) -> tuple[Values, Values]:
        if dtype not in self._limits:
            span, s = self.span(np.dtype(np.float64)), self.criterion.scale
            spread = s * span.std if s else np.zeros_like(span.low)
            self._limits[dtype] = ((span.low - spread).astype(dtype), (span.high + spread).astype(dtype))
        return self._limits[dtype]

    def _beyond(self, least: Values, most: Values) -> list[Bits]:
        low, high = self.limits(most.dtype)
        below, above = (np.less, np.greater) if self.criterion.strict else (np.less_equal, np.greater_equal)
        with np.errstate(invalid="ignore"):
            return [below(least, low) if side == "lower" else above(most, high) for side in self.criterion.sides]

    def _update(self, joined: Joined, trace: Trace) -> None:
        if not len(joined.values):
            return
        for side, hit in enumerate(self._beyond(*joined.extremes)):
            self.bits[:, side] |= hit

    def gain(self, trace: Trace) -> NDArray[np.float64]:
        values = self.read(trace).values
        new = sum(np.count_nonzero(hit & ~self.bits[:, i], axis=1) for i, hit in enumerate(self._beyond(values, values)))
        return np.asarray(new, dtype=np.float64) / max(1, self.total)

    def obligations(self, trace: Trace) -> Hits:
        """Which input goes beyond which corner."""
        values = self.read(trace).values
        rows, hit = np.nonzero(np.stack(self._beyond(values, values), axis=2).reshape(len(values), -1))  # (n, neurons * sides)
        return rows, hit
