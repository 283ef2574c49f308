"""A new setting of a target takes two edits in two files; after them everything knows it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

ROOT = Path(__file__).parents[3]
FIELD = """
    order: str | None = setting(
        Choice(among=("rgb", "bgr")), "Order of channels that the network takes.", toml="order of channels", part="preprocess"
    )
"""
PATCH = {  # file: (where, what comes before it)
    "settings/target.py": ("    grey: bool | None = setting(", FIELD.removeprefix("\n")),
    "images.py": ('    interpolation: Interpolation = "bilinear"\n', '    order: str = "rgb"\n'),
}
PROGRAM = """
import sys
from neurotest.cli.app import main
if __name__ == "__main__":
    sys.exit(main())
"""


@pytest.fixture
def patched(tmp_path: Path) -> Path:
    """A copy of the sources with `--order`."""
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    for name, (where, added) in PATCH.items():
        file = tmp_path / "src" / "neurotest" / name
        text = file.read_text()
        assert text.count(where) == 1
        file.write_text(text.replace(where, added + where))
    return tmp_path


def test_the_property_test_holds_for_a_new_setting(patched: Path) -> None:
    test = ROOT / "tests" / "unit" / "settings" / "test_target_settings.py"
    command = [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider", str(test)]
    paths = [str(patched / "src"), str(ROOT / "lab" / "src")]
    done = subprocess.run(
        [*command, "-o", f"pythonpath={' '.join(paths)}"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert "test_what_does_not_fit_is_refused_by_name[order]" in done.stdout


@pytest.mark.slow
def test_a_run_remembers_a_new_setting(patched: Path) -> None:
    """From the command line, in processes: the run that is made says it, and a word that is not allowed is refused."""
    (patched / "pictures").mkdir()
    for number in range(3):
        Image.fromarray(np.full((28, 28), number, np.uint8)).save(patched / "pictures" / f"{number}.png")
    (patched / "neurotest").write_text(PROGRAM)
    environment = {**os.environ, "PYTHONPATH": str(patched / "src")}
    words = [sys.executable, "neurotest", "select", "zoo:fashion-lenet5", "dir:pictures", "--method", "deepgini", "--budget", "1"]

    def run(*more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*words, *more], cwd=patched, env=environment, capture_output=True, text=True, check=False)

    done = run("--order", "bgr", "--out", "run", "-q")
    assert done.returncode == 0, done.stderr
    show = "from neurotest import Run; run = Run.open('run'); print(run['config']['description']['order'])"
    stored = subprocess.run(
        [sys.executable, "-c", show], cwd=patched, env=environment, capture_output=True, text=True, check=True
    )
    assert stored.stdout == "bgr\n"
    refused = run("--order", "grb")
    assert refused.returncode == 2
    assert "order='grb': expected rgb or bgr" in refused.stderr
