"""neurotest where Python has no fcntl, no handles of folders and no O_NOFOLLOW, as on Windows (see `without_posix.py`)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.waiting import LIMIT

ROOT = Path(__file__).parents[2]
PREFIX = [sys.executable, str(Path(__file__).with_name("without_posix.py"))]
SELECT = ["select", "zoo:fashion-lenet5", "zoo:fashion-mnist/test[:60]", "--method", "deepgini", "--budget", "10", "--json"]
WRITER = """
from neurotest.runs import Run
with Run.open("run", write=True) as run:
    run["note"] = "written"
    print("open", flush=True)
    input()
"""
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(tmp_path: Path) -> Start:
    # Windows writes into a pipe in an encoding of its own, too.
    surroundings = {"PYTHONPATH": str(ROOT / "src"), "NEUROTEST_CACHE": str(tmp_path / "cache"), "PYTHONIOENCODING": "cp1252"}

    def begin(*words: str) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        return subprocess.Popen(
            [*PREFIX, *words], stdin=pipe, stdout=pipe, stderr=pipe, cwd=tmp_path, env={**os.environ, **surroundings},
            text=True, encoding="cp1252",
        )  # fmt: skip

    return begin


def done(process: subprocess.Popen[str], code: int = 0) -> str:
    """What it printed; where it failed, on standard error."""
    printed, errors = process.communicate(timeout=LIMIT)
    assert process.returncode == code, printed + errors
    return printed if code == 0 else errors


def test_the_package_and_its_help_need_no_module_of_posix(start: Start) -> None:
    assert "select" in done(start("--help"))
    modules = done(start("-c", "import neurotest.runs, neurotest.files, sys; print('fcntl' in sys.modules)"))
    assert modules.strip() == "False"


def test_a_run_is_made_reported_and_opened_again(start: Start, tmp_path: Path) -> None:
    result = json.loads(done(start(*SELECT, "--out", "run")))
    assert len(result["indices"]) == 10
    assert "report.html" in done(start("report", "run", "--json"))
    assert (tmp_path / "run" / "report.html").stat().st_size > 10_000
    assert "holds a run already" in done(start(*SELECT, "--out", "run"), code=2)
    assert "deepgini" in done(start("runs", "list", ".")) + done(start("list", "selector"))  # tables, in that encoding
    listed = json.loads(done(start("runs", "list", ".", "--json")))
    assert [run["state"] for run in listed["runs"]] == ["done"]
    done(start("runs", "clean", ".", "--keep", "0", "--yes", "--json"))
    assert not (tmp_path / "run").exists()


def test_one_process_writes_and_a_second_is_refused(start: Start, tmp_path: Path) -> None:
    done(start("-c", "from neurotest.runs import Run; Run.create('run', 'select', {}).close()"))
    first = start("-c", WRITER)
    assert first.stdout is not None
    assert first.stdin is not None
    assert first.stdout.readline().strip() == "open"
    refused = "try: Run.open('run', write=True)\nexcept BadInput as error: print(error)"
    second = done(start("-c", f"from neurotest.runs import Run\nfrom neurotest.errors import BadInput\n{refused}"))
    assert f"being written by another process (process {first.pid})" in second
    assert "running" in done(start("runs", "list", ".", "--json"))
    first.kill()  # the lock dies with its process
    first.communicate()
    again = start("-c", WRITER)
    done_text, errors = again.communicate("\n", timeout=LIMIT)
    assert (again.returncode, done_text.strip()) == (0, "open"), errors
    reading = "from neurotest.runs import Run\nwith Run.open('run') as run: print(run['note'])"
    assert done(start("-c", reading)).strip() == "written"


def test_a_run_that_comes_to_nothing_leaves_nothing(start: Start, tmp_path: Path) -> None:
    done(start("-c", "from neurotest.runs import Run; Run.create('run', 'select', {}).withdraw()"))
    assert not (tmp_path / "run").exists()
