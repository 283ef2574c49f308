"""Links, pipes and folders at every place of a run of every kind: nothing waits, leaves the run or comes into it."""

from __future__ import annotations

import os
import re
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fuzz.readers.runs import RUNS

from neurotest.errors import BadInput

PRIVATE = b"the reader's own private key"
KINDS = ("link", "pipe", "link to a folder", "folder", "link to nothing")
LONGEST = 900  # seconds for one command, on a machine that is busy with other work


@pytest.fixture(autouse=True)
def nobody_waits() -> Iterator[None]:
    def late(number: int, frame: object) -> None:
        raise AssertionError("it waits for ever")

    before = signal.signal(signal.SIGALRM, late)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def put(place: Path, kind: str, outside: Path) -> None:
    """Something else in place of a file or folder."""
    shutil.rmtree(place) if place.is_dir() else place.unlink()
    match kind:
        case "link":
            place.symlink_to(outside / place.name)
        case "pipe":
            os.mkfifo(place)
        case "link to a folder":
            place.symlink_to(outside)
        case "folder":
            place.mkdir()
        case _:
            place.symlink_to(outside.parent / "nowhere")


def places(run: Path) -> list[Path]:
    """One of each kind of file: numbers in names do not matter."""
    paths = sorted(path.relative_to(run) for path in run.rglob("*"))
    return list({re.sub(r"[0-9]+", "N", str(path)): path for path in paths}.values())


@pytest.mark.slow
@pytest.mark.parametrize("kind", RUNS)
def test_every_place_of_a_run(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEUROTEST_CACHE", str(tmp_path / "cache"))
    make, commands = RUNS[kind]
    make(tmp_path / "made")
    for path in places(tmp_path / "made"):
        for other in KINDS:
            for command in dict.fromkeys(commands):
                attempt(tmp_path / "work", tmp_path / "made", path, other, command.__name__, command)


def attempt(work: Path, made: Path, path: Path, other: str, name: str, command: object) -> None:
    shutil.rmtree(work, ignore_errors=True)
    outside, run = work / "outside", work / "runs" / "run"
    outside.mkdir(parents=True)
    (outside / path.name).write_bytes(PRIVATE)
    shutil.copytree(made, run)
    put(run / path, other, outside)
    signal.alarm(LONGEST)
    try:
        command(run)  # type: ignore[operator]
    except BadInput:
        pass
    finally:
        signal.alarm(0)
    what = f"{other} at {path}, {name}"
    assert [file.read_bytes() for file in outside.iterdir()] == [PRIVATE], what
    assert not (work / "nowhere").exists(), what
    for file in work.rglob("*"):
        if file.is_file() and not file.is_symlink() and outside not in file.parents:
            assert PRIVATE not in file.read_bytes(), f"{what}: {file}"
