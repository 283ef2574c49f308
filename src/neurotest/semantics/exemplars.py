"""Exemplars: the inputs that excite each neuron most, and where in them, for all layers from one pass.

What accumulates is bounded whatever the data: k positions and values per neuron, its range, its sums per class, and a
sample of map values for the quantile that the masks are cut at. The sample is drawn by hashing (input, place), so it is the
same however the data is divided, and two halves merged equal the whole.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from glob import escape
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from neurotest import checks
from neurotest.audio import is_audio, spectrogram_size
from neurotest.data.source import Source
from neurotest.errors import BadInput
from neurotest.scan import BATCH
from neurotest.stats.moments import hashed
from neurotest.target import Layer, Probe, Target, Trace, Want

K = 15
QUANTILE = 0.99
SAMPLES = 1 << 14  # map values kept per neuron: the .99 quantile is then the .9885 to .9915 one in 19 of 20 cases
INPUTS = 1 << 12  # pooled values kept per neuron
SAMPLE_BYTES = 1 << 28  # bytes of these samples, of all neurons together: a wide network gets fewer per neuron
LEAST_SAMPLES = 1 << 9  # but no fewer than this: the .99 quantile is then the .981 to .999 one
MEMORY = 1 << 28  # bytes of masks and maps at one time
Ints = NDArray[np.int64]
FLOOR = 0.01  # a neuron's values are counted from this quantile: the least value would depend on one input
TENSORS = ("values", "index", "low", "high", "sums", "squares")


def maps(layer: Layer, tensor: Tensor) -> Tensor:
    """A layer's output as (n, neurons, places): one place where there is no map."""
    if tensor.ndim == 1:
        return tensor.view(-1, 1, 1)
    return tensor.movedim(layer.axis, 1).flatten(2) if tensor.ndim > 2 else tensor.unsqueeze(2)


def places(layer: Layer) -> tuple[int, ...]:
    """The sides of a neuron's map; () where it has none."""
    return tuple(side for axis, side in enumerate(layer.shape, start=1) if axis != layer.axis)


def globs(layers: Iterable[Layer]) -> str:
    """What `--layers` would have to be for exactly these layers."""
    return ",".join(escape(layer.name) for layer in layers)


def _bounded(samples: int, neurons: int) -> int:
    """How many map values are kept per neuron, so that those of all neurons stay within SAMPLE_BYTES.

    >>> _bounded(SAMPLES, 200), _bounded(SAMPLES, 20_000)
    (16384, 3355)
    """
    return min(samples, max(LEAST_SAMPLES, SAMPLE_BYTES // (4 * max(1, neurons))))


@dataclass(eq=False)
class _Sample:
    """At most `most` rows of values, those with the smallest hashes: the same however the rows were divided."""

    most: int
    neurons: int

    def __post_init__(self) -> None:
        self.keys: NDArray[np.uint64] = np.empty(0, np.uint64)  # ascending
        self.values = torch.empty(0, self.neurons)  # (rows, neurons)

    def few(self, keys: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Which of new rows may stay: after the first batches few hashes are small enough."""
        limit = self.keys[-1] if len(self.keys) == self.most else np.uint64(2**64 - 1)
        chosen = np.flatnonzero(keys <= limit)
        if len(chosen) > self.most:
            chosen = np.sort(chosen[np.argpartition(keys[chosen], self.most)[: self.most]])
        return chosen

    def take(self, keys: NDArray[np.uint64], values: Tensor) -> None:
        every = np.concatenate([self.keys, keys])
        order = np.argsort(every, kind="stable")[: self.most]
        self.keys = every[order]
        self.values = torch.cat([self.values, values])[torch.from_numpy(order)]

    def quantile(self, level: float) -> Tensor:
        return torch.quantile(self.values, level, dim=0)  # (neurons,)


class _Best:
    """One layer's share of the exemplars."""

    def __init__(self, k: int, neurons: int, samples: int, classes: int = 0) -> None:
        self.k = k
        self.values = torch.full((k, neurons), -torch.inf)  # pooled values, best first; -inf where fewer inputs were seen
        self.index = torch.full((k, neurons), -1, dtype=torch.int64)  # positions of the inputs, -1 likewise
        self.low, self.high = torch.full((neurons,), torch.inf), torch.full((neurons,), -torch.inf)  # range over all places
        self.sums = torch.zeros(classes, neurons, dtype=torch.float64)  # of pooled values
        self.squares = torch.zeros(neurons, dtype=torch.float64)  # of pooled values, summed
        self.places = _Sample(samples, neurons)  # of map values
        self.inputs = _Sample(min(samples, INPUTS), neurons)  # of pooled values

    def rank(self, values: Tensor, index: Tensor) -> None:
        """Take in pooled values (n, neurons) of inputs (n, neurons); of equal values the earlier input counts first."""
        every, whose = torch.cat([self.values, values]), torch.cat([self.index, index])
        by_place = whose.argsort(dim=0)
        every, whose = every.gather(0, by_place), whose.gather(0, by_place)
        order = every.argsort(dim=0, descending=True, stable=True)[: self.k]
        self.values, self.index = every.gather(0, order), whose.gather(0, order)


@dataclass(eq=False)
class Exemplars:
    """A consumer of traces: feed it the inputs in order, `start` being the position of the first.

    layers: those to be watched. labels: of all inputs by position, for sums per class. k: exemplars per neuron.
    """

    layers: tuple[Layer, ...]
    k: int = K
    quantile: float = QUANTILE
    samples: int = SAMPLES
    start: int = 0
    labels: NDArray[np.int64] | None = None
    classes: int = 0
    pool: Literal["max", "mean"] = "max"  # an input's value out of its map's

    def __post_init__(self) -> None:
        checks.count("k", self.k, f"{K} is usual")
        checks.number("quantile", self.quantile, f"{QUANTILE} is usual", above=0, below=1)
        if self.labels is None:
            self.classes = 0
        self.want = Want(layers=globs(self.layers), keep="map")
        self.samples = _bounded(self.samples, sum(layer.neurons() for layer in self.layers))
        self.best = {layer.name: _Best(self.k, layer.neurons(), self.samples, self.classes) for layer in self.layers}
        self.counts = np.zeros(self.classes, dtype=np.int64)
        self.seen = 0
        self.nonfinite = 0

    # -- accumulating

    def update(self, trace: Trace) -> None:
        n = len(trace.logits)
        first = self.start + self.seen
        groups = None if self.labels is None else torch.from_numpy(self.labels[first : first + n])
        if groups is not None:
            self.counts += np.bincount(groups.numpy(), minlength=self.classes)
        keys: dict[int, NDArray[np.uint64]] = {}
        for layer in self.layers:
            here = maps(layer, trace[self.want][layer.name].detach())  # (n, neurons, places)
            if not bool(torch.isfinite(here).all()):
                self.nonfinite += int((~torch.isfinite(here)).any(dim=(1, 2)).sum())
                here = here.nan_to_num(nan=-torch.inf, posinf=torch.finfo(here.dtype).max)
            size = here.shape[2]
            if size not in keys:
                keys[size] = _hashes(first, n, size)
            self._take(self.best[layer.name], here.float(), first, groups, keys[size])
        self.seen += n

    def _take(self, best: _Best, here: Tensor, first: int, groups: Tensor | None, keys: NDArray[np.uint64]) -> None:
        low, high = here.aminmax(dim=2)  # (n, neurons)
        pooled = (here.mean(dim=2) if self.pool == "mean" else high).cpu()
        index = torch.arange(first, first + len(here)).unsqueeze(1).expand_as(pooled)
        best.rank(pooled, index)
        best.low = torch.minimum(best.low, low.amin(dim=0).cpu())
        best.high = torch.maximum(best.high, high.amax(dim=0).cpu())
        if groups is not None:
            best.sums.index_add_(0, groups, pooled.double())
            best.squares += pooled.double().square().sum(dim=0)
        size = here.shape[2]
        which = torch.from_numpy(chosen := best.places.few(keys))
        best.places.take(keys[chosen], here[which // size, :, which % size].cpu())
        ones = _hashes(first, len(here), 1)
        best.inputs.take(ones[chosen := best.inputs.few(ones)], pooled[torch.from_numpy(chosen)])

    def fresh(self, start: int = 0) -> Exemplars:
        """An empty one for inputs that come so many after those this one has seen."""
        return replace(self, start=self.start + self.seen + start)

    def merge(self, other: Exemplars) -> None:
        """Take in what another one saw of other inputs of the same data."""
        mine, theirs = ((e.k, e.samples, e.classes, e.pool, [layer.name for layer in e.layers]) for e in (self, other))
        if mine != theirs:
            raise BadInput("conflict", "merge", "exemplars of different layers, k, samples or classes cannot be merged.")
        for name, best in self.best.items():
            from_other = other.best[name]
            best.rank(from_other.values, from_other.index)
            best.low, best.high = torch.minimum(best.low, from_other.low), torch.maximum(best.high, from_other.high)
            best.sums = best.sums + from_other.sums
            best.squares = best.squares + from_other.squares
            best.places.take(from_other.places.keys, from_other.places.values)
            best.inputs.take(from_other.inputs.keys, from_other.inputs.values)
        self.counts = self.counts + other.counts
        self.seen += other.seen
        self.start = min(self.start, other.start)
        self.nonfinite += other.nonfinite

    # -- results

    def top(self, layer: str) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Positions and pooled values of a layer's exemplars, best first: (neurons, k) each; -1 where there are fewer."""
        best = self.best[layer]
        return best.index.T.numpy(), best.values.T.numpy()

    def gamma(self, layer: str) -> Tensor:
        """The quantile of every neuron's map values: (neurons,)."""
        return self.best[layer].places.quantile(self.quantile)

    def dead(self, layer: str) -> NDArray[np.bool_]:
        """Neurons that never changed over all inputs and places (a rectified one: always 0): (neurons,)."""
        best = self.best[layer]
        return (best.high <= best.low).numpy()

    def means(self, layer: str) -> NDArray[np.float64]:
        """Mean pooled value per class above the neuron's floor, the FLOOR quantile of its pooled values, and at least 0:
        (classes, neurons), NaN for a class without inputs."""
        best = self.best[layer]
        with np.errstate(invalid="ignore", divide="ignore"):
            above = best.sums.numpy() / self.counts[:, None] - best.inputs.quantile(FLOOR).double().numpy()
        return np.maximum(above, 0)  # type: ignore[no-any-return]

    def errors(self, layer: str) -> NDArray[np.float64]:
        """The standard error that a class's mean would have if classes did not matter: (classes, neurons)."""
        best, n = self.best[layer], max(1, int(self.counts.sum()))
        variance = best.squares.numpy() / n - (best.sums.numpy().sum(axis=0) / n) ** 2
        return np.sqrt(np.maximum(variance, 0)[None] / np.maximum(self.counts, 1)[:, None])  # type: ignore[no-any-return]

    def state_dict(self) -> dict[str, NDArray[Any]]:
        """Everything that accumulated, as arrays (safetensors takes it as it is)."""
        out: dict[str, NDArray[Any]] = {"seen": np.array([self.seen, self.start, self.nonfinite]), "counts": self.counts}
        for number, best in enumerate(self.best.values()):
            out |= {f"{number}/{name}": np.ascontiguousarray(getattr(best, name).numpy()) for name in TENSORS}
            for name, sample in (("places", best.places), ("inputs", best.inputs)):
                out[f"{number}/{name}"], out[f"{number}/{name}.keys"] = sample.values.numpy(), sample.keys
        return out

    def load(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Take over what `state_dict` of one with equal settings gave."""
        self.seen, self.start, self.nonfinite = (int(v) for v in state["seen"])
        self.counts = np.array(state["counts"])
        for number, best in enumerate(self.best.values()):
            for name in TENSORS:
                setattr(best, name, torch.from_numpy(np.array(state[f"{number}/{name}"])))
            for name, sample in (("places", best.places), ("inputs", best.inputs)):
                sample.values = torch.from_numpy(np.array(state[f"{number}/{name}"]))
                sample.keys = np.array(state[f"{number}/{name}.keys"])


def _hashes(first: int, n: int, size: int) -> NDArray[np.uint64]:
    """A number per (input, place) that looks random and depends on nothing else: (n * size,)."""
    inputs = np.arange(first, first + n, dtype=np.uint64)[:, None] << np.uint64(24)
    return hashed(np.asarray(inputs + np.arange(size, dtype=np.uint64), dtype=np.uint64)).ravel()


# -- where an exemplar excites its neuron


@dataclass(frozen=True, eq=False)
class _Regions:
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


def plane_of(dtype: Any, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The sides over which maps of such inputs lie: those of an image, of audio those of its spectrogram."""
    return spectrogram_size(shape[-1]) if is_audio(dtype, shape) else shape[1:]


def enlarge(flat: Tensor, sides: tuple[int, ...], image: tuple[int, ...]) -> Tensor:
    """Maps (n, neurons, places), whose places have these sides, in image size: (n, neurons, *image), bilinear between places."""
    mode = {1: "linear", 2: "bilinear", 3: "trilinear"}.get(len(sides))
    if mode is None or len(sides) != len(image):
        return flat.amax(dim=2).view(*flat.shape[:2], *(1 for _ in image)).expand(*flat.shape[:2], *image)
    shaped = flat.reshape(*flat.shape[:2], *sides)
    return shaped if sides == image else functional.interpolate(shaped, image, mode=mode, align_corners=False)


def _cut(values: Tensor, gamma: Tensor) -> Tensor:
    """Masks of maps (n, *image) above `gamma` (n,); one that would be empty keeps its highest place."""
    flat = values.flatten(1)
    mask = flat > gamma.unsqueeze(1)
    empty = ~mask.any(dim=1)
    mask[empty, flat[empty].argmax(dim=1)] = True
    return mask.view(values.shape)


def regions(
    exemplars: Exemplars, target: Target, source: Source, layer: str, neurons: Ints | None = None, *, batch: int = BATCH
) -> Iterator[_Regions]:
    """The exemplars of a layer's neurons with their masks, in groups that fit into memory. A neuron without a map (a unit of
    a dense layer) looks at the whole input."""
    about = next(one for one in exemplars.layers if one.name == layer)
    index, _ = exemplars.top(layer)
    chosen = np.arange(len(index)) if neurons is None else np.asarray(neurons)
    image, audio = plane_of(source.dtype, source.shape), is_audio(source.dtype, source.shape)
    k, mapped = index.shape[1], has_map(about, (1, *image))
    step = max(1, MEMORY // max(1, 4 * k * math.prod(image)))
    together = max(step, MEMORY // (4 * k * math.prod(places(about)))) if mapped else len(chosen)
    for first in range(0, len(chosen), max(1, together)):
        group = chosen[first : first + together]
        maps = _exemplar_maps(target, source, about, index[group], group, batch) if mapped else None
        for start in range(0, len(group), step):
            some = group[start : start + step]
            needed = np.unique(index[some][index[some] >= 0])
            rows = np.searchsorted(needed, np.maximum(index[some], 0))
            masks = np.ones((*rows.shape, *image), dtype=bool)
            if maps is not None:
                gamma = exemplars.gamma(layer)[torch.from_numpy(some)].repeat_interleave(k)
                mode = "bilinear" if len(image) == 2 else "linear"
                small = maps[start : start + step].flatten(0, 1).unsqueeze(1)  # (pairs, 1, *sides)
                wide = functional.interpolate(small, image, mode=mode, align_corners=False)
                masks = _cut(wide.squeeze(1), gamma).view(masks.shape).numpy()
            if audio:
                masks = masks[..., ::-1, :].copy()  # low tones are below in the image and first in the network
            masks[index[some] < 0] = False
            yield _Regions(layer, some, index[some], source.read(needed), np.minimum(rows, len(needed) - 1), masks)


def _exemplar_maps(target: Target, source: Source, layer: Layer, index: Ints, neurons: Ints, batch: int) -> Tensor:
    """(count, k, *sides): a neuron's map of each of its exemplars, which are at `index` (count, k); every input runs once."""
    needed = np.unique(index[index >= 0])
    rows = np.where(index >= 0, np.searchsorted(needed, np.maximum(index, 0)), -1)
    maps = torch.zeros((*index.shape, *places(layer)))
    with Probe(target, Want(layers=layer.name, keep="map")) as probe, torch.inference_mode():
        for at in range(0, len(needed), batch):
            (here,) = probe(target.prepare(source.read(needed[at : at + batch]))).values.values()
            which, rank = np.nonzero((rows >= at) & (rows < at + batch))
            row, neuron = (torch.from_numpy(part).to(here.device) for part in (rows[which, rank] - at, neurons[which]))
            maps[which, rank] = here.movedim(layer.axis, 1)[row, neuron].cpu()
    return maps
