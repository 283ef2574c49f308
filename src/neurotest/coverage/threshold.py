"""NC and NAC: a neuron is covered when some input drives it above a threshold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from neurotest.checks import setting
from neurotest.coverage.bits import HitState
from neurotest.coverage.criterion import Criterion
from neurotest.measure.context import Context
from neurotest.measure.traces import Joined, Layout, Values, array
from neurotest.registry import register
from neurotest.target import Trace, Want

PER_VALUE = "a few operations per neuron and input; one byte and two numbers kept per neuron"


@register(
    "criterion", "nc", main="threshold", paper="Pei et al., DeepXplore, SOSP 2017", cost=PER_VALUE,
    differs="Values are scaled between the least and the greatest channel mean of the same layer and input. DeepXplore's own "
    "code scales over all units of the maps before it averages (`scale_order=scale_then_reduce`) and looks only at the first "
    "input of a batch. A layer whose neurons all agree on an input covers nothing there (published code divides 0 by 0).",
)  # fmt: skip
class NC(Criterion):
    """Share of neurons that some input drives above `threshold`, after scaling to 0 .. 1 within layer and input.

    scaling: `layer_minmax`, `none` or `sigmoid`. scale_order: `reduce_then_scale` averages maps first, `scale_then_reduce` last.
    Every input covers the greatest neuron of every layer, and a layer of one neuron is never covered.
    """

    threshold: float = setting(0.75, "papers use 0 to 0.75")
    scaling: Literal["layer_minmax", "none", "sigmoid"] = "layer_minmax"
    scale_order: Literal["reduce_then_scale", "scale_then_reduce"] = "reduce_then_scale"

    obligations: ClassVar[bool] = True

    @property
    def maps(self) -> bool:
        return self.scale_order == "scale_then_reduce" and self.scaling == "layer_minmax" and self.neuron == "channel"

    @property
    def want(self) -> Want:
        return Want(layers=self.layers, neuron=self.neuron, keep="map" if self.maps else "reduced")

    def start(self, context: Context) -> _ThresholdState:
        return _ThresholdState(self, context.layout(self.want))


@register(
    "criterion", "nac", main="threshold",
    paper="Pei et al., DeepXplore, SOSP 2017, as dnn-tip (Weiss and Tonella, ISSTA 2022) reads it", cost=PER_VALUE,
    differs="Raw values against the threshold, as dnn-tip does it. DeepGini's code takes the sigmoid first "
    "(`scaling=sigmoid`), which with its threshold of 0 covers everything at once.",
)  # fmt: skip
class NAC(NC):
    """Share of neurons that some input drives above `threshold`, unscaled."""

    threshold: float = setting(0.0, "papers use 0 to 0.75")
    scaling: Literal["layer_minmax", "none", "sigmoid"] = "none"


class _ThresholdState(HitState):
    """One bit per neuron, and the range seen, which tells the neurons that never change."""

    criterion: NC

    def __init__(self, criterion: NC, layout: Layout) -> None:
        super().__init__(criterion, layout, per_neuron=1)

    def read(self, trace: Trace) -> Joined:
        return super().read(trace) if not self.criterion.maps else _scaled_maps(trace[self.want], self.layout)

    def hits(self, joined: Joined) -> NDArray[np.bool_]:
        values, scaling = joined.values, self.criterion.scaling
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            if scaling == "sigmoid":
                values = 1 / (1 + np.exp(-values))
            elif scaling == "layer_minmax" and not self.criterion.maps:
                values = _scaled(values, self.layout)
            above: NDArray[np.bool_] = values > self.criterion.threshold
        return above  # (n, neurons)


def _scaled(values: Values, layout: Layout) -> Values:
    """Each input's values of a layer between 0 and 1; a constant layer is NaN, which is above nothing: (n, neurons)."""
    low = np.minimum.reduceat(values, layout.starts, axis=1)  # (n, layers)
    span = np.maximum.reduceat(values, layout.starts, axis=1) - low
    result: Values = (values - np.repeat(low, layout.widths, axis=1)) / np.repeat(span, layout.widths, axis=1)
    return result


def _scaled_maps(recorded: Mapping[str, Any], layout: Layout) -> Joined:
    """Whole maps scaled over all their units, then averaged per channel."""
    parts, bad = [], np.zeros(len(layout.names), dtype=np.int64)
    with np.errstate(invalid="ignore", divide="ignore"):
        for number, name in enumerate(layout.names):
            maps = array(recorded[name])
            flat = maps.reshape(len(maps), -1)
            bad[number] = np.count_nonzero(~np.isfinite(flat))
            low, high = flat.min(axis=1), flat.max(axis=1)
            shape = (-1, *[1] * (maps.ndim - 1))
            others = tuple(d for d in range(1, maps.ndim) if d != layout.axes.get(name, 1))
            parts.append(((maps - low.reshape(shape)) / (high - low).reshape(shape)).mean(axis=others))
    return Joined(np.concatenate(parts, axis=1), bad if bad.any() else None)
