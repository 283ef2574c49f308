"""Small networks and traces for the tests of coverage."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from neurotest.data.source import ArraySource
from neurotest.measure.context import Context, Traces
from neurotest.measure.traces import Layout, joined
from neurotest.target import Probe, Profile, Target, Trace, Want


class Small(nn.Module):
    """One chain: convolution, ReLU, pooling, two dense layers."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, padding=1)
        self.act = nn.ReLU()
        self.pool = nn.MaxPool2d(2)
        self.fc1 = nn.Linear(64, 9)
        self.act1 = nn.ReLU()
        self.fc2 = nn.Linear(9, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool(self.act(self.conv(x)))
        out: Tensor = self.fc2(self.act1(self.fc1(x.flatten(1))))
        return out


class Branching(nn.Module):
    """A residual connection and tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv1d(2, 6, 3, padding=1)
        self.act = nn.ReLU()
        self.second = nn.Conv1d(6, 6, 3, padding=1)
        self.act2 = nn.ReLU()
        self.tokens = nn.Linear(6, 5)
        self.act3 = nn.GELU()
        self.head = nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.act(self.first(x))
        x = self.act2(self.second(x) + x)
        out: Tensor = self.head(self.act3(self.tokens(x.transpose(1, 2))).mean(1))
        return out


def small() -> Target:
    torch.manual_seed(3)
    module = Small().eval()
    return balanced(module, module.fc2, (1, 8, 8))


def branching() -> Target:
    torch.manual_seed(4)
    module = Branching().eval()
    return balanced(module, module.head, (2, 10))


def balanced(module: nn.Module, head: nn.Linear, shape: tuple[int, ...]) -> Target:
    """Untrained, but with every class predicted about equally often."""
    with torch.no_grad():
        out = module(torch.from_numpy(images(300, 5, shape)))
        head.weight /= out.std(0)[:, None]
        head.bias.copy_((head.bias - out.mean(0)) / out.std(0))
    return Target(module, shape=shape)


def images(n: int, seed: int, shape: tuple[int, ...] = (1, 8, 8)) -> np.ndarray:
    """Three kinds of pictures with noise, so that classes differ."""
    random = np.random.default_rng(seed)
    kinds = np.random.default_rng(99).random((3, *shape))
    pictures = 0.6 * kinds[random.integers(0, 3, n)] + 0.4 * random.random((n, *shape))
    return pictures.astype(np.float32)


def context(target: Target, n: int = 90, seed: int = 1) -> Context:
    assert target.shape is not None
    x = images(n, seed, target.shape)
    with torch.inference_mode():
        labels = target.logits(torch.from_numpy(x)).argmax(1).numpy()
    return Context(target=target, train=ArraySource(x, labels), batch=32)


def trace(target: Target, x: np.ndarray, want: Want) -> Trace:
    with Probe(target, want) as probe:
        recorded = probe(torch.from_numpy(x))
    return Trace(recorded.logits, {w: dict(v) for w, v in recorded.recorded.items()})


def cut(whole: Trace, index: np.ndarray) -> Trace:
    chosen = torch.from_numpy(np.asarray(index))
    with torch.inference_mode():
        return Trace(whole.logits[chosen], {w: {k: t[chosen] for k, t in v.items()} for w, v in whole.recorded.items()})


WANT = Want()


def trace_of(values: dict[str, list[list[float]]], logits: list[list[float]] | None = None) -> Trace:
    """A trace out of numbers."""
    tensors = {name: torch.tensor(rows, dtype=torch.float32) for name, rows in values.items()}
    n = len(next(iter(tensors.values())))
    return Trace(torch.zeros(n, 2) if logits is None else torch.tensor(logits), {WANT: tensors})


def context_of(train: dict[str, list[list[float]]], predicted: list[int] | None = None) -> Context:
    """A context of training activations alone, without a network."""
    recorded = trace_of(train)
    layout = Layout({name: tensor.shape[1] for name, tensor in recorded[WANT].items()})
    profile = Profile("none", WANT, {})
    profile.update(recorded)
    values = joined(recorded, WANT, layout).values
    classes = np.zeros(len(values), dtype=np.int64) if predicted is None else np.array(predicted)
    return Context(layouts={WANT: layout}, profiles={WANT: profile}, collected={WANT: Traces(values, classes)})
