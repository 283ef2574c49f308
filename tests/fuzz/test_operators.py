"""No operator that a `.pt2` may use ends the process, whatever it is given within our limits."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


def fuzz(*arguments: str) -> dict[str, Any]:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.fuzz.operators", *arguments]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.stdout, done.stderr[-3000:]
    outcome: dict[str, Any] = json.loads(done.stdout)
    return outcome


@pytest.mark.slow
def test_no_operator_ends_the_process() -> None:
    """`make fuzz-operators N=1000000` is the same with more; NEUROTEST_FUZZ says how many."""
    calls = int(os.environ.get("NEUROTEST_FUZZ", 100_000))
    outcome = fuzz("--calls", str(calls))
    assert not outcome["deaths"]
    assert sum(outcome[kind] for kind in ("answered", "refused by torch", "refused by neurotest")) == calls
    assert outcome["overloads"] > 600
    assert outcome["answered"] > calls / 4, "the arguments are too wild to reach the kernels"


@pytest.mark.slow
def test_the_calls_find_what_is_known() -> None:
    """Without our limits the same calls end the process."""
    outcome = fuzz("--calls", "6000", "--operators", "2d_aa.default,lstm.input,div.Tensor_mode", "--unbounded")
    assert {name.removeprefix("torch.ops.aten.") for name in outcome["deaths"]} >= {"div.Tensor_mode"}
