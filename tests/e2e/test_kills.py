"""Killed at any moment, every command that writes goes on to the same end; see `kills.py`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from neurotest import zoo
from neurotest.data.spec import data
from neurotest.errors import BadInput

SCRIPT, LOOP = (Path(__file__).with_name(name) for name in ("kills.py", "kill_loop.py"))
SHORT = ("labels", "attack", "score", "select")  # a follow-up of a run, resumable commands, and one that cannot be resumed


@pytest.fixture(autouse=True)
def _subjects() -> None:
    if any(zoo.find(name).weights is None for name in ("mnist-lenet1", "mnist-lenet5")):
        pytest.skip("the weights of mnist-lenet1 or mnist-lenet5 are not here")
    try:
        data("zoo:mnist/test[:1]")
    except BadInput:
        pytest.skip("the embedded MNIST images were removed")


def kill(*options: str) -> dict[str, Any]:
    return run_script(SCRIPT, *options)


def run_script(script: Path, *options: str) -> dict[str, Any]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "0"}
    done = subprocess.run([sys.executable, str(script), *options], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode in (0, 1), done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def test_a_few_kills_leave_nothing_behind() -> None:
    result = kill("--kills", "6", "--seed", "1", "--only", ",".join(SHORT))
    assert result["kills"] >= 6
    assert result["scenarios"].keys() == set(SHORT)
    assert result["wrong"] == []


@pytest.mark.slow
@pytest.mark.parametrize(("form", "kills"), [("csv", "1"), ("label-studio", "3")])
def test_five_rounds_of_labelling_with_every_command_killed(form: str, kills: str) -> None:
    """A stranger's network on photographs; see `kill_loop.py`."""
    result = run_script(LOOP, "--format", form, "--kills", kills)
    assert result["problem"] == ""
    assert result["killed"] >= 6


@pytest.mark.slow
def test_two_hundred_kills_leave_nothing_behind() -> None:
    """Over every command that writes; the number is NEUROTEST_KILLS, if that is set."""
    result = kill("--kills", os.environ.get("NEUROTEST_KILLS", "200"), "--seed", "2")
    assert len(result["scenarios"]) >= 15
    assert result["wrong"] == []
