"""A stranger's campaign on two workers: killed, resumed with another number of them, moved, and used with nothing repeated."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from tests import commands
from tests.e2e.stranger import PHOTOGRAPHS
from tests.waiting import until

Cli = Callable[..., Any]
FUZZ = ["fuzz", "py:models.py:cnn", "dir:sizes", *PHOTOGRAPHS, "--forwards", 800, "--batch", 32, "--threads", 1]


def photographs(project: Path, place: Path) -> None:
    """The project's, as a camera leaves them: of several sizes, grey and in colour, PNG and JPEG."""
    shutil.copytree(project, place)
    for number, file in enumerate(sorted((place / "photos").rglob("*.png"))):
        picture = Image.open(file)
        if number % 3:
            picture = picture.resize((40 + number % 7, 36), Image.Resampling.BILINEAR)
        if number % 4 == 1:
            picture = picture.convert("RGB")
        target = (place / "sizes" / file.relative_to(place / "photos")).with_suffix(".jpg" if number % 5 == 2 else ".png")
        target.parent.mkdir(parents=True, exist_ok=True)
        picture.save(target)


def stored(path: Path) -> tuple[list[Any], dict[str, Any]]:
    with closing(sqlite3.connect(f"file:{path / 'run.sqlite'}?mode=ro", uri=True)) as database:
        rows = database.execute("SELECT * FROM mutant ORDER BY number").fetchall()
        counters = json.loads(database.execute("SELECT value FROM meta WHERE key = 'progress'").fetchone()[0])
    return rows, {name: value for name, value in counters.items() if name not in ("seconds", "control")}


def begun(path: Path) -> int:
    """Rounds of faults that a campaign has written so far."""
    try:
        return len({row[1] for row in stored(path)[0]})
    except (sqlite3.Error, TypeError):
        return 0


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def at_work(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc")
def test_a_campaign_on_workers_is_killed_resumed_moved_and_used(
    project: Path, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "stranger"
    photographs(project, place)
    monkeypatch.chdir(place)
    whole = cli(*FUZZ, "--islands", 8, "--out", "whole", "--json", "-q")
    assert whole.code == 0, whole.err
    assert json.loads(whole.out)["islands"] == 8

    head = commands.start(*FUZZ, "--workers", 2, "--out", "run", "-q", cwd=place, stdout=None)
    until(lambda: begun(place / "run") >= 3, "three rounds in the run", head)
    workers = children(head.pid)
    head.kill()
    _, said = head.communicate()
    assert head.returncode == -signal.SIGKILL, said
    assert len(workers) >= 2
    until(lambda: not any(map(at_work, workers)), "the end of the workers: nobody stays behind")
    assert json.loads(cli("status", "run", "--json").out)["runs"][0]["state"] == "unfinished"

    resumed = cli("fuzz", "--resume", "run", "--workers", 3)
    assert resumed.code == 0, resumed.err
    assert "8 islands, 3 workers: --islands 8 gives the same with any number of workers" in resumed.out
    assert stored(place / "run") == stored(place / "whole")
    assert len(os.listdir(place / "run" / "faults")) == len(os.listdir(place / "whole" / "faults"))

    away = tmp_path / "elsewhere" / "campaign"
    away.parent.mkdir()
    shutil.move(place / "run", away)
    monkeypatch.chdir(tmp_path)
    for used in (["families", away, "--json"], ["status", away, "--json"], ["shrink", away, "--json", "-q"], ["report", away]):
        outcome = cli(*used)
        assert outcome.code == 0, (used, outcome.err)
    number = json.loads(cli("families", away, "--json").out)["families"][0]["fault"]
    assert cli("replay", f"{away}#{number}").code == 0
    more = cli("fuzz", "--resume", away, "--forwards", 1000, "--json", "-q")
    assert more.code == 0, more.err
    assert json.loads(more.out)["forwards"] >= 950


def test_options_of_workers_are_checked(project: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    options = ["fuzz", "py:models.py:cnn", "dir:photos", *PHOTOGRAPHS, "--forwards", 100]
    for wrong, says in (
        (["--islands", 0], "--islands 0: expected an integer from 1"),
        (["--workers", 0], "--workers 0: expected"),
    ):
        outcome = cli(*options, *wrong)
        assert outcome.code == 2
        assert says in outcome.err
