"""A cache of its own for every test, and a small finished run."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from neurotest.runs import Run

SRC = Path(__file__).resolve().parents[3] / "src"


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    cache = tmp_path / "cache"
    monkeypatch.setenv("NEUROTEST_CACHE", str(cache))
    return cache


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """Three inputs, one ranking, two of them picked and stored, one label: finished."""
    path = tmp_path / "runs" / "small"
    with Run.create(path, "select", {"target": "zoo:tiny", "seed": 0}) as run:
        run.add_inputs({"position": i, "content": f"hash{i}", "label": i, "predicted": 1} for i in range(3))
        run.add_ranking("deepgini", np.array([2, 0, 1]), np.array([0.9, 0.5, -0.25]), 2)
        run.save_inputs([2, 0], np.arange(2 * 12, dtype=np.uint8).reshape(2, 1, 3, 4))
        run.add_label(2, 7, by="ann")
        run.finish({"fdr": 0.5})
    return path


@pytest.fixture
def python(tmp_path: Path) -> Callable[[str], subprocess.Popen[str]]:
    """Start another process that runs this code with our sources."""

    def start(code: str) -> subprocess.Popen[str]:
        paths = os.pathsep.join(filter(None, [str(SRC), os.environ.get("PYTHONPATH", "")]))
        environment = {**os.environ, "PYTHONPATH": paths}
        pipe = subprocess.PIPE
        return subprocess.Popen([sys.executable, "-c", code], stdout=pipe, stderr=pipe, text=True, cwd=tmp_path, env=environment)

    return start
