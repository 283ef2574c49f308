"""The neurons of a target as differential testing sees them: one per channel, read inside the graph, scaled per input."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from neurotest.target import Target, Want
from neurotest.target.probe import Keep, reducer

Covered = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Values:
    """Of a batch: channel means (n, neurons), part of the graph, and the same scaled to 0 .. 1 within layer and input."""

    means: Tensor
    scaled: Tensor  # without graph; NaN where a layer is constant

    def covered(self, threshold: float) -> Covered:
        """(n, neurons) which neurons are covered; a constant layer covers nothing."""
        return np.asarray((self.scaled > threshold).cpu().numpy())


class Neurons:
    """Which neurons `layers` of a target have, in one row over all of them."""

    def __init__(self, target: Target, layers: str) -> None:
        self.target = target
        self.want = Want(layers=layers, keep="map")
        self.layers = target.survey().find(layers)
        self.widths = [layer.neurons() for layer in self.layers]
        channel = Want(layers=layers)
        self._means: dict[str, Keep] = {
            layer.name: reducer(channel, layer.axis, len(layer.shape) + 1) for layer in self.layers
        }  # fmt: skip

    def __len__(self) -> int:
        return sum(self.widths)

    def read(self, recorded: Mapping[str, Tensor]) -> Values:
        """As DeepXplore scales: over every unit of the layer's maps, then averaged per channel."""
        means, scaled = [], []
        for layer in self.layers:
            maps = recorded[layer.name]
            mean = self._means[layer.name](maps)
            flat = maps.detach().reshape(len(maps), -1)
            low, high = flat.amin(1, keepdim=True), flat.amax(1, keepdim=True)
            means.append(mean)
            scaled.append((mean.detach() - low) / (high - low))
        return Values(torch.cat(means, 1), torch.cat(scaled, 1))

    @property
    def place(self) -> NDArray[np.float64]:
        """(neurons,) where each neuron's layer stands, from 0 (first) up to 1."""
        return np.repeat(np.arange(len(self.layers)) / max(1, len(self.layers)), self.widths)

    @property
    def kinds(self) -> list[str]:
        return [layer.made_by for layer, width in zip(self.layers, self.widths, strict=True) for _ in range(width)]

    @property
    def weights(self) -> NDArray[np.float64]:
        """(neurons,) mean of each neuron's incoming weights; 0 where its layer has none."""
        parts = []
        for layer, width in zip(self.layers, self.widths, strict=True):
            weight = getattr(self.target.module.get_submodule(layer.module), "weight", None)
            if isinstance(weight, Tensor) and weight.ndim > 1 and len(weight) == width:
                parts.append(weight.detach().flatten(1).mean(1).double().cpu().numpy())
            else:
                parts.append(np.zeros(width))
        return np.concatenate(parts)


def rows_of(x: Tensor, rows: NDArray[np.int64] | NDArray[np.bool_]) -> Tensor:
    return x[torch.from_numpy(rows).to(x.device)]


def pick(values: Tensor, chosen: NDArray[np.int64]) -> Tensor:
    """The sum of each row's chosen neurons: (n, neurons), (n, m) -> (n,)."""
    return values.gather(1, torch.from_numpy(chosen).to(values.device)).sum(1)


def weighted(weights: NDArray[np.float64], uniforms: NDArray[np.float64], m: int) -> NDArray[np.int64]:
    """m different columns per row, drawn in proportion to `weights` (n or 1, neurons): (n, m).

    The m largest of log weight plus Gumbel noise are such a draw, for all rows at once.
    """
    noise = -np.log(-np.log(np.clip(uniforms, 1e-300, 1 - 1e-16)))
    with np.errstate(divide="ignore"):
        keys = np.log(np.maximum(weights, 0)) + noise
    keys = np.where(np.isneginf(keys), noise - 1e9, keys)  # weight 0: only when nothing else is left
    order = np.argpartition(-keys, m - 1, axis=1)[:, :m]
    return np.asarray(order, dtype=np.int64)
