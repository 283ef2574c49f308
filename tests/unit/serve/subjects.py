"""A stranger's small network, a pool of 60 pictures nobody has labelled, an adaptive selection of it, and a small campaign."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

import neurotest
from neurotest.data.source import ArraySource
from neurotest.select import select

MODEL = """
import torch
from torch import nn

def build():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, CLASSES)).eval()
"""
POOL = 60
HOLDER, OTHER = "0123456789abcdef", "fedcba9876543210"
_made: dict[tuple[str, str], Path] = {}  # once per process


def write_project(folder: Path, classes: int = 4) -> None:
    (folder / "model.py").write_text(MODEL.replace("CLASSES", str(classes)))
    x = np.random.default_rng(0).integers(0, 256, (POOL, 1, 8, 8), dtype=np.uint8)
    np.savez(folder / "pool.npz", x=x)


def adaptive_run(folder: Path, classes: int = 4, *, fresh: bool = False) -> Path:
    """fresh: its own network and pool; otherwise a copy of one selection, which names those of the first."""
    return _make_run(folder, classes) if fresh else _copied(folder, f"run-{classes}", lambda place: _make_run(place, classes))


def _make_run(folder: Path, classes: int) -> Path:
    write_project(folder, classes)
    target = neurotest.load(f"py:{folder / 'model.py'}:build", size="1x8x8")
    select(target, f"npz:{folder / 'pool.npz'}#x", "adaptive", 6, out=folder / "run")
    return folder / "run"


def _copied(folder: Path, name: str, make: Callable[[Path], Path]) -> Path:
    key = (name, os.environ.get("NEUROTEST_CACHE", ""))  # a run made with another cache counts as made elsewhere
    if key not in _made:
        place = Path(tempfile.mkdtemp(prefix="neurotest-subject-"))
        atexit.register(shutil.rmtree, place, ignore_errors=True)
        _made[key] = make(place)
    first = _made[key]
    shutil.copytree(first, folder / first.name)
    for file in ("model.py", "pool.npz"):
        shutil.copy(first.parent / file, folder)
    return folder / first.name


def campaign(folder: Path, *, fresh: bool = False) -> Path:
    """A fuzzing run of a few batches on the same network; what it says of the seeds is what it should say of their mutants."""
    return _make_campaign(folder) if fresh else _copied(folder, "campaign", _make_campaign)


def _make_campaign(folder: Path) -> Path:
    write_project(folder)
    target = neurotest.load(f"py:{folder / 'model.py'}:build", size="1x8x8")
    x = np.random.default_rng(1).integers(0, 256, (20, 1, 8, 8), dtype=np.uint8)
    neurotest.fuzz(target, ArraySource(x), "random", oracle="metamorphic", forwards=600, batch=64, out=folder / "campaign")
    return folder / "campaign"
