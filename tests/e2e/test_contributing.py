"""CONTRIBUTING's recipe, followed to the letter: a new criterion and a new selector are one file each."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import neurotest

ROOT = Path(__file__).parents[2]
NET = """
import torch
from torch import nn

def build():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)).eval()
"""


def recipe() -> dict[str, str]:
    """The files the recipe names, and what it puts into them."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    files = re.findall(r"As `src/neurotest/([\w/]+\.py)`:\n\n```python\n(.*?)```", text, re.DOTALL)
    assert [path for path, _ in files] == ["coverage/loud.py", "select/lead.py"]
    return dict(files)


def run(path: Path, *words: str, folder: Path) -> str:
    """A command with the package, or packages, found in `path`."""
    done = subprocess.run(
        [sys.executable, *words],
        env={**os.environ, "PYTHONPATH": str(path)},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "net.py").write_text(NET)
    random = np.random.default_rng(0)
    np.savez(tmp_path / "x.npz", x=random.random((40, 6), dtype=np.float32), y=random.integers(0, 3, 40))
    return tmp_path


def use(path: Path, work: Path) -> None:
    """List and run both methods."""
    listed = json.loads(run(path, "-m", "neurotest", "list", "--json", folder=work))
    assert listed["criterion"]["loud"]["summary"].startswith("Share of neurons that some input drives further")
    assert listed["selector"]["lead"]["paper"] == "an example"
    inputs = ("py:net.py:build", "npz:x.npz#x,y", "--json", "-q")
    criteria = ("--criteria", "loud", "--criteria", "loud:100", "--criteria", "nc")
    covered = json.loads(run(path, "-m", "neurotest", "cover", *inputs, *criteria, "--out", "covered", folder=work))["criteria"]
    assert covered["loud"]["canonical"] == "Loud(layers='pre_activation', neuron='channel', level=0.5)"
    assert 0 < covered["loud"]["covered"] <= covered["loud"]["total"] == 11
    assert covered["loud:100"]["covered"] == 0
    methods = ("--method", "lead", "--method", "maxp", "--method", "cam:loud")
    selected = json.loads(run(path, "-m", "neurotest", "select", *inputs, *methods, "--out", "selected", folder=work))["methods"]
    assert selected["lead"]["indices"] == selected["maxp"]["indices"]  # the mean of all probabilities is the same for all inputs
    assert selected["cam:loud"]["scores"][0] >= 1


@pytest.mark.slow
def test_the_recipe_in_a_copy_of_the_package(work: Path) -> None:
    copy = work / "src"
    shutil.copytree(Path(neurotest.__file__).parent, copy / "neurotest")
    for path, content in recipe().items():
        (copy / "neurotest" / path).write_text(content, encoding="utf-8")
    use(copy, work)
    # What holds for every method is tested of these too.
    tests = ("tests/unit/coverage/test_properties.py", "tests/unit/select/test_select.py")
    words = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", f"pythonpath={copy}", "-k", "loud or lead", *tests)
    passed = re.search(r"(\d+) passed", run(copy, *words, folder=ROOT))
    assert passed is not None
    assert int(passed[1]) > 15


def test_the_recipe_in_a_package_of_ones_own(work: Path) -> None:
    """The same files elsewhere, found by entry points."""
    package, about = work / "other" / "your_package", work / "other" / "your_package-1.0.dist-info"
    for folder in (package, about):
        folder.mkdir(parents=True)
    (package / "__init__.py").touch()
    points = []
    for path, content in recipe().items():
        name = Path(path).stem
        (package / f"{name}.py").write_text(content, encoding="utf-8")
        kind = re.search(r'@register\(\s*"(\w+)"', content)
        assert kind is not None
        points.append(f"[neurotest.{kind[1]}]\n{name} = your_package.{name}\n")
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: your_package\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("\n".join(points))
    use(Path(os.pathsep.join([str(work / "other"), str(Path(neurotest.__file__).parents[1])])), work)
