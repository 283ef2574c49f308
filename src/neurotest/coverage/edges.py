"""Connections between neurons: what a layer's outputs would be with all but one input weakened, cut into sections."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from neurotest import rng
from neurotest.coverage.layerwise import Sums
from neurotest.errors import BadInput
from neurotest.measure.traces import Values, array
from neurotest.stats.moments import Moments
from neurotest.target import Target, Want
from neurotest.target.layers import Layer
from neurotest.target.probe import Trace

Bits = NDArray[np.bool_]
Ints = NDArray[np.int64]
PRODUCTS_AT_ONCE = 1 << 20  # connections times inputs handled at once: 4 MB
CONVOLUTIONS = {3: F.conv1d, 4: F.conv2d, 5: F.conv3d}


@dataclass(frozen=True, eq=False)
class _Link:
    """A layer with its module; `before` is the layer whose outputs are the causes (None: the layer's own inputs are).

    most: of a layer with more channels so many are drawn at random, as causes and as effects; None takes all.
    """

    layer: Layer
    module: nn.Module
    before: _Link | None = None
    most: int | None = None

    @property
    def name(self) -> str:
        return self.layer.name

    @property
    def in_channels(self) -> int:
        return self.layer.neurons(inputs=True)

    @property
    def out_channels(self) -> int:
        return self.layer.neurons()

    @cached_property
    def chosen_inputs(self) -> Ints:
        """The input channels that are causes, in their order."""
        return self._drawn("inputs", self.in_channels)

    @cached_property
    def chosen_outputs(self) -> Ints:
        """The output channels that are effects, in their order."""
        return self._drawn("outputs", self.out_channels)

    def _drawn(self, side: str, count: int) -> Ints:
        """By the layer's name and size alone, so that states of equal criteria are about equal connections."""
        if self.most is None or count <= self.most:
            return np.arange(count)
        stream = rng.stream(f"coverage.connections.{side}.{self.name}", count)
        return np.sort(stream.choice(count, self.most, replace=False))

    @property
    def connections(self) -> int:
        """All there are, drawn or not."""
        return self.in_channels * self.out_channels

    def reduced(self, inputs: Tensor) -> Values:
        """The layer's input, one value per channel: (n, inputs)."""
        return array(_channels(inputs, self.layer.input_axis))

    def output(self, inputs: Tensor) -> Values:
        """What the layer makes of its input, one value per chosen channel: (n, effects)."""
        with torch.inference_mode():
            return array(_channels(self.module.forward(inputs), self.layer.axis))[:, self.chosen_outputs]

    def causes(self, recorded: Mapping[str, Tensor]) -> Values:
        """One value per chosen input channel: (n, causes)."""
        if self.before is None:
            return self.reduced(recorded[self.name])[:, self.chosen_inputs]
        outputs = self.before.output(recorded[self.before.name])
        each = self.in_channels // outputs.shape[1]  # a flattened map: each channel several times
        return outputs[:, self.chosen_inputs // each]

    def contributions(self, inputs: Tensor) -> Tensor:
        """What each input channel adds to each chosen output channel: (inputs, n, effects).

        Both operators are linear and a channel's value is a mean, so weakening inputs only weakens what they add.
        """
        weight = cast(Tensor, self.module.weight).detach()[torch.from_numpy(self.chosen_outputs)]
        if isinstance(self.module, nn.Linear):
            return _channels(inputs, self.layer.input_axis).T[:, :, None] * weight.T[:, None]
        module = cast(nn.Conv2d, self.module)
        # Every input channel as a group of its own: as many products as the layer itself has.
        each = weight.transpose(0, 1).reshape(-1, 1, *weight.shape[2:])  # (inputs * outputs, 1, ...)
        settings = (module.stride, cast(int, module.padding), module.dilation, self.in_channels)
        maps = CONVOLUTIONS[weight.ndim](inputs, each, None, *settings)
        return maps.flatten(2).mean(dim=2).reshape(len(inputs), self.in_channels, len(weight)).transpose(0, 1)

    @property
    def bias(self) -> Tensor:
        bias = cast("Tensor | None", self.module.bias)
        chosen = torch.from_numpy(self.chosen_outputs)
        return torch.zeros(len(chosen), device=cast(Tensor, self.module.weight).device) if bias is None else bias.detach()[chosen]


def _channels(tensor: Tensor, axis: int) -> Tensor:
    others = tuple(d for d in range(1, tensor.ndim) if d != axis)
    return tensor.mean(others) if others else tensor


def _find_links(target: Target, layers: str, parent: str, most: int) -> list[_Link]:
    """The layers with a layer before them, in the order in which they run; of a wide one `most` channels on either side."""
    links: list[_Link] = []
    before: _Link | None = None
    for layer in target.survey().find(layers):
        module = target.module.get_submodule(layer.module)
        if layer.function or not isinstance(module, nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d):
            what = f"{layer.name!r} is a {'function' if layer.function else type(module).__name__}"
            raise BadInput(
                "unsuitable", "layers", f"cac needs modules that are convolutions or dense layers; {what}: choose --layers."
            )
        if not isinstance(module, nn.Linear) and (module.groups != 1 or module.padding_mode != "zeros"):
            raise BadInput(
                "unsuitable",
                "convolution",
                f"cac: {layer.name!r} is a grouped or specially padded convolution: leave it out with --layers.",
            )
        link = _Link(layer, module)
        if before is not None:
            if parent == "previous" and link.in_channels % before.out_channels:
                raise BadInput(
                    "unsuitable",
                    "parent",
                    f"parent='previous': {layer.name} takes {link.in_channels} channels and {before.name} makes "
                    f"{before.out_channels}; they do not follow each other. Use parent=input.",
                )
            links.append(_Link(layer, module, before if parent == "previous" else None, most))
        before = link
    if not links:
        raise BadInput("too-few", "layers", f"layers={layers!r}: cac needs at least two layers that follow each other.")
    return links


@dataclass(eq=False)
class Learner:
    """What training data gives before anything is counted: ranges of causes and effects, and how inputs vary together."""

    want: Want
    links: list[_Link]

    @classmethod
    def of(cls, want: Want, target: Target, parent: str, most: int) -> Learner:
        return cls(want, _find_links(target, want.layers, parent, most))

    def __post_init__(self) -> None:
        self.causes = [Moments(len(link.chosen_inputs)) for link in self.links]
        self.effects = [Moments(len(link.chosen_outputs)) for link in self.links]
        self.sums = [_Rows(link.in_channels, link.chosen_inputs) for link in self.links]

    def update(self, trace: Trace) -> None:
        recorded = trace[self.want]
        for link, cause, effect, sums in zip(self.links, self.causes, self.effects, self.sums, strict=True):
            cause.update(link.causes(recorded))
            effect.update(link.output(recorded[link.name]))
            values = link.reduced(recorded[link.name])
            sums.add(values[np.isfinite(values).all(axis=1)])

    def edges(self, kind: str, sections: int) -> list[Edges]:
        return [
            Edges(link, *_weights(sums.covariance(), link.chosen_inputs), cause, effect, kind, sections)
            for link, cause, effect, sums in zip(self.links, self.causes, self.effects, self.sums, strict=True)
        ]


class _Rows(Sums):
    """The covariances of some columns with all: of a wide layer the whole table would be gigabytes."""

    def __init__(self, width: int, rows: Ints) -> None:
        super().__init__(0)
        self.rows = rows
        self.shift, self.total, self.products = np.zeros(width), np.zeros(width), np.zeros((len(rows), width))

    def add(self, values: Values) -> None:
        wide = values.astype(np.float64)
        if not self.count and len(wide):
            self.shift = wide.mean(axis=0)
        wide -= self.shift
        self.count += len(wide)
        self.total += wide.sum(axis=0)
        self.products += (wide if len(self.rows) == wide.shape[1] else wide[:, self.rows]).T @ wide

    def covariance(self) -> NDArray[np.float64]:
        mean = self.total / max(1, self.count)
        return self.products / max(1, self.count) - mean[self.rows][:, None] * mean


def _weights(covariance: NDArray[np.float64], causes: Ints) -> tuple[Tensor, Bits]:
    """How much of each input is left when one is the cause: its own all, others less the more they vary with it."""
    size, own = np.abs(covariance), (np.arange(len(causes)), causes)
    size[own] = 0
    total = size.sum(axis=1, keepdims=True)
    weights = 1 - np.divide(size, total, out=np.zeros_like(size), where=total > 0)
    weights[own] = 1
    return torch.from_numpy(weights.astype(np.float32)), total[:, 0] > 0  # (causes, inputs), (causes,)


class Edges:
    """The connections of one layer: which cell of its table every input counts in."""

    def __init__(self, link: _Link, weights: Tensor, moving: Bits, cause: Moments, effect: Moments, kind: str, k: int) -> None:
        self.link, self.weights, self.kind, self.sections = link, weights, kind, k
        self.cause, self.effect = (_Range(seen.low, seen.high) for seen in (cause, effect))
        # A neuron that varies with no other input, because it is dead, is the cause of nothing.
        self.moving: Bits = moving

    def dead(self) -> Bits:
        """Connections with an end that never changed in training, alone or with the other inputs: (causes, effects)."""
        return ~((self.cause.width > 0) & self.moving)[:, None] | ~(self.effect.width > 0)

    @property
    def outside(self) -> int:
        """The cell, behind those of the table, that takes in what lies outside the ranges."""
        return self.sections**2

    def cells(self, recorded: Mapping[str, Tensor]) -> Iterator[NDArray[np.int16]]:
        """In which cell of each connection's table every input counts, some inputs at a time: (causes, n, effects)."""
        k, inputs = self.sections, recorded[self.link.name]
        causes = self.cause.section(self.link.causes(recorded), self.kind, k).T.astype(np.int16)  # (taken, n)
        causes[~self.moving] = -1
        step = max(1, PRODUCTS_AT_ONCE // (self.link.in_channels * len(self.link.chosen_outputs)))
        for start in range(0, len(inputs), step):
            with torch.inference_mode():
                parts = self.link.contributions(inputs[start : start + step])
                mixed = self.weights.to(parts.device) @ parts.reshape(self.link.in_channels, -1)
                effects = mixed.reshape(len(mixed), *parts.shape[1:]) + self.link.bias
            here = causes[:, start : start + step, None]
            cells = self.effect.section(array(effects), self.kind, k).astype(np.int16)
            nowhere = (cells < 0) | (here < 0)
            cells += here * np.int16(k)
            cells[nowhere] = self.outside
            yield cells


class _Range:
    """A training range per neuron, cut into sections; outside it, or not a number, is -1."""

    def __init__(self, low: Values, high: Values) -> None:
        self.low, self.high = low.astype(np.float32), high.astype(np.float32)
        self.width = self.high - self.low

    def section(self, values: Values, kind: str, k: int) -> Values:
        """The section of each value, as a float: (..., neurons)."""
        with np.errstate(all="ignore"):
            scaled = values - self.low
            scaled /= self.width
            scaled *= k
            outside = ~((values >= self.low) & (values <= self.high) & (self.width > 0))
            if kind == "closed":
                np.minimum(scaled, k - 1, out=scaled)
            else:
                np.ceil(scaled, out=scaled)
                scaled -= 1
            scaled[outside] = -1
            return scaled
