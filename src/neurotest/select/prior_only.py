"""Select by the fault probabilities that changed training images give: no label of the pool is needed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from neurotest.checks import setting
from neurotest.errors import BadInput
from neurotest.registry import register
from neurotest.select.adaptive.selector import PoolLearner, Scanned
from neurotest.select.scorer import Pool
from neurotest.target import Trace


@register(
    "selector",
    "prior-only",
    paper="ours: what `adaptive` knows before the first label",
    cost="one forward pass per input, five per training image (at most 5,000, once per network and training data)",
    differs="An order for one batch. Where labels come in between, `adaptive` starts from the same and learns from them.",
)
class PriorOnly(PoolLearner):
    """Score by the fault probability learned from copies of training images, changed in the shares that the pool looks like.

    Needs training data with labels. Where the pool looks natural and the copies promise no gain, the order is DeepGini's. ridge:
    how strongly the regressions are kept near zero.
    """

    ridge: float = setting(30.0, "30 by default", above=0)

    formerly: ClassVar[tuple[str, ...]] = ("foreseen", "Foreseen")

    def start(self, pool: Pool) -> _PriorOnlyState:
        train = pool.context.need_train("prior-only")
        if train.labels is None:
            raise BadInput(
                "no-labels",
                "train",
                "prior-only needs training data with labels: give --train DATA that has them, or use deepgini.",
            )
        return _PriorOnlyState(self, pool)


class _PriorOnlyState:
    """Gathers what the network does on the pool; the score is that of the first round of `adaptive`."""

    def __init__(self, method: PriorOnly, pool: Pool) -> None:
        self.method = method
        self.scanned = Scanned.of(pool, "train", method.ridge)
        if self.scanned.mode != "train":
            raise BadInput("unsuitable", "train", f"prior-only: {self.scanned.reason}")

    def update(self, index: np.ndarray, trace: Trace, partners: Sequence[Trace]) -> None:
        self.scanned.gather.update(index, trace)

    def value(self) -> np.ndarray:
        return self.scanned.loop(ridge=self.method.ridge, seed=0, audit=0.0).chances

    def details(self) -> dict[str, Any]:
        return {"prior": self.scanned.details()}

    def notes(self) -> tuple[str, ...]:
        return tuple(self.scanned.notes())
