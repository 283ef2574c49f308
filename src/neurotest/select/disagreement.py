"""Select by what is true nearby: how far the answer is from the quantities of the nearest training inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from neurotest import rng
from neurotest.checks import setting
from neurotest.devices import exact
from neurotest.errors import BadInput
from neurotest.measure.traces import joined
from neurotest.registry import register
from neurotest.select.nearest import unit
from neurotest.select.scorer import PerInput, Pool, TrainedScorer, steady
from neurotest.target import Trace
from neurotest.target.outputs import Bins

Floats = NDArray[np.float64]


@register(
    "selector", "disagreement", main="k", paper="ours: nearest neighbours as a second opinion",
    cost="one forward pass per input and training input; keeps 8 bytes per input and the activations of at most 10,000 training "
    "inputs",
)  # fmt: skip
class Disagreement(TrainedScorer):
    """Score by the mean distance between the answer and the true quantities of the `k` nearest training inputs.

    Near is what has a small angle between its hidden values. Needs training data with quantities; no label of the pool. inputs:
    so many of them at most, drawn at random. layer, neuron: where it is measured; default is the last map of the encoder, every
    value."""

    quantities: ClassVar[bool] = True

    k: int = setting(10, "10 by default")
    inputs: int | None = setting(10_000, "10000 by default; none: all")
    layer: str = "encoder"
    neuron: Literal["unit", "channel"] = "unit"

    def start(self, pool: Pool) -> _DisagreementState:
        bins = pool.target.bins
        assert bins is not None
        train = pool.context.need_train("disagreement")
        if train.quantities is None:
            raise BadInput(
                "missing",
                "train",
                "disagreement needs training data with their quantities: give --train DATA that has them, or use nearest.",
            )
        values = pool.context.traces(self.want, "disagreement").values
        rows = np.flatnonzero(np.isfinite(values).all(axis=1))
        if self.inputs is not None and len(rows) > self.inputs:
            rows = np.sort(rng.stream("select.disagreement", pool.seed).permutation(rows)[: self.inputs])
        if not len(rows):
            raise BadInput(
                "not-finite",
                "train",
                "disagreement needs training inputs with finite activations: none is usable. Give others with --train.",
            )
        points = unit(torch.from_numpy(values[rows]).float())
        return _DisagreementState(self, pool, bins, points, np.asarray(train.quantities[rows], dtype=np.float64))


class _DisagreementState(PerInput):
    def __init__(self, method: Disagreement, pool: Pool, bins: Bins, points: Tensor, truths: Floats) -> None:
        super().__init__(len(pool))
        self.want, self.layout, self.bins = method.want, pool.context.layout(method.want), bins
        self.points, self.truths, self.k = points, truths, min(method.k, len(points))

    def update(self, index: np.ndarray, trace: Trace, partners: Sequence[Trace]) -> None:
        values = torch.from_numpy(joined(trace, self.want, self.layout).values).float()
        alike = unit(values) @ self.points.T  # (n, training inputs)
        near = alike.topk(self.k, dim=1).indices.numpy()
        answers = self.bins.values(exact(trace.logits)).cpu().numpy()
        score = np.abs(answers[:, None] - self.truths[near]).mean(axis=1)
        self.scores[index] = np.where(np.isfinite(alike.numpy()).all(axis=1), steady(score), np.nan)
