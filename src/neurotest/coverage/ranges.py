"""KMNC, NBC and SNAC: where values fall in, or beyond, the range that training data spanned."""

from __future__ import annotations

from functools import cached_property
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from neurotest.checks import setting
from neurotest.coverage.bits import Bits, BitState, Hits
from neurotest.coverage.criterion import Criterion
from neurotest.measure.context import Context
from neurotest.measure.traces import Joined, Layout, Values
from neurotest.registry import register
from neurotest.target import Profile, Trace

DEEPGAUGE = "Ma et al., DeepGauge, ASE 2018"


@register(
    "criterion", "kmnc", main="sections", paper=DEEPGAUGE,
    cost="one index and one write per neuron and input; one byte kept per neuron and section, one bit when saved",
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

    def start(self, context: Context) -> SectionState:
        return SectionState(self, context.layout(self.want), context.profile(self.want, "kmnc"))

    def memory(self, layout: Layout, inputs: int, train: int) -> int:
        return layout.neurons * self.sections


class Span:
    """The training range in the type of the values, so that sections are computed as papers' code does: without widening."""

    def __init__(self, layout: Layout, profile: Profile, dtype: np.dtype[np.floating]) -> None:
        self.low = np.concatenate([profile.layers[name].low for name in layout.names]).astype(dtype)
        self.high = np.concatenate([profile.layers[name].high for name in layout.names]).astype(dtype)
        self.std = np.concatenate([profile.layers[name].std for name in layout.names])
        self.width = self.high - self.low

    @cached_property
    def dead(self) -> Bits:
        """Constant in training, or never a number there."""
        return ~(self.width > 0)


class RangeState(BitState):
    def __init__(self, criterion: Criterion, layout: Layout, profile: Profile, per_neuron: int) -> None:
        super().__init__(criterion, layout, per_neuron)
        self.profile = profile
        self._spans: dict[np.dtype[np.floating], Span] = {}

    def span(self, dtype: np.dtype[np.floating]) -> Span:
        if dtype not in self._spans:
            self._spans[dtype] = Span(self.layout, self.profile, dtype)
        return self._spans[dtype]

    def dead(self) -> Bits:
        return self.span(np.dtype(np.float64)).dead

    def notes(self) -> tuple[str, ...]:
        bad = [name for name in self.layout.names if not np.isfinite(self.profile.layers[name].mean).all()]
        return (f"the training data gave NaN or infinite activations in {', '.join(bad[:8])}.",) if bad else ()


class SectionState(RangeState):
    """A byte per neuron and section; only the sections that were hit are touched."""

    criterion: KMNC

    def __init__(self, criterion: KMNC, layout: Layout, profile: Profile) -> None:
        super().__init__(criterion, layout, profile, criterion.sections)
        self._first = np.arange(layout.neurons, dtype=np.int64) * criterion.sections  # obligation 0 of each neuron

    def _hits(self, values: Values) -> tuple[NDArray[np.int64], Bits]:
        span, k = self.span(values.dtype), self.criterion.sections
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            inside = (values >= span.low) & (values <= span.high) & ~span.dead
            section = SECTION[self.criterion.edges](values, span, k)
        inside &= (section >= 0) & (section < k)
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


def _closed(values: Values, span: Span, k: int) -> NDArray[np.int64]:
    section: NDArray[np.int64] = ((values - span.low) / span.width * k).astype(np.int64)
    np.minimum(section, k - 1, out=section)
    return section


def _ceiling(values: Values, span: Span, k: int) -> NDArray[np.int64]:
    """(left, right]: the minimum itself is in no section."""
    section: NDArray[np.int64] = np.ceil((values - span.low) / span.width * k).astype(np.int64) - 1
    return section


def _added(values: Values, span: Span, k: int) -> NDArray[np.int64]:
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

    def start(self, context: Context) -> CornerState:
        return CornerState(self, context.layout(self.want), context.profile(self.want, "nbc and snac"))

    def memory(self, layout: Layout, inputs: int, train: int) -> int:
        return layout.neurons * len(self.sides)


@register(
    "criterion", "snac", paper=DEEPGAUGE, cost="one comparison per neuron; one byte kept per neuron", differs=BEYOND, main="scale"
)
class SNAC(NBC):
    """Share of neurons that some input drives above high + scale * std of the training data."""

    sides: ClassVar[tuple[str, ...]] = ("upper",)


class CornerState(RangeState):
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
