"""Fuzzing from the command line: killed, interrupted, out of disk, and explained in plain words."""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from tests import commands
from tests.commands import Command
from tests.waiting import until

SEEDS = "zoo:mnist/test[:60]"
ASKED = ["zoo:mnist-lenet1", SEEDS, "--guide", "nlc", "--batch", "64", "--threads", "1", "--tries", "16"]


def start(tmp_path: Path, *args: object, limit: int | None = None) -> Command:
    return commands.start(*args, cwd=tmp_path, variables={"NEUROTEST_CACHE": str(tmp_path / "cache")}, file_size=limit)


def done(process: Command) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=900)  # on a busy machine, too
    return process.returncode, out, err


def stored(path: Path) -> tuple[list[Any], dict[str, Any]]:
    with sqlite3.connect(path / "run.sqlite") as db:
        mutants = db.execute("SELECT * FROM mutant ORDER BY number").fetchall()
        progress = json.loads(db.execute("SELECT value FROM meta WHERE key = 'progress'").fetchone()[0])
    control = progress.pop("control")
    assert abs(control["forwards"] - progress["forwards"]) <= 128
    return mutants, {key: [progress[key], control[key]] for key in progress if key != "seconds"}


def kill_and_resume(tmp_path: Path, kills: int, batches: int, guide: str) -> None:
    """Killed at random moments, up to so many batches apart: while it starts, between batches and within them."""
    options = [guide if word == "nlc" else word for word in ASKED]
    dice = random.Random(7)
    parts, endless = tmp_path / "parts", [*options, "--iterations", 10**9, "--out", "parts"]  # so that it is killed for certain
    for number in range(kills):
        finished = _batches(parts)
        process = start(tmp_path, "fuzz", *(endless if finished is None else ["--resume", "parts"]), "--json", "-q")
        if finished is not None and number % 5 == 4:  # anywhere, also while it reads the run or repeats batches
            work = dice.uniform(0.5, 4.0)
            until(lambda: _worked(process) >= work, f"{work:.1f} seconds of the processor", process)  # noqa: B023
        else:
            least = (finished or 0) + dice.randint(1, batches)
            until(lambda: (_batches(parts) or 0) >= least, f"{least} batches", process)  # noqa: B023
        process.kill()
        process.communicate()
        assert process.returncode == -signal.SIGKILL, "it ended before it was killed"
    iterations = stored(parts)[1]["iterations"][0] + 50
    code, _, err = done(start(tmp_path, "fuzz", "--resume", "parts", "--iterations", iterations, "--json", "-q"))
    assert code == 0, err
    code, out, err = done(start(tmp_path, "fuzz", *options, "--iterations", iterations, "--out", "whole", "--json", "-q"))
    assert code == 0, err
    assert json.loads(out)["faults"] > 0
    assert stored(parts) == stored(tmp_path / "whole")
    images = sorted(p.name for p in (parts / "faults").iterdir())
    assert images == sorted(p.name for p in (tmp_path / "whole" / "faults").iterdir())


def _worked(process: Command) -> float:
    """Seconds that the processor worked for it: unlike those on the wall, they do not pass while others are at work."""
    words = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def _batches(path: Path) -> int | None:
    """How many were committed; None: there is no campaign yet."""
    try:
        with sqlite3.connect(f"file:{path / 'run.sqlite'}?mode=ro", uri=True) as db:
            row = db.execute("SELECT value FROM meta WHERE key = 'progress'").fetchone()
            return None if row is None else int(json.loads(row[0])["batches"])
    except sqlite3.Error:
        return None


def _fault_before_the_last_batch(path: Path) -> bool:
    """Whether there is a fault of an earlier batch than the last: it has been printed, because batches follow each other."""
    sql = "SELECT count(*) FROM mutant WHERE oracle IS NOT NULL AND batch < (SELECT max(batch) FROM mutant)"
    try:
        with sqlite3.connect(f"file:{path / 'run.sqlite'}?mode=ro", uri=True) as db:
            return bool(db.execute(sql).fetchone()[0])
    except sqlite3.Error:
        return False


@pytest.mark.parametrize("guide", [pytest.param("nlc", marks=pytest.mark.slow), "goals:batch=64"])
def test_killed_and_resumed_nothing_is_lost_or_doubled(guide: str, tmp_path: Path) -> None:
    kill_and_resume(tmp_path, 1, 12, guide)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="asks /proc for the work of a process")
@pytest.mark.parametrize("guide", ["nlc", "goals:batch=64"])
def test_killed_twenty_times(guide: str, tmp_path: Path) -> None:
    kill_and_resume(tmp_path, 20, 20, guide)


def test_ctrl_c_finishes_the_batch_and_says_how_to_resume(tmp_path: Path) -> None:
    process = start(tmp_path, "fuzz", *ASKED, "--seconds", 3600, "--out", "run", "--json")
    until(lambda: _fault_before_the_last_batch(tmp_path / "run"), "a fault that has been printed", process)
    process.send_signal(signal.SIGINT)
    code, out, err = done(process)
    assert code == 3
    assert "neurotest fuzz --resume run" in err
    assert "--resume run" in json.loads(out)["error"]
    assert any(json.loads(line)["event"] == "family" for line in err.splitlines() if line.startswith("{"))
    code, out, _ = done(start(tmp_path, "status", "run", "--json"))
    assert json.loads(out)["runs"][0]["state"] == "unfinished"


def test_a_full_disk_is_told_and_what_was_saved_stays(tmp_path: Path) -> None:
    code, _, err = done(start(tmp_path, "fuzz", *ASKED, "--iterations", 3000, "--out", "run", limit=400_000))
    assert code == 2, err
    assert "space" in err
    code, out, err = done(start(tmp_path, "fuzz", "--resume", "run", "--iterations", 400, "--json", "-q"))
    assert code == 0, err
    assert json.loads(out)["faults"] > 0


def test_the_commands_in_one_process(cli: Any, tmp_path: Path) -> None:
    outcome = cli("fuzz", *ASKED[:-4], "--tries", 16, "--iterations", 60, "--out", "run", "--fail-if", "faults>0")
    assert outcome.code == 1, outcome.err
    assert "fault families" in outcome.out
    assert "random" in outcome.out
    listed = json.loads(cli("families", "run", "--json").out)["families"]
    assert listed
    image = next(one["file"] for one in listed if one["file"])
    assert "fails again" in cli("replay", f"run/{image}").out
    assert cli("shrink", "run", "-q").code == 0
    assert cli("status", "run").code == 0
    assert cli("fuzz", *ASKED[:-4], "--tries", 16, "--iterations", 60, "--out", "again", "--seed", 1, "-q").code == 0
    assert json.loads(cli("merge", "run", "again", "--out", "both", "--json").out)["families"] >= len(listed)
    page = json.loads(cli("report", "run", "--json").out)["report"]
    assert "fault families" in Path(page).read_text().lower()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["fuzz"], "needs TARGET and SEEDS"),
        (["fuzz", "zoo:mnist-lenet1", SEEDS], "budget"),
        (["fuzz", "zoo:mnist-lenet1", SEEDS, "--iterations", "0"], "--iterations 0"),
        (["fuzz", "zoo:mnist-lenet1", SEEDS, "--iterations", "5", "--guide", "kmnc"], "--train"),
        (["fuzz", "zoo:mnist-lenet1", SEEDS, "--iterations", "5", "--guide", "x"], "unknown guide"),
        (["fuzz", "zoo:mnist-lenet1", SEEDS, "--iterations", "5", "--mutations", "x"], "unknown mutation"),
        (["fuzz", "zoo:mnist-lenet1", "zoo:cifar10/test", "--iterations", "5"], "expects"),
        (["fuzz", "zoo:mnist-lenet1", SEEDS, "--outputs", "colours", "--iterations", "5"], "expected logits"),
        (["fuzz", "zoo:mnist-lenet1", SEEDS, "--outputs", "0"], "outputs=0"),
        (["fuzz", "--resume", "nowhere"], "is not a run"),
        (["families", "nowhere"], "is not a run"),
        (["replay", "x.png"], "not a fault of a campaign"),
    ],
)
def test_bad_input(cli: Any, args: list[str], message: str) -> None:
    outcome = cli(*args)
    assert outcome.code == 2
    assert message in outcome.err
