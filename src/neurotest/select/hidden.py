"""Activations of a hidden layer, kept for methods that look at many inputs at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from neurotest.data.source import Source
from neurotest.errors import BadInput
from neurotest.measure.context import Collector, Traces
from neurotest.measure.traces import Layout, joined
from neurotest.scan import scan
from neurotest.select.scorer import Pool, Scorer
from neurotest.target import Trace, Want

Floats = NDArray[np.floating]


@dataclass(frozen=True, kw_only=True)
class Hidden(Scorer):
    """layer: a glob or preset; default is the last hidden layer. neuron: `unit` or `channel`."""

    layer: str | None = None
    neuron: Literal["unit", "channel"] = "unit"

    @property
    def want(self) -> Want:
        if self.layer is None:
            return Want(layers="last_hidden", neuron="unit", inputs=True)
        return Want(layers=self.layer, neuron=self.neuron)


class Kept:
    """Holds every candidate's activations, in the order of the pool."""

    method: Any

    def __init__(self, method: Hidden, pool: Pool) -> None:
        self.method, self.pool, self.want = method, pool, method.want
        self.layout: Layout = pool.context.layout(self.want)
        self.values: Floats = np.full((len(pool), self.layout.neurons), np.nan, dtype=np.float32)

    def update(self, index: np.ndarray, trace: Trace, partners: Sequence[Trace]) -> None:
        self.values[index] = joined(trace, self.want, self.layout).values

    def check(self, who: str) -> None:
        if n := int((~np.isfinite(self.values).all(axis=1)).sum()):
            raise BadInput(
                "not-finite",
                "inputs",
                f"{who} cannot place {n} inputs (NaN or infinite activations): leave them out or use other --layers.",
            )


def activations(pool: Pool, source: Source, want: Want) -> Traces:
    """What the network does on some inputs."""
    collector = Collector(want, pool.context.layout(want))
    scan(pool.target, source, [collector], batch=pool.batch)
    return collector.traces(source.labels)
