"""Executors of every kind; functions that a new process can import."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from neurotest.executor import Executor, Serial
from neurotest.scale.opening import open_executor

HELPERS = """
import os, signal, threading, time
from pathlib import Path
from neurotest.errors import BadInput

def add(shared, task):
    return shared + task

def slow_first(shared, task):
    "The first one waits until the last that may overtake it is done."
    folder, last = shared
    while task == 0 and not Path(folder, str(last)).exists():
        time.sleep(0.01)
    Path(folder, str(task)).touch()
    return task

def refuse(shared, task):
    raise BadInput(f"task {task} is bad input.")

def fail(shared, task):
    return [1][task]

def die_once(folder, task):
    mark = Path(folder) / str(task)
    if task == 2 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return task * task

def die(shared, task):
    if task == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return task

def hang(shared, task):
    if task == 1:
        threading.Event().wait()
    return task

def threads(shared, task):
    import torch
    from threadpoolctl import threadpool_info
    return max([torch.get_num_threads(), *(pool['num_threads'] for pool in threadpool_info())])

def ident(shared, task):
    return os.getpid()
"""
RAY = pytest.param("ray", marks=pytest.mark.ray)
PARALLEL = ["processes", RAY]


@pytest.fixture(scope="session")
def helpers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    folder = tmp_path_factory.mktemp("helpers")
    (folder / "scale_helpers.py").write_text(HELPERS)
    sys.path.insert(0, str(folder))
    before = os.environ.get("PYTHONPATH")  # processes take over sys.path, a Ray that is started here the variable
    os.environ["PYTHONPATH"] = os.pathsep.join([str(folder), *([before] if before else [])])
    try:
        yield importlib.import_module("scale_helpers")
    finally:
        sys.path.remove(str(folder))
        os.environ["PYTHONPATH"] = before or ""


def _executor(kind: str) -> Executor:
    if kind == "serial":
        return Serial()
    if kind == "ray" and importlib.util.find_spec("ray") is None:
        pytest.skip("Ray is not installed: `make test-ray` brings it.")
    return open_executor(2, "local" if kind == "ray" else None)


@pytest.fixture(params=PARALLEL, scope="module")
def parallel(request: pytest.FixtureRequest, helpers: ModuleType) -> Iterator[Executor]:
    """Two workers, of each kind."""
    executor = _executor(request.param)
    yield executor
    executor.close()


@pytest.fixture
def npz(tmp_path: Path) -> Any:
    import numpy as np

    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (40, 1, 8, 8), dtype=np.uint8)
    np.savez(tmp_path / "data.npz", x=x, y=rng.integers(0, 3, 40))
    return tmp_path / "data.npz"
