"""What a network says of every input of a source, and where it places them: one pass, kept in memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from neurotest.data.source import Source
from neurotest.errors import BadInput
from neurotest.measure.context import Context
from neurotest.measure.traces import Layout, joined
from neurotest.memory import check_memory
from neurotest.pieces import Updates, pass_over
from neurotest.scan import BATCH, Progress
from neurotest.target import Target, Trace, Want

Floats = NDArray[np.float64]
LAST = Want(layers="last_hidden", neuron="unit", inputs=True)


@dataclass(frozen=True, eq=False)
class Answers:
    """logits: (n, classes). features: (n, d), the last hidden layer; the logits where a network has no such layer."""

    logits: Floats
    features: NDArray[np.float32]
    counted: NDArray[np.int64] | None = None  # of a quantity whose truth is known: the classes that the answers count as

    def __len__(self) -> int:
        return len(self.logits)

    @property
    def classes(self) -> int:
        return int(self.logits.shape[1])

    @cached_property
    def log_probs(self) -> Floats:
        """(n, classes)"""
        return log_softmax(self.logits)

    @cached_property
    def predicted(self) -> NDArray[np.int64]:
        return np.asarray(self.logits.argmax(axis=1)) if self.counted is None else self.counted

    @cached_property
    def confidence(self) -> Floats:
        """(n,) probability of the predicted class."""
        return np.asarray(np.exp(self.log_probs.max(axis=1)))


def log_softmax(logits: Floats) -> Floats:
    shifted = logits - logits.max(axis=1, keepdims=True)
    result: Floats = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return result


def answers(target: Target, source: Source, *, batch: int = BATCH, progress: Progress | None = None) -> Answers:
    """Forward the source once. Logits that are not finite are refused: nothing can be said about such inputs."""
    want, width = _last_hidden(target)
    check_memory(4 * len(source) * width, f"keeping {width:,} neurons of {len(source):,} inputs", "use --limit")
    gathered = _Gathered(want, None if want is None else Context(target=target).layout(want))
    pass_over(target, source, Updates([gathered]), batch=batch, progress=progress)
    logits, features = gathered.logits, gathered.features
    scores = np.concatenate(logits)
    if wrong := int((~np.isfinite(scores).all(axis=1)).sum()):
        raise BadInput(
            "not-finite",
            "scores",
            f"the network gives no finite scores for {wrong} of {len(scores)} inputs: `neurotest doctor` says where.",
        )
    return Answers(scores, np.concatenate(features) if features else scores.astype(np.float32), _counted(target, source, scores))


def _counted(target: Target, source: Source, logits: Floats) -> NDArray[np.int64] | None:
    """(n,) the classes that answers count as: that of the truth where they are within the tolerance. None unless the target
    predicts a quantity and the truth is known."""
    if target.bins is None or source.quantities is None or source.labels is None:
        return None
    said, labels, truth = (torch.from_numpy(np.asarray(one)) for one in (logits, source.labels, source.quantities))
    return np.asarray(target.bins.counted(said, labels, truth).numpy(), dtype=np.int64)


@dataclass(eq=False)
class _Gathered:
    """Logits and features, in the order of the inputs."""

    want: Want | None
    layout: Layout | None
    logits: list[Floats] = field(default_factory=list)
    features: list[NDArray[np.float32]] = field(default_factory=list)
    exact: ClassVar[bool] = True

    def update(self, trace: Trace) -> None:
        self.logits.append(trace.logits.cpu().double().numpy())
        if self.want is not None and self.layout is not None:
            self.features.append(np.array(joined(trace, self.want, self.layout).values, dtype=np.float32))

    def fresh(self, start: int = 0) -> _Gathered:
        return _Gathered(self.want, self.layout)

    def merge(self, other: _Gathered) -> None:
        self.logits += other.logits
        self.features += other.features


def _last_hidden(target: Target) -> tuple[Want | None, int]:
    try:
        (layer,) = target.survey().find(LAST.layers)
    except BadInput:  # nothing but one layer, or none that is known
        return None, 0
    return LAST, layer.neurons(LAST.neuron, inputs=True)
