"""What the tests of the fuzzing loop share: a small network, its seeds, and a fuzzer over them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from neurotest import oracles
from neurotest.data.source import ArraySource
from neurotest.generate.fuzz import Budget, Fuzzer, Mutant, Settings, build_guide, choose_seeds
from neurotest.generate.fuzz.seeds import Seeds
from neurotest.measure.context import Context
from neurotest.target import Target


class Net(nn.Module):
    """Three classes about equally often; counts the inputs it runs."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.act, self.fc = nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Linear(4 * 64, 3)
        with torch.no_grad():
            out = self(torch.from_numpy(np.random.default_rng(1).integers(0, 200, (200, 1, 8, 8))).float() / 255)
            self.fc.weight /= out.std(0)[:, None]
            self.fc.bias.copy_((self.fc.bias - out.mean(0)) / out.std(0))

    def forward(self, x: Tensor) -> Tensor:
        self.inputs = getattr(self, "inputs", 0) + len(x)
        logits: Tensor = self.fc(self.act(self.conv(x)).flatten(1))
        return logits


def images(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 200, (n, 1, 8, 8), dtype=np.uint8)


def predictions(x: np.ndarray) -> np.ndarray:
    with torch.inference_mode():
        return np.asarray(Net().eval()(torch.from_numpy(x).float() / 255).argmax(1).numpy())


def seeds(n: int = 20, x: np.ndarray | None = None) -> Seeds:
    x = images(n) if x is None else x
    target = Target(Net().eval(), shape=(1, 8, 8))
    labels = predictions(x) if x.dtype == np.uint8 else None
    judges = oracles.build_oracles(target, "label" if labels is not None else "metamorphic")
    return choose_seeds(target, ArraySource(x, labels), judges)


def fuzzer(guide: str, budget: Budget, n: int = 20, train: int | None = 10, **options: Any) -> Fuzzer:
    target = Target(Net().eval(), shape=(1, 8, 8))
    source = ArraySource(images(n), predictions(images(n)))
    judges = oracles.build_oracles(target, "label")
    chosen = choose_seeds(target, source, judges)
    context = Context(target=target, train=None if train is None else ArraySource(images(train, 3)))
    return Fuzzer(target, chosen, build_guide(guide).start(context, source), judges, Settings(**options), budget)


def outputs(loop: Fuzzer) -> list[Mutant]:
    with loop:
        return [mutant for batch in loop.run() for mutant in batch]
