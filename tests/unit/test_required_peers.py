"""NEUROTEST_PEERS=required: a comparison that is skipped, or left out, fails the run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = Path(__file__).resolve().parents[2] / "conftest.py"
PEERS = ("captum", "cleanlab", "foolbox", "torchmetrics", "dnn_tip", "art", "onnxruntime", "mlflow", "wandb")


def run(folder: Path, bodies: dict[str, str], required: bool) -> tuple[int, str]:
    shutil.copy(CONFTEST, folder / "conftest.py")
    tests = [f"@pytest.mark.peer({name!r})\ndef test_{name}():\n    {body}\n" for name, body in bodies.items()]
    (folder / "test_some.py").write_text("import pytest\n\n" + "\n".join(tests))
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = peer(package): x\n")
    env = {name: value for name, value in os.environ.items() if name != "NEUROTEST_PEERS" and not name.startswith("PYTEST")}
    env |= {"NEUROTEST_PEERS": "required"} if required else {}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:hypothesispytest"],
        cwd=folder, env=env, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


ALL = dict.fromkeys(PEERS, "assert True")
SKIP = "pytest.skip('not here')"


@pytest.mark.parametrize(
    ("bodies", "required", "code", "words"),
    [
        (ALL, True, 0, "captum 1, cleanlab 1"),
        ({**ALL, "art": SKIP}, True, 1, "a skip, although every peer test is required"),
        ({name: body for name, body in ALL.items() if name != "art"}, True, 1, "compared with no test: art"),
        (dict.fromkeys(PEERS, SKIP), True, 1, "9 failed"),
        (dict.fromkeys(PEERS, SKIP), False, 0, "9 skipped"),
    ],
    ids=["all", "one skipped", "one missing", "all skipped", "not required"],
)
def test_required_peers(tmp_path: Path, bodies: dict[str, str], required: bool, code: int, words: str) -> None:
    returncode, output = run(tmp_path, bodies, required)
    assert returncode == code, output
    assert words in output
