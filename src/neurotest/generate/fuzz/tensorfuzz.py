"""TensorFuzz: keep mutants whose logits are far from those of everything kept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neurotest import registry
from neurotest.checks import setting
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
    """Kept logits in an array that doubles when it is full."""

    shares = moves = True

    def __init__(self, threshold: float) -> None:
        self.threshold = threshold
        self.buffer: NDArray[np.float64] = np.empty((0, 0))
        self.count = self._marked = 0

    def update(self, trace: Trace) -> None:
        for row in np.nan_to_num(array(trace.logits).astype(np.float64)):
            self._add(row)

    def _add(self, row: NDArray[np.float64]) -> None:
        if self.count == len(self.buffer):
            grown = np.empty((max(64, 2 * self.count), len(row)))
            if self.count:
                grown[: self.count] = self.buffer[: self.count]
            self.buffer = grown
        self.buffer[self.count] = row
        self.count += 1

    def gain(self, trace: Trace) -> NDArray[np.float64]:
        rows = np.nan_to_num(array(trace.logits).astype(np.float64))
        kept = self.buffer[: self.count]
        distances = (rows**2).sum(1)[:, None] + (kept**2).sum(1)[None] - 2 * rows @ kept.T
        return np.asarray(distances.min(1) - self.threshold)

    def keep(self, trace: Trace) -> None:
        self.update(trace)

    def value(self) -> float | None:
        return float(self.count)

    def arrays(self) -> Arrays:
        return {"kept": self.buffer[: self.count].copy()}

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        self.buffer = np.array(arrays["kept"], dtype=np.float64)
        self.count = len(self.buffer)

    def begin_leg(self) -> None:
        self._marked = self.count

    def changes(self) -> Arrays:
        return {"kept": self.buffer[self._marked : self.count].copy()}

    def learn(self, changes: Mapping[str, NDArray[Any]]) -> None:
        for row in changes["kept"]:
            self._add(row)
