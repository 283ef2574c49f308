"""A small target as a file, seeds, and a finished campaign."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from neurotest.campaign import FuzzResult, fuzz
from neurotest.data.source import ArraySource
from neurotest.target import Target
from neurotest.target.load import load

MODEL = """
import torch
from torch import nn


class Tiny(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv2d(1, 4, 3, padding=1)
        self.relu = nn.ReLU()
        self.fc = nn.Linear(4 * 8 * 8, 3)
        with torch.no_grad():
            out = self(torch.rand(300, 1, 8, 8, generator=torch.Generator().manual_seed(1)) * 0.8)
            self.fc.weight /= out.std(0)[:, None]
            self.fc.bias.copy_((self.fc.bias - out.mean(0)) / out.std(0))

    def forward(self, x):
        return self.fc(self.relu(self.conv(x)).flatten(1))


def build():
    return Tiny()


def other():
    network = Tiny()
    with torch.no_grad():
        network.fc.bias += 1
    return network
"""


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEUROTEST_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def model(tmp_path: Path) -> str:
    file = tmp_path / "model.py"
    file.write_text(MODEL)
    return f"py:{file}:build"


@pytest.fixture
def target(model: str) -> Target:
    return load(model, size="1x8x8")


@pytest.fixture
def seeds(target: Target, tmp_path: Path) -> str:
    x = np.random.default_rng(0).integers(0, 200, (40, 1, 8, 8), dtype=np.uint8)
    with torch.inference_mode():
        labels = target.logits(target.prepare(x)).argmax(1).numpy()
    np.savez(tmp_path / "seeds.npz", x=x, y=labels)
    return f"npz:{tmp_path / 'seeds.npz'}#x,y"


@pytest.fixture
def campaign(target: Target, seeds: str, tmp_path: Path) -> FuzzResult:
    return run(target, seeds, tmp_path / "campaign")


def run(target: Any, seeds: Any, out: Path, **options: Any) -> FuzzResult:
    settings: dict[str, Any] = {"guide": "nlc", "iterations": 80, "batch": 64, "tries": 16, **options}
    return fuzz(target, seeds, out=out, **settings)


def no_labels(seeds: str) -> ArraySource:
    from neurotest.data.spec import data

    source = data(seeds).without_labels()
    assert isinstance(source, ArraySource)
    return source
