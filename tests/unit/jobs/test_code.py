"""Code that a run of ours names is run only while it is the code it was made with, wherever it is resumed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SLOW = pytest.mark.slow  # every process imports torch
SRC = Path(__file__).resolve().parents[3] / "src"
MODEL = """
import pathlib
import torch
from torch import nn
{imports}

pathlib.Path("ran-{mark}").touch()


def build():
    torch.manual_seed(1)
    return nn.Sequential(nn.Flatten(), nn.Linear(4, {classes}))
"""
MAKE = """
import numpy as np, sys
from neurotest.jobs.life import begin
from neurotest.jobs.stored import target_config
from neurotest.target import load
begin("fuzz", sys.argv[2], {{**target_config(load({spec})), "oracle": {oracle}}}).close()
"""
OPEN = """
import sys
from neurotest.errors import BadInput
from neurotest.jobs.stored import stored_target
from neurotest.runs.store import Run
with Run.open(sys.argv[1]) as run:
    try:
        print("opened", stored_target(run, *sys.argv[2:]).spec)
    except BadInput as error:
        print("refused", error)
"""


def python(code: str, folder: Path, *arguments: str) -> str:
    """What a process says that was started in a folder, which stands first on its path as with `python -m neurotest`."""
    environment = {**os.environ, "PYTHONPATH": str(SRC), "NEUROTEST_CACHE": str(folder.parent / "cache")}
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def write(folder: Path, mark: str, imports: str = "", name: str = "model.py", classes: int = 3) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(MODEL.format(mark=mark, imports=imports, classes=classes))


def make(folder: Path, spec: str = "sys.argv[1]", oracle: str = "[]", argument: str = "py:model.py:build") -> Path:
    python(MAKE.format(spec=spec, oracle=oracle), folder, argument, str(folder.parent / "run"))
    for mark in folder.glob("ran-*"):
        mark.unlink()
    return folder.parent / "run"


@pytest.mark.parametrize(
    "spec", [pytest.param("py:model.py:build", marks=SLOW), "py:model:build", pytest.param("py:package.model:build", marks=SLOW)]
)
def test_another_file_of_that_name_is_never_run(tmp_path: Path, spec: str) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for folder, mark in ((ours, "ours"), (theirs, "theirs")):
        write(folder, mark)
        write(folder / "package", mark)
        (folder / "package" / "__init__.py").touch()
    run = make(ours, argument=spec)
    assert python(OPEN, theirs, str(run)).startswith("opened py:")
    moved = tmp_path / "moved run"
    shutil.move(run, moved)  # a run of ours stays ours wherever it is put
    assert python(OPEN, theirs, str(moved)).startswith("opened py:")
    assert not (theirs / "ran-theirs").exists()
    assert (theirs / "ran-ours").exists()


@SLOW
@pytest.mark.parametrize("spec", ["py:model.py:build", "py:model:build"])
def test_a_file_that_has_changed_is_not_run(tmp_path: Path, spec: str) -> None:
    write(tmp_path / "ours", "ours")
    run = make(tmp_path / "ours", argument=spec)
    write(tmp_path / "ours", "changed")
    assert python(OPEN, tmp_path / "ours", str(run)).startswith("refused the code: ")
    assert not list((tmp_path / "ours").glob("ran-*"))
    assert python(OPEN, tmp_path / "ours", str(run), spec).startswith("opened py:")  # named by the user


@SLOW
def test_a_file_beside_it_that_it_imports_is_its_code_too(tmp_path: Path) -> None:
    folder = tmp_path / "ours"
    write(folder, "ours", "import blocks, parts.more")
    (folder / "blocks.py").write_text("SIZE = 3\n")
    (folder / "unused.py").write_text("SIZE = 3\n")
    (folder / "parts").mkdir()
    (folder / "parts" / "more.py").write_text("SIZE = 3\n")
    run = make(folder)
    (folder / "unused.py").write_text("SIZE = 4\n")
    assert python(OPEN, folder, str(run)).startswith("opened")
    (folder / "ran-ours").unlink()
    for name in ("blocks.py", "parts/more.py"):
        before = (folder / name).read_text()
        (folder / name).write_text("open('evil', 'w')\n")
        answer = python(OPEN, folder, str(run))
        assert answer.startswith("refused the code: ")
        assert name in answer
        (folder / name).write_text(before)
    assert not (folder / "evil").exists()
    assert not (folder / "ran-ours").exists()


@SLOW
def test_code_that_an_oracle_names_is_that_of_the_run(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for folder, mark in ((ours, "ours"), (theirs, "theirs")):
        write(folder, mark)
        write(folder, mark, name="other.py")
    run = make(ours, oracle="['differential:py:other.py:build']")
    assert python(OPEN, ours, str(run)).startswith("opened")
    assert python(OPEN, theirs, str(run)).startswith(f"refused {run} names code (py:other.py:build) that is not the file")
    write(ours, "changed", name="other.py")
    assert python(OPEN, ours, str(run)).startswith(f"refused {run} names code (py:other.py:build) that is not the file")
    assert not (theirs / "ran-theirs").exists()
