"""Select by how much the answer moves when the input is changed a little."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from neurotest.checks import setting
from neurotest.devices import exact
from neurotest.registry import register
from neurotest.select.scorer import Partner, PerInput, Pool, Scorer
from neurotest.target import Trace
from neurotest.target.outputs import Bins


@register(
    "selector", "unsteady", main="changes", paper="ours: neuron sensitivity (NSS) at the output",
    cost="one forward pass per input and change (5 in all), 8 bytes kept per input",
)  # fmt: skip
class Unsteady(Scorer):
    """Score by the spread of the answers to an input and to copies of it with so many different weak noises.

    Needs no training data; where there are some, `disagreement` finds more.
    """

    quantities: ClassVar[bool] = True

    changes: int = setting(4, "4 by default")

    @property
    def partner(self) -> Partner:
        return Partner("noise", self.changes)

    def start(self, pool: Pool) -> _UnsteadyState:
        assert pool.target.bins is not None
        return _UnsteadyState(len(pool), pool.target.bins)


class _UnsteadyState(PerInput):
    def __init__(self, n: int, bins: Bins) -> None:
        super().__init__(n)
        self.bins = bins

    def update(self, index: np.ndarray, trace: Trace, partners: Sequence[Trace]) -> None:
        answers = [self.bins.values(exact(one.logits)).cpu().numpy() for one in (trace, *partners)]
        self.scores[index] = np.std(answers, axis=0)
