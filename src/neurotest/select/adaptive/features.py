"""What adaptive selection learns from: per candidate its logits and 100 numbers that sum up what the network did on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

from neurotest.select.scorer import Pool
from neurotest.target import Trace, Want

# The inputs of convolutions and dense layers: the image, what each stage makes of it, and the last hidden layer.
WANT = Want(layers="pre_activation", keep="map", inputs=True)
GRID, EARLY = 7, 4096  # maps are averaged to at most GRID x GRID, all earlier layers together to at most about EARLY values
COMPONENTS = 40  # of the earlier layers
FEATURES = 100
BLOCK = 250
SAMPLE = 1000  # candidates from which means, spreads and components are found


@dataclass(frozen=True)
class Facts:
    """Everything the learner knows of the pool."""

    features: np.ndarray  # (n, d) float32
    logits: np.ndarray  # (n, classes) float32

    def __len__(self) -> int:
        return len(self.logits)


@dataclass(frozen=True)
class _Linear:
    """Centre, divide, rotate, limit."""

    mean: Tensor
    turn: Tensor  # (in, out), the division included; (in,) where nothing is rotated: a matrix of a wide layer would be huge

    def __call__(self, values: Tensor) -> Tensor:
        return (values - self.mean) * self.turn if self.turn.ndim == 1 else (values - self.mean) @ self.turn


def _components(values: Tensor, count: int) -> Tensor:
    """The directions of largest spread of centred values (n, d) -> (d, at most count); signs fixed."""
    n, d = values.shape
    if n < d:
        sizes, left = torch.linalg.eigh(values @ values.T)
        kept = left[:, -min(count, n) :].flip(1)
        turn = values.T @ kept / sizes[-min(count, n) :].flip(0).clamp_min(1e-12).sqrt()
    else:
        turn = torch.linalg.eigh(values.T @ values).eigenvectors[:, -min(count, d) :].flip(1)
    largest = turn.gather(0, turn.abs().argmax(dim=0, keepdim=True))
    straight: Tensor = turn * torch.where(largest < 0, -1.0, 1.0)
    return straight


class Gather:
    """Keeps the sample until the components are found, then keeps FEATURES numbers per candidate."""

    def __init__(self, pool: Pool) -> None:
        n = len(pool)
        self.n, self.seen, self.waiting = n, 0, 0
        self.queue: list[tuple[np.ndarray, list[Tensor]]] = []
        self.steps: list[_Linear] | None = None  # for the hidden layer, the earlier ones, the picture, and all together
        self.limit = 0.0
        self.features = np.empty((0, 0), np.float32)
        self.logits = np.empty((0, 0), np.float32)

    def update(self, index: np.ndarray, trace: Trace) -> None:
        if not len(self.logits):
            self.logits = np.empty((self.n, trace.logits.shape[1]), np.float32)
        self.logits[index] = trace.logits.cpu().numpy()
        parts = [part.cpu().double() for part in _parts(list(trace[WANT].values()))]
        self.queue.append((index, parts))
        self.seen += len(index)
        self.waiting += len(index)
        if self.steps is None and self.seen >= min(SAMPLE, self.n):
            self._learn()
        if self.steps is not None and (self.waiting >= 4 * BLOCK or self.seen == self.n):
            self._flush(last=self.seen == self.n)

    def _flush(self, last: bool) -> None:
        """Turn what waits into features in blocks of fixed size, so that the batch size changes no digit."""
        index = np.concatenate([i for i, _ in self.queue])
        parts = [torch.cat(list(part)) for part in zip(*(p for _, p in self.queue), strict=True)]
        ready = len(index) if last else len(index) // BLOCK * BLOCK
        for start in range(0, ready, BLOCK):
            here = slice(start, min(start + BLOCK, ready))
            self._keep(index[here], [part[here] for part in parts])
        self.queue = [(index[ready:], [part[ready:].clone() for part in parts])]
        self.waiting = len(index) - ready

    def _learn(self) -> None:
        hidden, early, picture = (torch.cat(list(part))[:SAMPLE] for part in zip(*(p for _, p in self.queue), strict=True))
        turned = _Linear(early.mean(dim=0), _components(early - early.mean(dim=0), COMPONENTS))
        even = _scaled(turned(early)).turn
        steps = [_scaled(hidden), _Linear(turned.mean, turned.turn * even), _scaled(picture)]
        whole = torch.cat([step(part) for step, part in zip(steps, (hidden, early, picture), strict=True)], dim=1)
        last = _Linear(whole.mean(dim=0), _components(whole - whole.mean(dim=0), FEATURES))
        self.limit = 10 * float(last(whole).std(dim=0, correction=0).max()) + 1e-9
        self.steps = [*steps, last]

    def _keep(self, index: np.ndarray, parts: list[Tensor]) -> None:
        assert self.steps is not None
        whole = torch.cat([step(part) for step, part in zip(self.steps[:3], parts, strict=True)], dim=1)
        features = self.steps[3](whole).clamp(-self.limit, self.limit)
        if not len(self.features):
            self.features = np.empty((self.n, features.shape[1]), np.float32)
        self.features[index] = features.numpy()

    def value(self) -> Facts:
        return Facts(self.features, self.logits)


def _scaled(values: Tensor) -> _Linear:
    """Divide by standard deviations; a neuron that is silent in the sample must not be blown up when it speaks."""
    deviations = values.std(dim=0, correction=0)
    return _Linear(values.mean(dim=0), 1 / deviations.clamp_min(1e-3 * float(deviations.max()) + 1e-9))


def _parts(inputs: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """Last hidden layer, all earlier ones, statistics of the picture; each (n, d)."""
    *earlier, last = inputs
    earlier = earlier or [last]
    channels = sum(t.shape[1] for t in earlier if t.ndim == 4)
    grid = max(1, min(GRID, int((EARLY / max(channels, 1)) ** 0.5)))
    return _flat(last, 1), torch.cat([_flat(t, grid) for t in earlier], dim=1), _statistics(earlier[0])


def _flat(tensor: Tensor, grid: int) -> Tensor:
    """One row per input: maps averaged to a grid, sequences over their length, vectors as they are."""
    if tensor.ndim == 4:
        return adaptive_avg_pool2d(tensor, (min(grid, tensor.shape[2]), min(grid, tensor.shape[3]))).flatten(1)
    if tensor.ndim == 2:
        return tensor
    return tensor.flatten(2).mean(dim=2) if tensor.ndim > 2 else tensor.unsqueeze(1)


def _statistics(picture: Tensor) -> Tensor:
    """Mean, spread, largest, smallest, and how rough it is along and across."""
    flat = picture.flatten(1)
    statistics = [flat.mean(dim=1), flat.std(dim=1, correction=0), flat.amax(dim=1), flat.amin(dim=1)]
    if picture.ndim == 4 and min(picture.shape[2:]) > 1:
        statistics += [picture.diff(dim=3).abs().mean(dim=(1, 2, 3)), picture.diff(dim=2).abs().mean(dim=(1, 2, 3))]
    return torch.stack(statistics, dim=1)
