"""TensorFuzz: keep mutants whose logits are far from those of everything kept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neurotest import registry
from neurotest.checks import setting
from neurotest.coverage.cluster import GrowingRows
from neurotest.coverage.criterion import Arrays
from neurotest.data.source import Source
from neurotest.generate.fuzz.guides import Guide, GuideState
from neurotest.measure.context import Context
from neurotest.measure.traces import array
from neurotest.scan import scan
from neurotest.target import Trace


@registry.register(
    "guide",
    "tensorfuzz",
    paper="Odena et al., TensorFuzz, ICML 2019",
    cost="one distance per mutant and kept vector of logits",
    differs="Nearest neighbours are exact. TensorFuzz stops at the first fault (`--faults 1`).",
    main="threshold",
)
class TensorFuzz(Guide):
    """Keep mutants whose logits are farther than sqrt(`threshold`) from those of everything kept."""

    threshold: float = setting(1.0, "a squared distance; the published code uses 1", least=0)

    @property
    def defaults(self) -> dict[str, Any]:
        return {"mutations": "tensorfuzz", "priority": "recent"}

    def start(self, context: Context, seeds: Source) -> GuideState:
        state = _KeptLogits(self.threshold)
        scan(context.need_target(), seeds, [state], batch=context.batch)
        return state


class _KeptLogits(GuideState):
    """The logits of everything kept."""

    shares = moves = True

    def __init__(self, threshold: float) -> None:
        self.threshold = threshold
        self.kept: GrowingRows | None = None
        self._marked = 0

    @property
    def logits(self) -> NDArray[np.float64]:
        return np.empty((0, 0)) if self.kept is None else self.kept.vectors

    def update(self, trace: Trace) -> None:
        self._add(np.nan_to_num(array(trace.logits).astype(np.float64)))

    def _add(self, rows: NDArray[np.float64]) -> None:
        if self.kept is None:
            self.kept = GrowingRows(rows.shape[1])
        self.kept.add(rows)

    def gain(self, trace: Trace) -> NDArray[np.float64]:
        rows, kept = np.nan_to_num(array(trace.logits).astype(np.float64)), self.logits
        distances = (rows**2).sum(1)[:, None] + (kept**2).sum(1)[None] - 2 * rows @ kept.T
        return np.asarray(distances.min(1) - self.threshold)

    def keep(self, trace: Trace) -> None:
        self.update(trace)

    def value(self) -> float | None:
        return float(len(self.logits))

    def arrays(self) -> Arrays:
        return {"kept": self.logits.copy()}

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        self.kept = None
        self._add(np.array(arrays["kept"], dtype=np.float64))

    def begin_leg(self) -> None:
        self._marked = len(self.logits)

    def changes(self) -> Arrays:
        return {"kept": self.logits[self._marked :].copy()}

    def learn(self, changes: Mapping[str, NDArray[Any]]) -> None:
        self._add(changes["kept"])
