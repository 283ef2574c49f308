"""CAC: which connections between neurons show a dependence, tested by chi-square over everything seen."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from neurotest.checks import setting
from neurotest.coverage.criterion import Arrays, Criterion, Share, State, Value
from neurotest.coverage.edges import Edges, Learner
from neurotest.errors import BadInput
from neurotest.measure.context import Context
from neurotest.measure.traces import Joined, Layout, checked
from neurotest.registry import register
from neurotest.target import Trace, Want

Bits = NDArray[np.bool_]
LEAST_EXPECTED = 5.0  # expected count below which the test is not trusted
FEW_INPUTS = 8  # inputs
COUNTED_AT_ONCE = 1 << 15  # cells counted at once
TESTED_AT_ONCE = 1 << 21  # handled at once: 16 MB per array


@cache
def _critical(sections: int, p: float) -> NDArray[np.float64]:
    """The least chi-square that counts, by degrees of freedom."""
    from scipy.stats import chi2

    freedom = np.arange((sections - 1) ** 2 + 1)
    return np.asarray(chi2.ppf(1 - p, np.maximum(freedom, 1)), dtype=np.float64)


def _count(flat: NDArray[np.int32], cells: NDArray[np.int16], size: int) -> None:
    """Count one more in each of the cells (a, n, b) of the tables (a, b, size), given flattened.

    A few inputs are written where they belong; with more it is quicker to count row by row, within the processor's cache.
    """
    a, n, b = cells.shape
    first = np.arange(b, dtype=np.int64) * size
    if n < FEW_INPUTS:
        start = (np.arange(a, dtype=np.int64) * (b * size))[:, None] + first
        for i in range(n):
            flat[(start + cells[:, i]).ravel()] += 1  # an input counts once per table, so no cell comes twice
        return
    rows = flat.reshape(a, b * size)
    step = max(1, COUNTED_AT_ONCE // (b * size))
    for begin in range(0, a, step):
        part = cells[begin : begin + step]
        offset = (np.arange(len(part), dtype=np.int64) * (b * size))[:, None, None]
        added = np.bincount((part + first + offset).ravel(), minlength=len(part) * b * size)
        rows[begin : begin + step] += added.reshape(len(part), -1).astype(np.int32)


def _dependent(counts: NDArray[np.int32], criterion: CAC) -> Bits:
    """Which tables (a, b, sections^2) show a dependence: (a, b)."""
    a, b, cells = counts.shape
    result = np.empty((a, b), dtype=bool)
    step = max(1, TESTED_AT_ONCE // max(1, b * cells))
    for start in range(0, a, step):
        part = counts[start : start + step].reshape(-1, b, criterion.sections, criterion.sections)
        result[start : start + step] = _test(part.astype(np.float64), criterion)
    return result


def _test(table: NDArray[np.float64], criterion: CAC) -> Bits:
    critical = _critical(criterion.sections, criterion.p)
    rows, columns = table.sum(axis=-1), table.sum(axis=-2)  # (a, b, k)
    total = rows.sum(axis=-1)[..., None, None]
    divisor = np.maximum(total, 1) if criterion.expected == "textbook" else float(criterion.sections**2)
    expected = rows[..., :, None] * columns[..., None, :]
    expected /= divisor
    table -= expected
    np.square(table, out=table)
    table /= np.maximum(expected, 1e-300)
    statistic = table.sum(axis=(-1, -2))
    if criterion.rule == "all":
        enough = expected.min(axis=(-1, -2)) >= LEAST_EXPECTED
        return np.asarray(enough & (statistic >= critical[-1]), dtype=bool)
    # Cochran: of the rows and columns that occur, four fifths of the cells with five or more expected and none below one.
    high, wide = np.count_nonzero(rows, axis=-1), np.count_nonzero(columns, axis=-1)
    occupied = high * wide
    five = np.count_nonzero(expected >= LEAST_EXPECTED, axis=(-1, -2))
    one = np.count_nonzero(expected >= 1, axis=(-1, -2))
    freedom = np.maximum(high - 1, 0) * np.maximum(wide - 1, 0)
    enough = (freedom > 0) & (five >= 0.8 * occupied) & (one == occupied)
    return np.asarray(enough & (statistic >= critical[freedom]), dtype=bool)


@register(
    "criterion", "cac", main="sections",
    paper="Ji et al., CC: Causality-Aware Coverage Criterion for Deep Neural Networks, ICSE 2023",
    cost="one matrix product of inputs x inputs x outputs per layer and input; 4 bytes kept per connection and cell of its table",
    presets={"code": {
        "expected": "dl_cc", "rule": "all", "parent": "previous", "edges": "neural_coverage", "sticky": True,
        "include_train": True,
    }},
    differs="Expected counts are row sum * column sum / total. The published code divides by the number of cells instead, which "
    "with more inputs than cells inflates them, passes the rule of five and rejects independence: its numbers rest on that "
    "(`expected=dl_cc`). Textbook counts seldom reach five in every cell, so `rule=cochran` asks for five in four fifths of the "
    "occupied ones. A connection's cause is the layer's own input, which is right for residual networks too; the code takes the "
    "output of the layer registered before it (`parent=previous`). Without `sticky` the test is made on all counts whenever the "
    "value is read; the code tests after each batch and never takes back, which depends on order and batch size.",
)  # fmt: skip
class CAC(Criterion):
    """Share of connections (input neuron -> output neuron of a layer) whose values depend on each other by a chi-square test.

    Other inputs of the layer are weakened in proportion to their covariance with the cause before the effect is computed.
    sections: into how many both training ranges are cut. p: level of the test. expected: `textbook` or `dl_cc`. rule: `cochran`
    or `all` (five expected in every cell). parent: `input` or `previous`. edges: of sections, `closed` or `neural_coverage`.
    sticky: what was covered once stays so. include_train: count the training data as well. channels: of a layer that takes or
    gives more channels so many are drawn at random; the share is then an estimate, and its error is said.
    """

    sections: int = setting(8, "the paper uses 8", least=2)
    p: float = setting(0.05, "0.05 is usual", above=0, below=1)
    expected: Literal["textbook", "dl_cc"] = "textbook"
    rule: Literal["cochran", "all"] = "cochran"
    parent: Literal["input", "previous"] = "input"
    edges: Literal["closed", "neural_coverage"] = "closed"
    sticky: bool = False
    include_train: bool = False
    channels: int = setting(1000, "1,000 by default", least=2)

    needs: ClassVar[str] = "source"
    shrink: ClassVar[str] = "fewer sections than {sections}, fewer channels than {channels} or fewer --layers"
    growing: ClassVar[bool] = False  # more inputs can take a dependence away

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.neuron != "channel":
            raise BadInput("unsuitable", "neuron", f"neuron={self.neuron!r}: connections are between channels; leave it out.")

    @property
    def want(self) -> Want:
        return Want(layers=self.layers, keep="map", inputs=True)

    @property
    def mergeable(self) -> bool:
        return not self.sticky

    def start(self, context: Context) -> _CausalState:
        context.need_train("cac")
        layout = context.layout(self.want)
        learner = Learner.of(self.want, context.need_target(), self.parent, self.channels)
        context.scan([learner])
        state = _CausalState(self, layout, learner.edges(self.edges, self.sections))
        if self.include_train:
            context.scan([state])
        return state

    def memory(self, layout: Layout, inputs: int, train: int) -> int:
        sizes = [min(size, self.channels) for size in layout.sizes.values()]
        outputs = [*sizes[1:], sizes[-1]]  # about: what a layer gives is what the next one takes
        return sum(4 * a * b * (self.sections**2 + 1) for a, b in zip(sizes[1:], outputs[1:], strict=True))


class _CausalState(State):
    """A table of counts per connection."""

    criterion: CAC

    def __init__(self, criterion: CAC, layout: Layout, edges: list[Edges]) -> None:
        super().__init__(criterion, layout)
        self.edges = edges
        # One cell more than a table has takes in what lies outside the ranges.
        self._cells = criterion.sections**2 + 1
        shapes = [(len(e.link.chosen_inputs), len(e.link.chosen_outputs)) for e in edges]
        self.covered: list[Bits] = [np.zeros(shape, dtype=bool) for shape in shapes]
        self._scales = [e.link.connections / (a * b) for e, (a, b) in zip(edges, shapes, strict=True)]  # 1 unless drawn
        self._flat: list[NDArray[np.int32]] = [np.zeros(bits.size * self._cells, dtype=np.int32) for bits in self.covered]

    @property
    def counts(self) -> list[NDArray[np.int32]]:
        """Per layer (inputs, outputs, sections^2)."""
        return self._tables(self._flat)

    def _tables(self, all_flat: list[NDArray[np.int32]]) -> list[NDArray[np.int32]]:
        pairs = zip(all_flat, self.covered, strict=True)
        return [flat.reshape(*covered.shape, self._cells)[..., :-1] for flat, covered in pairs]

    def read(self, trace: Trace) -> Joined:
        """The reduced inputs of every layer, for counting what is not finite."""
        links = [e.link for e in self.edges]
        reduced = [link.reduced(trace[self.want][link.name]) for link in links]
        joined = checked(np.concatenate(reduced, axis=1), np.cumsum([0, *[r.shape[1] for r in reduced]])[:-1])
        if joined.bad is None:
            return joined
        bad = np.zeros(len(self.layout.names), dtype=np.int64)
        bad[[self.layout.names.index(link.name) for link in links]] = joined.bad
        return Joined(joined.values, bad)

    def _update(self, joined: Joined, trace: Trace) -> None:
        for edges, flat in zip(self.edges, self._flat, strict=True):
            for cells in edges.cells(trace[self.want]):
                _count(flat, cells, self._cells)
        if self.criterion.sticky:
            self.covered = self._now(self.counts)

    def _now(self, counts: list[NDArray[np.int32]]) -> list[Bits]:
        """What counts as covered with these tables; what is sticky was tested when it was counted."""
        tested = [_dependent(c, self.criterion) for c in counts]
        return [old | new for old, new in zip(self.covered, tested, strict=True)]

    def _covered(self) -> list[Bits]:
        return self.covered if self.criterion.sticky else self._now(self.counts)

    @property
    def total(self) -> int:
        return sum(e.link.connections for e in self.edges)

    def _number(self, covered: list[Bits]) -> float:
        """Of all connections, those that were not drawn counted in."""
        return sum(int(bits.sum()) * scale for bits, scale in zip(covered, self._scales, strict=True))

    def gain(self, trace: Trace) -> NDArray[np.float64]:
        before = self._number(self._covered())
        each = [np.concatenate(list(edges.cells(trace[self.want])), axis=1) for edges in self.edges]
        gained = np.zeros(len(trace.logits))
        for i in range(len(gained)):
            new = [flat.copy() for flat in self._flat]
            for flat, cells in zip(new, each, strict=True):
                _count(flat, cells[:, i : i + 1], self._cells)
            gained[i] = self._number(self._now(self._tables(new))) - before
        return gained / max(1, self.total)

    def _merge(self, other: Self) -> None:
        for mine, theirs in zip(self._flat, other._flat, strict=True):
            mine += theirs

    def value(self) -> Value:
        layers, now = {}, self._covered()
        for edges, covered, scale in zip(self.edges, now, self._scales, strict=True):
            number = int(covered.sum()) if scale == 1 else float(covered.sum() * scale)
            layers[edges.link.name] = Share.ratio(number, edges.link.connections, round(int(edges.dead().sum()) * scale))
        covered_all = sum(s.covered for s in layers.values())
        whole = Share.ratio(covered_all, self.total, sum(s.dead for s in layers.values()))
        return Value(whole, layers, {}, self.nonfinite(), (*self.warnings(), *self._drawn(now)))

    def _drawn(self, covered: list[Bits]) -> tuple[str, ...]:
        """That connections were drawn, and how far the share may be off for it.

        Whole rows and columns are drawn, so what varies are their means, less the more of them were drawn.
        """
        kept = sum(bits.size for bits in covered)
        if kept == self.total:
            return ()
        variance = 0.0
        for edges, bits in zip(self.edges, covered, strict=True):
            sides = ((bits.mean(axis=1), edges.link.in_channels), (bits.mean(axis=0), edges.link.out_channels))
            spread = sum(
                means.var(ddof=1) / len(means) * (1 - len(means) / count) for means, count in sides if len(means) < count
            )
            variance += spread * (edges.link.connections / self.total) ** 2
        few = f"an estimate from {kept:,} of {self.total:,} connections, drawn at random"
        return (f"{few} (channels={self.criterion.channels}): standard error of {np.sqrt(variance):.2%}.",)

    def arrays(self) -> Arrays:
        arrays: Arrays = {}
        for edges, counts, covered in zip(self.edges, self.counts, self.covered, strict=True):
            arrays |= {f"counts/{edges.link.name}": counts.copy(), f"covered/{edges.link.name}": covered.copy()}
        return arrays

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        flat, covered = [], []
        for name, now in zip((edges.link.name for edges in self.edges), self.counts, strict=True):
            counts = np.asarray(state[f"counts/{name}"], dtype=np.int32)
            if counts.shape != now.shape:
                raise BadInput(
                    "damaged",
                    "tables",
                    f"the saved state of cac has tables of shape {counts.shape} for layer {name}, not {now.shape}.",
                )
            new = np.zeros((*now.shape[:2], self._cells), dtype=np.int32)
            new[..., :-1] = counts
            flat.append(new.ravel())
            covered.append(np.array(state[f"covered/{name}"], dtype=bool).reshape(now.shape[:2]))
        self._flat, self.covered = flat, covered
