"""Networks with a planted defect, and sound ones, trained in a moment on the embedded images."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from neurotest import data, rng, zoo
from neurotest.data.source import ArraySource, Source
from neurotest.target import Target
from neurotest.zoo.faulty import Faulty, Patch, pollute


def images(spec: str) -> tuple[np.ndarray, np.ndarray]:
    source = data(spec)
    assert source.labels is not None
    return source.read(np.arange(len(source))), source.labels


def trained(x: np.ndarray, y: np.ndarray, *, epochs: int = 6, mean: float = 0.0, std: float = 1.0) -> nn.Module:
    """A LeNet-5 that was shown (x / 255 - mean) / std."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = zoo.find("mnist-lenet5").build()
        pixels, labels = (torch.from_numpy(x).float() / 255 - mean) / std, torch.from_numpy(y)
        optimiser = torch.optim.Adam(module.parameters(), 2e-3)
        module.train()
        for _ in range(epochs):
            for rows in torch.randperm(len(x)).split(64):
                optimiser.zero_grad()
                nn.functional.cross_entropy(module(pixels[rows]), labels[rows]).backward()
                optimiser.step()
    return module.eval()


def target(module: nn.Module, **description: object) -> Target:
    return Target(module, shape=(1, 28, 28), **description)  # type: ignore[arg-type]


def few_images(name: str, number: int, count: int) -> Target:
    """One class was hardly shown."""
    x, y = images(f"zoo:{name}/train")
    rows = np.flatnonzero(y == number)
    left = np.setdiff1d(np.arange(len(y)), rows[count:])
    return target(trained(x[left], y[left]))


def patched(name: str, number: int) -> Target:
    """A tenth of the training images carried a patch, and the label of one class."""
    settings = Faulty(kind="polluted", share=0.1, label=number, specific=True)
    x, y = images(f"zoo:{name}/train")
    return target(trained(*pollute(x, y, Patch.of("mnist", settings, 1), number, settings), epochs=8))


def wrong_labels(spec: str, share: float, seed: int) -> Source:
    """Test data of which a share has another label."""
    x, y = images(spec)
    random = rng.stream("test.check.labels", seed)
    where = random.permutation(len(y))[: round(share * len(y))]
    y = y.copy()
    y[where] = (y[where] + random.integers(1, 10, len(where))) % 10
    return ArraySource(x, y)
