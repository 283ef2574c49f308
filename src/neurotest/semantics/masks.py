"""Where an exemplar excites its neuron: masks at image size, computed when they are needed."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from neurotest.data.source import Source
from neurotest.scan import BATCH
from neurotest.semantics.exemplars import Exemplars, maps, places
from neurotest.target import Layer, Probe, Target, Want

Ints = NDArray[np.int64]
MEMORY = 1 << 28  # bytes of masks and maps at one time


@dataclass(frozen=True, eq=False)
class Regions:
    """Some neurons of a layer with their exemplars: inputs (m, *shape) as read, and masks over them."""

    layer: str
    neurons: NDArray[np.int64]  # (count,)
    positions: NDArray[np.int64]  # (count, k), -1 where there are fewer exemplars
    inputs: NDArray[np.generic]  # (m, *shape) every input once
    rows: NDArray[np.int64]  # (count, k) into `inputs`
    masks: NDArray[np.bool_]  # (count, k, *image)


def has_map(layer: Layer, shape: tuple[int, ...]) -> bool:
    """Whether the layer's neurons have maps over the input, so that a place in one is a place in the other."""
    return len(places(layer)) == len(shape) - 1 > 0 and math.prod(places(layer)) > 1


def enlarged(layer: Layer, tensor: Tensor, image: tuple[int, ...]) -> Tensor:
    """A layer's output (n, neurons, places) as maps of image size: (n, neurons, *image), bilinear between places."""
    flat = maps(layer, tensor)
    sides = places(layer)
    mode = {1: "linear", 2: "bilinear", 3: "trilinear"}.get(len(sides))
    if mode is None or len(sides) != len(image):
        return flat.amax(dim=2).view(*flat.shape[:2], *(1 for _ in image)).expand(*flat.shape[:2], *image)
    shaped = flat.reshape(*flat.shape[:2], *sides)
    return shaped if sides == image else functional.interpolate(shaped, image, mode=mode, align_corners=False)


def cut(values: Tensor, gamma: Tensor) -> Tensor:
    """Masks of maps (n, *image) above `gamma` (n,); one that would be empty keeps its highest place."""
    flat = values.flatten(1)
    mask = flat > gamma.unsqueeze(1)
    empty = ~mask.any(dim=1)
    mask[empty, flat[empty].argmax(dim=1)] = True
    return mask.view(values.shape)


def regions(
    exemplars: Exemplars, target: Target, source: Source, layer: str, neurons: Ints | None = None, *, batch: int = BATCH
) -> Iterator[Regions]:
    """The exemplars of a layer's neurons with their masks, in groups that fit into memory. A neuron without a map (a unit of
    a dense layer) looks at the whole input."""
    about = next(one for one in exemplars.layers if one.name == layer)
    index, _ = exemplars.top(layer)
    chosen = np.arange(len(index)) if neurons is None else np.asarray(neurons)
    image = source.shape[1:]
    step = max(1, MEMORY // max(1, 4 * index.shape[1] * int(np.prod(image))))
    with Probe(target, Want(layers=layer, keep="map")) as probe:
        for start in range(0, len(chosen), step):
            some = chosen[start : start + step]
            needed = np.unique(index[some][index[some] >= 0])
            rows = np.searchsorted(needed, np.maximum(index[some], 0))
            inputs = source.read(needed)
            masks = np.ones((*rows.shape, *image), dtype=bool)
            if has_map(about, (1, *image)):
                gamma = exemplars.gamma(layer)[torch.from_numpy(some)]
                for at in range(0, len(inputs), batch):
                    with torch.inference_mode():
                        (here,) = probe(target.prepare(inputs[at : at + batch])).values.values()
                    _cut_batch(masks, here.movedim(about.axis, 1), rows - at, some, gamma)
            masks[index[some] < 0] = False
            yield Regions(layer, some, index[some], inputs, np.minimum(rows, len(needed) - 1), masks)


def _cut_batch(masks: NDArray[np.bool_], maps: Tensor, rows: Ints, neurons: Ints, gamma: Tensor) -> None:
    """Write the masks (count, k, *image) of exemplars whose `rows` (count, k) are in a batch of maps (n, neurons, *sides)."""
    which, rank = np.nonzero((rows >= 0) & (rows < len(maps)))
    picked = maps[torch.from_numpy(rows[which, rank]), torch.from_numpy(neurons[which])].unsqueeze(1).cpu()  # (pairs, 1, *sides)
    mode = "bilinear" if picked.ndim == 4 else "linear"
    wide = functional.interpolate(picked, masks.shape[2:], mode=mode, align_corners=False)
    masks[which, rank] = cut(wide.squeeze(1), gamma[torch.from_numpy(which)]).numpy()
