"""LSC, DSC and MDSC: how many different degrees of surprise a set of inputs causes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from neurotest.checks import setting
from neurotest.coverage.adequacy import DSA, LSA, MDSA, Adequacy, Fitted
from neurotest.coverage.criterion import Arrays, Criterion, Share, State, Value
from neurotest.errors import BadInput
from neurotest.measure.context import Context
from neurotest.measure.traces import Joined, Layout
from neurotest.registry import register
from neurotest.target import Trace

Floats = NDArray[np.float64]
WIDTHS = "10, 0.1 and 1 are usual for lsc, dsc and mdsc"
KIM = "Kim et al., Guiding Deep Learning System Testing Using Surprise Adequacy, ICSE 2019"
BUCKETS = (
    "A bucket is floor(surprise / `bucket`). NeuraL-Coverage truncates towards 0 (`buckets=neural_coverage`), SADL cuts from "
    "the least value of the evaluated set up to `upper`, dnn-tip from 0 to the greatest value of the set: those two make one "
    "set's number incomparable with another's. Predicted classes are used on both sides, so no label is needed."
)


@dataclass(frozen=True, kw_only=True)
class _Surprise(Criterion):
    """What the surprise criteria share. Each is also the scorer (`Adequacy`) whose scores it puts into buckets."""

    bucket: float = setting(1.0, WIDTHS, above=0)
    buckets: Literal["floor", "neural_coverage", "sadl", "dnn_tip"] = "floor"
    sections: int | None = setting(None, "SADL uses 1000")
    upper: float | None = setting(None, "SADL uses 2000", above=0)
    overflow: bool = False

    needs: ClassVar[str] = "traces"
    shrink: ClassVar[str] = "fewer training inputs, features=100 or fewer --layers"
    obligations: ClassVar[bool] = True
    starts_empty: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.buckets in ("sadl", "dnn_tip") and self.sections is None:
            raise BadInput("out-of-range", "buckets", f"buckets={self.buckets}: say how many with sections=1000.")
        if self.buckets == "floor" and (self.sections is None) != (self.upper is None):
            raise BadInput(
                "conflict",
                "sections",
                "sections and upper go together: the share of sections of 0 .. upper; without both, buckets count.",
            )

    @property
    def relative(self) -> bool:
        """Whether the buckets depend on the evaluated set."""
        return self.buckets in ("sadl", "dnn_tip")

    def start(self, context: Context) -> SurpriseState:
        assert isinstance(self, Adequacy)
        traces = context.traces(self.want, type(self).__name__.lower())
        return SurpriseState(self, context.layout(self.want), self.fit(traces, seed=context.seed))

    def memory(self, layout: Layout, inputs: int, train: int) -> int:
        assert isinstance(self, Adequacy)
        features = min(layout.neurons, self.features or layout.neurons)
        return 4 * train * layout.neurons + 3 * 8 * train * features + 8 * features * features


@register(
    "criterion", "lsc", main="bucket", paper=KIM,
    cost="one kernel per training input of the predicted class; keeps the training activations",
    differs=f"{BUCKETS} Kernels by Scott's rule with the full covariance, which is shrunk where it cannot be inverted; "
    "NeuraL-Coverage's are of width 0.2 in every direction (`bandwidth=0.2`).",
)  # fmt: skip
class LSC(LSA, _Surprise):
    """How many buckets of -log density under the training data of the predicted class (LSA) the inputs fall into.

    bucket: width of one. buckets: `floor`, `neural_coverage`, `sadl` or `dnn_tip`. sections, upper: report the share of so many
    sections of 0 .. upper instead of a count. overflow: one more bucket above (dnn_tip). min_var, features: which neurons.
    per: `class` or `all`. bandwidth: `scott` or a number. inverse: `auto`, `pinv` or `none`.
    """

    bucket: float = setting(10.0, WIDTHS, above=0)


@register(
    "criterion", "dsc", main="bucket", paper=KIM,
    cost="one distance per training input of the predicted class, in matrix products; keeps the training activations",
    differs=f"{BUCKETS} Exact neighbours; the second distance is measured from the training input, so it is computed once. "
    "NeuraL-Coverage measures it from the tested input (`reference=test`).",
)  # fmt: skip
class DSC(DSA, _Surprise):
    """How many buckets of distance to the own class over distance to other classes (DSA) the inputs fall into.

    bucket: width of one. buckets: `floor`, `neural_coverage`, `sadl` or `dnn_tip`. sections, upper: report the share of so many
    sections of 0 .. upper instead of a count. overflow: one more bucket above (dnn_tip). min_var, features: which neurons.
    reference: `nearest` or `test`.
    """

    bucket: float = setting(0.1, WIDTHS, above=0)


@register(
    "criterion", "mdsc", main="bucket", paper="Kim et al., Reducing DNN Labelling Cost Using Surprise Adequacy, ESEC/FSE 2020",
    cost="one matrix product of the neurons' number squared per input; keeps one matrix per class",
    differs=f"{BUCKETS} float64 throughout and a covariance that is shrunk where it cannot be inverted; NeuraL-Coverage "
    "inverts it in float32, gets NaN for half of the inputs when a class has fewer inputs than neurons, and drops "
    "them silently. dnn-tip squares (`squared=true`).",
)  # fmt: skip
class MDSC(MDSA, _Surprise):
    """How many buckets of Mahalanobis distance from the training data of the predicted class (MDSA) the inputs fall into.

    bucket: width of one. buckets: `floor`, `neural_coverage`, `sadl` or `dnn_tip`. sections, upper: report the share of so many
    sections of 0 .. upper instead of a count. overflow: one more bucket above (dnn_tip). min_var, features: which neurons.
    per: `class` or `all`. squared: without the root. inverse: `auto`, `pinv` or `none`.
    """

    bucket: float = setting(1.0, WIDTHS, above=0)


class SurpriseState(State):
    """The buckets seen; where they depend on the evaluated set, every score."""

    criterion: _Surprise

    def __init__(self, criterion: _Surprise, layout: Layout, fitted: Fitted) -> None:
        super().__init__(criterion, layout)
        self.fitted = fitted
        self.hit: set[int] = set()
        self.scores: list[Floats] = []
        self.unscored = self.unseen = 0

    def score(self, trace: Trace) -> Floats:
        """The surprise of every input of a batch."""
        return self.fitted.score(self.read(trace).values, trace.predictions.cpu().numpy())

    def _update(self, joined: Joined, trace: Trace) -> None:
        self.take(self.score(trace))

    def take(self, scores: Floats) -> None:
        """Take in scores; NaN and infinite ones have no bucket and are counted."""
        self.unscored += int(np.isnan(scores).sum())
        self.unseen += int(np.isinf(scores).sum())
        if self.criterion.relative:
            self.scores.append(scores[np.isfinite(scores)])
        else:
            self.hit.update(self.buckets_of(scores)[1].tolist())

    def buckets_of(self, scores: Floats) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Which of an evaluated set's scores falls into which bucket; some fall into none."""
        rows = np.flatnonzero(np.isfinite(scores))
        if not len(rows):
            return rows, rows
        ids = self._buckets(scores[rows])
        if self._total is None:
            return rows, ids
        inside = (ids >= 0) & (self.criterion.relative | (ids < self._total))
        return rows[inside], ids[inside]

    def _buckets(self, scores: Floats) -> NDArray[np.int64]:
        criterion = self.criterion
        if criterion.relative:
            assert criterion.sections is not None
            if criterion.buckets == "dnn_tip":
                return _dnn_tip(scores, criterion.sections, criterion.upper, criterion.overflow)
            # `sections` edges from the least score to `upper`: all but one section between them, the last beyond
            top = 2000.0 if criterion.upper is None else criterion.upper
            return np.digitize(scores, np.linspace(scores.min(), top, criterion.sections)).astype(np.int64)
        if criterion.buckets == "neural_coverage":
            return np.trunc(scores / criterion.bucket).astype(np.int64)
        if criterion.sections is not None and criterion.upper is not None:
            # (0, upper] in equal parts, each closed above
            return np.ceil(scores / criterion.upper * criterion.sections).clip(-1, 2**53).astype(np.int64) - 1
        return np.floor(scores / criterion.bucket).clip(-(2**53), 2**53).astype(np.int64)

    @property
    def _total(self) -> int | None:
        return self.criterion.sections if self.criterion.buckets != "neural_coverage" else None

    def _covered(self, *extra: Floats) -> int:
        if not self.criterion.relative:
            return len(self.hit)
        return len(np.unique(self.buckets_of(np.concatenate([*self.scores, *extra, np.empty(0)]))[1]))

    def gain(self, trace: Trace) -> NDArray[np.float64]:
        scores, unit = self.score(trace), self._total or 1
        gained = np.zeros(len(scores))
        if self.criterion.relative:
            rows, before = np.flatnonzero(np.isfinite(scores)), self._covered()
            gained[rows] = [(self._covered(scores[i : i + 1]) - before) / unit for i in rows]
        else:
            rows, ids = self.buckets_of(scores)
            gained[rows] = [float(one not in self.hit) / unit for one in ids.tolist()]
        return gained

    def _merge(self, other: Self) -> None:
        self.hit |= other.hit
        self.scores += other.scores
        self.unscored += other.unscored
        self.unseen += other.unseen

    def value(self) -> Value:
        covered, dead = self._covered(), self.fitted.dead
        whole = Share.count(covered, dead) if self._total is None else Share.ratio(covered, self._total, dead)
        return Value(whole, {}, {}, self.nonfinite(), self._notes())

    def _notes(self) -> tuple[str, ...]:
        notes = [*self.warnings(), *self.fitted.notes]
        if dropped := self.layout.neurons - len(self.fitted.keep):
            notes.append(f"{dropped} of {self.layout.neurons} neurons are left out: they vary too little, or others vary more.")
        if self.fitted.left_out:
            notes.append(f"{self.fitted.left_out} training inputs have NaN or infinite activations and are left out.")
        if self.unscored:
            notes.append(f"{self.unscored} inputs have NaN or infinite activations and no surprise.")
        if self.unseen:
            notes.append(f"{self.unseen} inputs are infinitely surprising (no such class in training): they are in no bucket.")
        return tuple(notes)

    def arrays(self) -> Arrays:
        return {
            "hit": np.array(sorted(self.hit), dtype=np.int64),
            "scores": np.concatenate([*self.scores, np.empty(0)]),
            "without": np.array([self.unscored, self.unseen], dtype=np.int64),
        }

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        self.hit = set(np.asarray(state["hit"]).tolist())
        scores = np.array(state["scores"], dtype=np.float64)
        self.scores = [scores] if len(scores) else []
        self.unscored, self.unseen = (int(n) for n in np.asarray(state["without"]))


def _dnn_tip(scores: Floats, sections: int, upper: float | None, overflow: bool) -> NDArray[np.int64]:
    """Half-open sections of 0 .. the greatest score, which itself is in none (-1) unless one section lies above."""
    top = float(scores.max()) if upper is None else upper
    edges = np.linspace(0, top, sections if overflow else sections + 1)
    ids = np.digitize(scores, edges) - 1
    ids[(ids < 0) | (ids >= len(edges) - (0 if overflow else 1))] = -1
    return ids.astype(np.int64)
