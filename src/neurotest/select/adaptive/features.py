"""What adaptive selection learns from: per candidate its logits and 100 numbers that sum up what the network did on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache, cached_property

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

from neurotest import rng
from neurotest.select.adaptive.outputs import MANY, Outputs, class_embedding, shortened
from neurotest.target import Trace, Want

# The inputs of convolutions and dense layers: the image, what each stage makes of it, and the last hidden layer.
WANT = Want(layers="pre_activation", keep="map", inputs=True)
GRID, EARLY = 7, 4096  # maps are averaged to at most GRID x GRID, all earlier layers together to at most about EARLY values
SMALL, TALL = 200, 8  # maps of so few values are averaged by a product; windows of so many rows by sums
COMPONENTS = 40  # of the earlier layers
FEATURES = 100
LINE = ("mean", "turn")
FEW_OF = 8  # times as many directions there must be for few of them to be sought by iteration
BLOCK = 250
SAMPLE = 1000  # candidates from which means, spreads and components are found
Parts = tuple[Tensor, Tensor, Tensor]  # last hidden layer, all earlier ones, statistics of the image; each (n, d)


@dataclass(frozen=True)
class Facts:
    """Everything the learner knows of the pool."""

    features: np.ndarray  # (n, d) float32
    logits: np.ndarray  # (n, classes) float32; of many classes the greatest, and the log-sum of the others
    classes: np.ndarray | None = None  # (n, SHORT) of many classes, whose logits these are
    embedding: np.ndarray | None = None  # (classes + 1, RANK) of many classes, each by a few numbers

    @property
    def outputs(self) -> Outputs:
        return Outputs.of(self.logits, self.classes, self.embedding)

    def only(self, rows: np.ndarray) -> Facts:
        classes = None if self.classes is None else self.classes[rows]
        return Facts(self.features[rows], self.logits[rows], classes, self.embedding)

    def arrays(self) -> dict[str, np.ndarray]:
        """As a file holds it."""
        return {f.name: value for f in fields(self) if (value := getattr(self, f.name)) is not None}

    def __len__(self) -> int:
        return len(self.logits)


@dataclass(frozen=True)
class _Linear:
    """Centre, divide, rotate."""

    mean: Tensor
    turn: Tensor  # (in, out), the division included, or (in,), where nothing is rotated

    def __call__(self, values: Tensor) -> Tensor:
        centred = values - self.mean
        return centred @ self.turn if self.turn.ndim == 2 else centred * self.turn

    def single(self) -> _Single:
        shift = -(self.mean @ self.turn if self.turn.ndim == 2 else self.mean * self.turn)
        return _Single(shift.float(), self.turn.float())


@dataclass(frozen=True)
class _Single:
    """The same in single precision, the centre taken off at the end: values are read once."""

    shift: Tensor
    turn: Tensor

    def __call__(self, values: Tensor) -> Tensor:
        if self.turn.ndim == 2:
            return torch.addmm(self.shift, values, self.turn)
        return torch.addcmul(self.shift, values, self.turn)


def _components(values: Tensor, count: int) -> Tensor:
    """The directions of largest spread of centred values (n, d) -> (d, at most count); signs fixed."""
    n, d = values.shape
    if n < d:
        sizes, kept = _leading(values, count)
        turn = values.T @ kept / sizes.clamp_min(1e-12).sqrt()
    else:
        turn = _leading(values.T, count)[1]
    largest = turn.gather(0, turn.abs().argmax(dim=0, keepdim=True))
    straight: Tensor = turn * torch.where(largest < 0, -1.0, 1.0)
    return straight


def _leading(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The largest eigenvalues of values (d, n) times their transpose, at most count, and their vectors (d, count).

    By numpy, which knows that the product is symmetric, and scipy: few of many vectors take a third of the time of all.
    """
    from scipy.linalg import eigh
    from scipy.sparse.linalg import ArpackError, eigsh

    rows = values.numpy()
    square, size, count = rows @ rows.T, len(rows), min(count, len(rows))
    try:
        if size < FEW_OF * count:
            raise ArpackError(0)
        sizes, vectors = eigsh(square, count, v0=rng.stream("select.basis", 0).standard_normal(size))
    except ArpackError:  # or no spread at all
        sizes, vectors = eigh(square, subset_by_index=(size - count, size - 1))
    return torch.from_numpy(sizes[::-1].copy()), torch.from_numpy(vectors[:, ::-1].copy())


@dataclass(frozen=True)
class Basis:
    """Which FEATURES numbers are kept of what the network does on an input; fitted on a sample of inputs."""

    steps: tuple[_Linear, _Linear, _Linear]  # for the hidden layer, the earlier ones, the image
    last: _Linear
    limit: float
    embedding: np.ndarray | None = None  # of many classes

    @classmethod
    def fit(cls, parts: Parts, logits: Tensor) -> Basis:
        hidden, early, image = parts
        turned = _Linear(early.mean(dim=0), _components(early - early.mean(dim=0), COMPONENTS))
        even = _scaled(turned(early)).turn
        steps = (_scaled(hidden), _Linear(turned.mean, turned.turn * even), _scaled(image))
        whole = torch.cat([step(part) for step, part in zip(steps, parts, strict=True)], dim=1)
        last = _Linear(whole.mean(dim=0), _components(whole - whole.mean(dim=0), FEATURES))
        limit = 10 * float(last(whole).std(dim=0, correction=0).max()) + 1e-9
        return cls(steps, last, limit, class_embedding(logits) if logits.shape[1] > MANY else None)

    @cached_property
    def _single(self) -> tuple[tuple[_Single, ...], _Single]:
        return tuple(step.single() for step in self.steps), self.last.single()

    def __call__(self, parts: Parts) -> Tensor:
        """(n, FEATURES or fewer), limited so that no input is far beyond the sample. As precise as the activations are."""
        steps, last = self._single
        whole = torch.cat([step(part) for step, part in zip(steps, parts, strict=True)], dim=1)
        return last(whole).clamp(-self.limit, self.limit)

    def state(self) -> dict[str, np.ndarray]:
        """As a file holds it."""
        lines = {f"{i}.{name}": getattr(line, name).numpy() for i, line in enumerate((*self.steps, self.last)) for name in LINE}
        return {**lines, "limit": np.array(self.limit), **({} if self.embedding is None else {"embedding": self.embedding})}

    @classmethod
    def read(cls, state: Mapping[str, np.ndarray]) -> Basis:
        hidden, early, image, last = (_Linear(*(torch.from_numpy(state[f"{i}.{name}"]) for name in LINE)) for i in range(4))
        return cls((hidden, early, image), last, float(state["limit"]), state.get("embedding"))


class Gather:
    """Keeps the sample until the basis is fitted, then keeps FEATURES numbers per candidate; with a basis, at once."""

    def __init__(self, n: int, basis: Basis | None = None) -> None:
        self.n, self.seen, self.waiting = n, 0, 0
        self.queue: list[tuple[np.ndarray, Parts]] = []
        self.sample: list[Tensor] = []  # logits, as long as there is no basis
        self.basis = basis
        self.arrays: dict[str, np.ndarray] = {}
        self.latest: Trace | None = None

    def update(self, index: np.ndarray, trace: Trace) -> None:
        if trace is self.latest:  # several methods of one selection share what is gathered
            return
        self.latest = trace
        logits = trace.logits.cpu()
        if logits.shape[1] > MANY:
            values, classes = shortened(logits)
            self._put("classes", index, classes)
            self._put("logits", index, values)
        else:
            self._put("logits", index, logits.float().numpy())
        self.seen += len(index)
        parts = _parts_of(trace)
        if self.basis is not None and not self.waiting and len(index) == BLOCK:
            self._put("features", index, self.basis(parts).numpy())
            return
        self.queue.append((index, parts))
        self.waiting += len(index)
        if self.basis is None:
            self.sample.append(logits)
            if self.seen >= min(SAMPLE, self.n):
                each = zip(*(p for _, p in self.queue), strict=True)
                hidden, early, image = (torch.cat(list(p))[:SAMPLE].double() for p in each)
                self.basis, self.sample = Basis.fit((hidden, early, image), torch.cat(self.sample)[:SAMPLE]), []
        if self.basis is not None and (self.waiting >= 4 * BLOCK or self.seen == self.n):
            self._flush(self.basis, last=self.seen == self.n)

    def _put(self, name: str, index: np.ndarray, rows: np.ndarray) -> None:
        if name not in self.arrays:
            self.arrays[name] = np.empty((self.n, rows.shape[1]), rows.dtype)
        self.arrays[name][index] = rows

    def _flush(self, basis: Basis, last: bool) -> None:
        """Turn what waits into features in blocks of fixed size, so that the batch size changes no digit."""
        index = np.concatenate([i for i, _ in self.queue])
        hidden, early, image = (torch.cat(list(part)) for part in zip(*(p for _, p in self.queue), strict=True))
        ready = len(index) if last else len(index) // BLOCK * BLOCK
        for start in range(0, ready, BLOCK):
            here = slice(start, min(start + BLOCK, ready))
            self._put("features", index[here], basis((hidden[here], early[here], image[here])).numpy())
        self.queue = [(index[ready:], (hidden[ready:].clone(), early[ready:].clone(), image[ready:].clone()))]
        self.waiting = len(index) - ready

    def value(self) -> Facts:
        return Facts(**self.arrays, embedding=None if self.basis is None else self.basis.embedding)


def _parts_of(trace: Trace) -> Parts:
    """What a basis takes of a trace."""
    hidden, early, image = _parts(list(trace[WANT].values()))
    return hidden.cpu().float(), early.cpu().float(), image.cpu().float()


def _scaled(values: Tensor) -> _Linear:
    """Divide by standard deviations; a neuron that is silent in the sample must not be blown up when it speaks."""
    deviations = values.std(dim=0, correction=0)
    return _Linear(values.mean(dim=0), 1 / deviations.clamp_min(1e-3 * float(deviations.max()) + 1e-9))


def _parts(inputs: Sequence[Tensor]) -> Parts:
    """Last hidden layer, all earlier ones, statistics of the image; each (n, d)."""
    *earlier, last = inputs
    earlier = earlier or [last]
    channels = sum(t.shape[1] for t in earlier if t.ndim == 4)
    grid = max(1, min(GRID, int((EARLY / max(channels, 1)) ** 0.5)))
    return _flat(last, 1), torch.cat([_flat(t, grid) for t in earlier], dim=1), _statistics(earlier[0])


def _flat(tensor: Tensor, grid: int) -> Tensor:
    """One row per input: maps averaged to a grid, sequences over their length, vectors as they are."""
    if tensor.ndim == 4:
        return _averaged(tensor, min(grid, tensor.shape[2]), min(grid, tensor.shape[3]))
    if tensor.ndim == 2:
        return tensor
    return tensor.flatten(2).mean(dim=2) if tensor.ndim > 2 else tensor.unsqueeze(1)


def _averaged(maps: Tensor, rows: int, columns: int) -> Tensor:
    """(n, c, h, w) -> (n, c x rows x columns): as `adaptive_avg_pool2d`, by sums or by a product where these are faster."""
    n, _, height, width = maps.shape
    if (height, width) == (rows, columns):
        return maps.flatten(1)
    plain = maps.is_contiguous()
    if not height % rows and not width % columns:
        if plain and height // rows >= TALL:
            bands = maps.view(-1, height // rows, width).mean(dim=1)
            return bands.view(-1, width // columns).mean(dim=1).view(n, -1)
        if plain or maps.is_contiguous(memory_format=torch.channels_last):
            return _added(maps, rows, columns)
    if plain and height * width <= SMALL:
        return (maps.view(-1, height * width) @ _means(height, width, rows, columns).to(maps)).view(n, -1)
    return adaptive_avg_pool2d(maps, (rows, columns)).flatten(1)


def _added(maps: Tensor, rows: int, columns: int) -> Tensor:
    """As `_averaged`, of windows that fill the map: lines are added up first, then what lies side by side in them."""
    n, c, height, width = maps.shape
    down, across = height // rows, width // columns
    if maps.is_contiguous():
        lines = _sum(maps.view(-1, down, width).unbind(1)).view(-1, across)
        return _sum(lines.unbind(1)).div_(down * across).view(n, -1)
    lines = _sum(maps.permute(0, 2, 3, 1).reshape(-1, down, width * c).unbind(1)).view(-1, across, c)
    return _sum(lines.unbind(1)).div_(down * across).view(n, -1, c).transpose(1, 2).reshape(n, -1)


def _sum(parts: Sequence[Tensor]) -> Tensor:
    if len(parts) == 1:
        return parts[0].clone(memory_format=torch.contiguous_format)
    total = parts[0] + parts[1]
    for part in parts[2:]:
        total += part
    return total


@cache
def _means(height: int, width: int, rows: int, columns: int) -> Tensor:
    """(h w, rows columns) by which flat maps are averaged to a grid."""
    down, across = _windows(height, rows), _windows(width, columns)
    return torch.einsum("yi,xj->yxij", down, across).reshape(height * width, rows * columns)


def _windows(length: int, count: int) -> Tensor:
    """(length, count): windows from floor(i length / count) to ceil((i + 1) length / count), each with sum one."""
    place, window = torch.arange(length)[:, None], torch.arange(count)
    inside = (place >= window * length // count) & (place < -(-(window + 1) * length // count))
    return inside.double() / inside.sum(dim=0)


def _statistics(image: Tensor) -> Tensor:
    """Mean, spread, largest, smallest, and how rough it is along and across."""
    flat = image.flatten(1)
    if image.is_contiguous():
        image = flat.view(image.shape)  # of a grey image, which lies in two ways at once, the one that is read faster
    mean = flat.mean(dim=1)
    spread = (flat - mean[:, None]).square_().mean(dim=1).sqrt_()  # `std` takes twenty times as long
    statistics = [mean, spread, flat.amax(dim=1), flat.amin(dim=1)]
    if image.ndim == 4 and min(image.shape[2:]) > 1:
        statistics += [image.diff(dim=dim).abs_().flatten(1).mean(dim=1) for dim in (3, 2)]
    return torch.stack(statistics, dim=1)
