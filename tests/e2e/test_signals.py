"""Ctrl-C, SIGTERM and SIGHUP in every command that works for longer: a sentence, exit 3, and nothing half-made."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.conftest import Cli
from tests.waiting import LIMIT, until

from neurotest import interrupts

SRC = Path(__file__).resolve().parents[2] / "src"
TARGET, DATA = "zoo:mnist-lenet1", "zoo:mnist/test[:40]"
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
RESUMED: dict[str, list[str]] = {
    "fuzz": [TARGET, DATA, "--forwards", "300", "--batch", "32", "--tries", "8", "--no-control"],
    "swarm": [TARGET, DATA, "--limit", "8", "--evaluations", "40", "--controls", "none", "--batch", "16"],
    "attack": [TARGET, DATA, "--attack", "fgsm:0.2", "--batch", "10"],
    "diff": [TARGET, "zoo:mnist-lenet4", "--seeds", DATA, "--steps", "2", "--batch", "10"],
    "illuminate": [TARGET, DATA, "--forwards", "300", "--batch", "16"],
    "robustness": [TARGET, DATA, "--inputs", "6", "--samples", "4", "--batches", "10", "--batch", "2", "--no-attacks"],
}
WHOLE: dict[str, list[str]] = {
    "select": [TARGET, DATA, "--budget", "5", "--batch", "10", "--out", "out"],
    "cover": [TARGET, DATA, "--criteria", "nc", "--batch", "10", "--out", "out"],
    "doctor": [TARGET, DATA],
    "zoo": ["train", "mnist-lenet1", "--underfit", "--embedded", "--images", "2000", "--out", "out"],
}
ON_A_RUN: dict[str, list[str]] = {
    "evaluate": ["run", "--out", "out"],
    "shrink": ["run"],
    "neurons": ["run", "--pairs", "2", "--rounds", "2", "--out", "out"],
    "explain": ["run", "--limit", "5", "--out", "out.json"],
}
SAMPLE = [
    ("attack", signal.SIGTERM),
    ("illuminate", signal.SIGHUP),
    ("select", signal.SIGINT),
    ("robustness", signal.SIGINT),
    ("cover", signal.SIGTERM),
]


def every(*tables: dict[str, list[str]]) -> list[Any]:
    """Commands with signals; a few in the quick suite, the others marked slow."""
    pairs = [(command, number) for table in tables for command in table for number in SIGNALS]
    return [
        pytest.param(*pair, marks=() if pair in SAMPLE else pytest.mark.slow, id=f"{pair[0]}-{pair[1].name}") for pair in pairs
    ]


class Sender:
    """Sends a signal to this process when the command under test reaches a safe point."""

    def __init__(self) -> None:
        self.number, self.left, self.anywhere = 0, 0, False

    def arm(self, number: int, nth: int, *, anywhere: bool = False) -> None:
        """At the nth safe point of deferred work, or of any work."""
        self.number, self.left, self.anywhere = number, nth, anywhere

    def reached(self) -> None:
        if self.left and (self.anywhere or interrupts._state.depth):
            self.left -= 1
            if not self.left:
                os.kill(os.getpid(), self.number)


@pytest.fixture
def sender(monkeypatch: pytest.MonkeyPatch) -> Iterator[Sender]:
    before = {number: signal.signal(number, lambda *_: None) for number in SIGNALS}  # one that comes too late ends no test run
    one, check, requested = Sender(), interrupts.check, interrupts.requested
    monkeypatch.setattr(interrupts, "check", lambda: (one.reached(), check()))
    monkeypatch.setattr(interrupts, "requested", lambda: (one.reached(), requested())[1])
    yield one
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize(("command", "number"), every(RESUMED))
def test_a_run_that_is_stopped_says_how_to_go_on(command: str, number: int, cli: Cli, sender: Sender) -> None:
    sender.arm(number, 2)
    stopped = cli(command, *RESUMED[command], "--out", "run", "-q", "--json")
    assert stopped.code == 3, stopped.err
    assert f"neurotest {command} --resume run" in stopped.err
    assert "--resume run" in json.loads(stopped.out)["error"]
    resumed = cli(command, "--resume", "run", "-q", "--json")
    assert resumed.code == 0, resumed.err
    whole = cli(command, *RESUMED[command], "--out", "whole", "-q", "--json")
    assert faults(resumed.out) == faults(whole.out)


def faults(out: str) -> tuple[Any, ...]:
    content = json.loads(out)
    return content.get("faults", content.get("score")), content["forwards"]


@pytest.mark.parametrize(("command", "number"), every(WHOLE))
def test_what_cannot_be_resumed_leaves_nothing(command: str, number: int, cli: Cli, sender: Sender, tmp_path: Path) -> None:
    sender.arm(number, 2, anywhere=command == "doctor")
    stopped = cli(command, *WHOLE[command])
    assert stopped.code == 3, stopped.err
    assert "kept" in stopped.err
    assert not [file for file in tmp_path.rglob("*") if "cache" not in file.parts and file.suffix != ".checkpoint"]


@pytest.mark.parametrize(("command", "number"), every(ON_A_RUN))
def test_work_on_a_run_leaves_it_as_it_was(command: str, number: int, cli: Cli, sender: Sender, tmp_path: Path) -> None:
    assert cli("fuzz", *RESUMED["fuzz"], "--out", "run", "-q").code == 0
    before = {
        file.relative_to(tmp_path): file.read_bytes() for file in tmp_path.rglob("*") if file.is_file() and file.name != ".lock"
    }
    sender.arm(number, 1, anywhere=True)
    stopped = cli(command, *ON_A_RUN[command])
    assert stopped.code == 3, stopped.err
    assert "nothing was kept" in stopped.err
    assert {f.relative_to(tmp_path): f.read_bytes() for f in tmp_path.rglob("*") if f.is_file() and f.name != ".lock"} == before


@pytest.mark.slow
@pytest.mark.parametrize("number", SIGNALS)
def test_a_study_keeps_its_finished_cells(number: int, cli: Cli, sender: Sender) -> None:
    sender.arm(number, 2)
    stopped = cli("study", "coverage", "--out", "run", "-q")
    assert stopped.code == 3, stopped.err
    assert "neurotest study coverage --resume run" in stopped.err


# -- as processes


def start(tmp_path: Path, *args: object, program: Sequence[str] = ("-m", "neurotest")) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(SRC), "OMP_NUM_THREADS": "1", "NEUROTEST_CACHE": str(tmp_path / "cache")}
    return subprocess.Popen(
        [sys.executable, *program, *map(str, args)], cwd=tmp_path, env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        preexec_fn=lambda: [signal.signal(number, signal.SIG_DFL) for number in SIGNALS],
    )  # fmt: skip


def test_a_process_that_is_told_to_end(tmp_path: Path) -> None:
    process = start(tmp_path, "attack", TARGET, "zoo:mnist/test[:2000]", "--attack", "cw", "--batch", "20", "--out", "run")
    until((tmp_path / "run" / "run.sqlite").exists, "the run", process)
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGHUP)  # a second signal that no person sent changes nothing
    _, err = process.communicate(timeout=LIMIT)
    assert process.returncode == 3, err
    assert "neurotest attack --resume run" in err


@pytest.mark.slow
def test_the_second_ctrl_c_does_not_wait(tmp_path: Path) -> None:
    """Work without a safe point, that would be stopped by itself a day later."""
    patient = ("-c", "from neurotest import interrupts; interrupts.GRACE = 86400; from neurotest.cli.app import main; main()")
    words = ("attack", TARGET, "zoo:mnist/test[:2000]", "--attack", "cw:steps=1000000", "--batch", "2000", "--out", "run", "-q")
    process = start(tmp_path, *words, program=patient)
    until((tmp_path / "run" / "run.sqlite").exists, "the run", process)
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    said = "".join(iter(process.stderr.readline, f"neurotest: {interrupts.WAIT}\n"))
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=LIMIT)
    assert process.returncode == 3, said + err
