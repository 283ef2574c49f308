"""CC: TensorFuzz's coverage, a growing set of activation vectors that are far from each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from neurotest.checks import setting
from neurotest.coverage.criterion import Arrays, Criterion, Share, State, Value
from neurotest.errors import BadInput
from neurotest.measure.context import Context
from neurotest.measure.traces import Joined, Layout
from neurotest.registry import register
from neurotest.stats.distances import squared_distances
from neurotest.target import Trace

Floats = NDArray[np.float64]


@register(
    "criterion",
    "cc",
    main="threshold",
    paper="Odena et al., TensorFuzz, ICML 2019",
    cost="one distance to every kept vector per layer and input: grows with what is kept, which has no bound",
    differs="Exact distances in every layer; TensorFuzz looks at the logits only (`layers=GLOB` of the last layer) and uses an "
    "approximate index. The first vector counts; NeuraL-Coverage keeps it without counting it (`count_first=false`). The "
    "threshold is a squared distance in units of the activations: it means something else in every network and layer.",
)
class CC(Criterion):
    """How many activation vectors, summed over layers, are farther than sqrt(`threshold`) from all kept before them.

    What is kept depends on the order of the inputs, so states cannot be merged; the batch size makes no difference.
    """

    threshold: float = setting(10.0, "papers use 10 to 1000, a squared distance", least=0)
    count_first: bool = True

    starts_empty: ClassVar[bool] = True
    shrink: ClassVar[str] = "a threshold above {threshold:g} or fewer --layers"

    @property
    def mergeable(self) -> bool:
        return False

    def start(self, context: Context) -> _ClusterState:
        return _ClusterState(self, context.layout(self.want))

    def memory(self, layout: Layout, inputs: int, train: int) -> int:
        return 16 * layout.neurons * inputs  # all kept, and room to grow


class GrowingRows:
    """Vectors in an array that doubles when it is full."""

    def __init__(self, width: int) -> None:
        self.room: Floats = np.empty((16, width))
        self.count = 0

    @property
    def vectors(self) -> Floats:
        return self.room[: self.count]

    def add(self, vectors: Floats) -> None:
        needed = self.count + len(vectors)
        if needed > len(self.room):
            grown = np.empty((max(needed, 2 * len(self.room)), self.room.shape[1]))
            grown[: self.count] = self.vectors
            self.room = grown
        self.room[self.count : needed] = vectors
        self.count = needed

    def far(self, vectors: Floats, threshold: float) -> NDArray[np.bool_]:
        """Which vectors are far from all of these: (n,)."""
        if not self.count:
            return np.ones(len(vectors), dtype=bool)
        far: NDArray[np.bool_] = squared_distances(vectors, self.vectors).min(axis=1) > threshold
        return far


class _ClusterState(State):
    criterion: CC

    def __init__(self, criterion: CC, layout: Layout) -> None:
        super().__init__(criterion, layout)
        self.kept = {name: GrowingRows(size) for name, size in layout.sizes.items()}

    def _update(self, joined: Joined, trace: Trace) -> None:
        values = joined.values if joined.bad is None else joined.values[joined.finite_rows]
        for name, place in self.layout.slices.items():
            kept, vectors = self.kept[name], values[:, place].astype(np.float64)
            vectors = vectors[kept.far(vectors, self.criterion.threshold)]
            kept.add(vectors[self._apart(vectors)])

    def _apart(self, vectors: Floats) -> list[int]:
        """Within a batch, one after the other: those far from all taken before."""
        if not len(vectors):
            return []
        near = squared_distances(vectors, vectors) <= self.criterion.threshold  # (n, n)
        np.fill_diagonal(near, False)
        free, taken = np.ones(len(vectors), dtype=bool), []
        for i in range(len(vectors)):
            if free[i]:
                taken.append(i)
                free &= ~near[i]
        return taken

    def gain(self, trace: Trace) -> NDArray[np.float64]:
        joined = self.read(trace)
        gained = np.zeros(len(joined.values))
        for name, place in self.layout.slices.items():
            kept, vectors = self.kept[name], joined.values[:, place].astype(np.float64)
            if kept.count or self.criterion.count_first:
                gained += kept.far(np.nan_to_num(vectors), self.criterion.threshold)
        return gained if joined.bad is None else np.where(joined.finite_rows, gained, 0.0)

    def _merge(self, other: Self) -> None:
        raise AssertionError("not mergeable")

    def value(self) -> Value:
        first = 0 if self.criterion.count_first else 1
        layers = {name: Share.count(max(0, kept.count - first)) for name, kept in self.kept.items()}
        whole = Share.count(sum(int(share.covered) for share in layers.values()))
        return Value(whole, layers, {}, self.nonfinite(), self.warnings())

    def arrays(self) -> Arrays:
        return {f"kept/{name}": kept.vectors.copy() for name, kept in self.kept.items()}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        kept = {}
        for name, size in self.layout.sizes.items():
            vectors = np.asarray(state[f"kept/{name}"], dtype=np.float64)
            if vectors.ndim != 2 or vectors.shape[1] != size:
                raise BadInput(
                    "damaged",
                    "vectors",
                    f"the saved state of cc has vectors of shape {vectors.shape} for {name} with {size} neurons.",
                )
            kept[name] = GrowingRows(size)
            kept[name].add(vectors)
        self.kept = kept
