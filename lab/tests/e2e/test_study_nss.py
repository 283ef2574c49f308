"""The NSS study from the command line: a killed run goes on where it was."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from tests.waiting import until

from neurotest import zoo
from neurotest.errors import BadInput
from neurotest.runs.store import Run

ROOT = Path(__file__).resolve().parents[3]
WORDS = [sys.executable, "-m", "neurotest", "study", "nss", "--only", "fixed/mnist-lenet1", "--json", "--threads", "1"]


def cells(run: Path) -> set[str]:
    with suppress(BadInput), Run.open(run) as stored:  # of a run that is only just being made there are none
        return {f"fixed/mnist-lenet1/{name}" for name in ("shift", "rotation") if f"cell fixed/mnist-lenet1/{name}" in stored}
    return set()


@pytest.mark.slow
def test_a_killed_full_study_resumes_per_cell(tmp_path: Path) -> None:
    if zoo.find("mnist-lenet1").weights is None:
        pytest.skip("the weights of mnist-lenet1 are not here")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(str(ROOT / place) for place in ("src", "lab/src"))}
    run = tmp_path / "run"
    job = subprocess.Popen(
        [*WORDS, "--scale", "full", "--out", str(run)],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    until(lambda: cells(run), "the first cell", job)
    job.send_signal(signal.SIGKILL)
    job.wait()
    assert "fixed/mnist-lenet1/shift" in cells(run)
    again = subprocess.run([*WORDS, "--resume", str(run)], env=environment, capture_output=True, text=True, check=True)
    assert "fixed/mnist-lenet1/shift" not in again.stderr  # kept, not computed again
    assert "fixed/mnist-lenet1/blur" in again.stderr
    result = json.loads(again.stdout)
    mutations = {row["mutation"] for row in result["tables"]["VI: one mutation for all"]}
    assert mutations == {"shift", "rotation", "scale", "shear", "contrast", "brightness", "blur"}
    assert "select/mnist-lenet1/0/nss" in result["missing"]
