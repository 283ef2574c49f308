"""What happens around a run: other processes, crashes, full disks, places where nothing can be written."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.refusals import refused

from neurotest.errors import BadInput
from neurotest.runs import Run, schema

Start = Callable[[str], "subprocess.Popen[str]"]


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def set_version(run: Path, number: int) -> None:
    db = sqlite3.connect(run / schema.FILE)
    db.execute(f"PRAGMA user_version={number}")
    db.close()


# other processes

HOLDS_A_RUN = """
import signal
from neurotest.runs import Run
run = Run.open({path!r}, write=True)
print("open", flush=True)
signal.pause()
"""


def test_one_writer_at_a_time(small: Path, python: Start) -> None:
    other = python(HOLDS_A_RUN.format(path=str(small)))
    try:
        assert line(other) == "open"
        with refused("busy"):
            Run.open(small, write=True)
        with Run.open(small) as reader:
            assert reader["state"] == "done"
    finally:
        other.kill()
        other.communicate()
    Run.open(small, write=True).close()


def test_two_writers_in_one_process_are_one_too_many(small: Path) -> None:
    with Run.open(small, write=True), refused("busy"):
        Run.open(small, write=True)
    Run.open(small, write=True).close()


def test_a_refused_run_is_not_left_locked(small: Path) -> None:
    with pytest.raises(BadInput):
        Run.create(small, "select", {})
    set_version(small, 99)
    with pytest.raises(BadInput):
        Run.open(small, write=True)
    set_version(small, len(schema.MIGRATIONS))
    Run.open(small, write=True).close()


WRITES_FOR_EVER = """
import itertools, numpy as np
from neurotest.runs import Run
run = Run.create("run", "select", {})
for step in itertools.count():
    with run.transaction():
        run.add_inputs({"position": step * 50 + i, "content": "x" * 100} for i in range(50))
        run.save_input(step * 50, np.full((1, 8, 8), step % 256, np.uint8))
        run.add_label(step * 50, step)
        run["step"] = step
    print(step, flush=True)
"""


def test_killed_in_the_middle_of_writing_everything_committed_stays(tmp_path: Path, python: Start) -> None:
    writer = python(WRITES_FOR_EVER)
    try:
        for _ in range(15):
            last = line(writer)
    finally:
        writer.send_signal(signal.SIGKILL)
    assert writer.stdout is not None
    rest = writer.stdout.read().split()  # not communicate, which forgets what readline has fetched ahead
    writer.wait()
    committed = int(rest[-1] if rest else last)
    with Run.open(tmp_path / "run") as run:
        kept = run["step"]
        assert committed <= kept <= committed + 1
        assert [row.position for row in run.inputs()] == list(range((kept + 1) * 50))
        assert [row.label for row in run.labels()] == list(range(kept + 1))
        for step in range(kept + 1):
            assert (run.load_input(step * 50) == step % 256).all()
    with Run.open(tmp_path / "run", write=True) as run:
        run["step"] = -1
        assert len(list((run.path / "inputs").iterdir())) == kept + 1
    with Run.open(tmp_path / "run") as run:
        assert run["step"] == -1


FILLS_THE_DISK = """
import resource, sys
from neurotest.errors import BadInput
from neurotest.runs import Run
run = Run.create("run", "select", {})
run.add_inputs([{"position": 0, "content": "first"}])
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, resource.RLIM_INFINITY))
try:
    for step in range(1, 100):
        run.add_inputs({"position": step * 1000 + i, "content": "x" * 100} for i in range(1000))
        kept = step
except BadInput as error:
    print(kept, error)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    run["note"] = "there is room again"
    run.close()
"""


def test_a_full_disk_is_one_sentence_and_earlier_rows_stay(tmp_path: Path, python: Start) -> None:
    out, errors = python(FILLS_THE_DISK).communicate(timeout=120)
    assert errors == ""
    kept, sentence = out.split(" ", 1)
    assert sentence.startswith("cannot write to run/run.sqlite")
    assert "free some space" in sentence
    with Run.open(tmp_path / "run") as run:
        assert len(run.inputs()) == 1 + int(kept) * 1000
        assert run["note"] == "there is room again"


NO_ROOM_FOR_FILES = """
import resource, numpy as np
from neurotest.errors import BadInput
from neurotest.runs import Run
run = Run.create("run", "select", {})
run.add_inputs({"position": i, "content": "x"} for i in range(2))
run.save_input(0, np.zeros((1, 8, 8), np.uint8))
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))
try:
    run.save_input(1, np.random.default_rng(0).random((3, 200, 200), dtype=np.float32))
except BadInput as error:
    print(error)
run.close()
"""


def test_no_room_for_an_input_leaves_no_half_of_it(tmp_path: Path, python: Start) -> None:
    out, errors = python(NO_ROOM_FOR_FILES).communicate(timeout=120)
    assert errors == ""
    assert out.startswith("cannot write run/inputs/picked-000001") or "picked-000001" in out
    with Run.open(tmp_path / "run", write=True) as run:
        assert [row.position for row in run.files()] == [0]
        assert [entry.name for entry in (run.path / "inputs").iterdir()] == ["picked-000000.png"]


def test_no_room_for_a_run_at_all(tmp_path: Path, python: Start) -> None:
    code = (
        "import resource; from neurotest.errors import BadInput; from neurotest.runs import Run\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "try: Run.create('run', 'select', {})\n"
        "except BadInput as error: print(error)\n"
    )
    out, errors = python(code).communicate(timeout=120)
    assert errors == ""
    assert out.startswith("cannot write")
    Run.create(tmp_path / "run", "select", {}).close()


@pytest.fixture
def open_to_all() -> Iterator[Path]:
    """A directory that every user may enter: pytest's own are closed to others."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def test_a_finished_run_can_be_read_where_nothing_can_be_written(small: Path, open_to_all: Path) -> None:
    sent = shutil.copytree(small, open_to_all / "sent")
    for entry in (*sent.rglob("*"), sent):
        entry.chmod(0o555)
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        with Run.open(sent) as run:
            assert len(run.inputs()) == 3
            assert run.load_input(2).shape == (1, 3, 4)
        with refused("not-writable", "lock"):
            Run.open(sent, write=True)
    finally:
        if root:
            os.seteuid(0)
        for entry in (sent, sent / "inputs"):
            entry.chmod(0o755)
