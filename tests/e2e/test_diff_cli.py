"""`neurotest diff` and `neurotest illuminate` as a user types them, and runs that are killed and resumed."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import numpy as np
import pytest
from tests import commands
from tests.waiting import until

from neurotest import zoo

from .conftest import Cli

pytestmark = pytest.mark.skipif(not zoo.find("mnist-lenet1").embedded, reason="the embedded networks were removed")
SEEDS = "zoo:mnist/test[:20]"
PAIR = ("zoo:mnist-lenet1", "zoo:mnist-lenet5")
KEYS = {"outputs", "faults", "families", "roots", "by_predicted", "forwards", "seconds", "run"}


def test_diff(cli: Cli, tmp_path: Path) -> None:
    outcome = cli("diff", *PAIR, "--seeds", SEEDS, "--method", "deepxplore:occlusion", "--out", "run", "--json")
    assert outcome.code == 0, outcome.err
    summary = json.loads(outcome.out)
    assert summary.keys() >= KEYS
    assert summary["targets"] == list(PAIR)
    assert len(list((tmp_path / "run" / "inputs").glob("fault-*.png"))) == summary["faults"] > 0
    shown = cli("diff", "zoo:mnist-lenet1", "--seeds", SEEDS, "--method", "dlfuzz", "--step", 0.05, "--out", "single")
    assert shown.code == 0, shown.err
    assert "random changes of the same size" in shown.out
    judged = cli("evaluate", "run", "--json")
    assert judged.code == 0, judged.err


def test_illuminate(cli: Cli, tmp_path: Path) -> None:
    outcome = cli("illuminate", "zoo:mnist-lenet1", SEEDS, "--forwards", 300, "--out", "run", "--json")
    assert outcome.code == 0, outcome.err
    summary = json.loads(outcome.out)
    assert summary.keys() >= KEYS
    assert summary["cells"]["filled"] > 10
    assert len(list((tmp_path / "run" / "inputs").glob("fault-*.png"))) == summary["archive"]
    shown = cli("illuminate", "zoo:mnist-lenet1", SEEDS, "--forwards", 100, "--out", "small")
    assert "pairs of true and predicted class have a fault" in shown.out
    judged = cli("evaluate", "run", "--json")
    assert judged.code == 0, judged.err
    assert cli("illuminate", "zoo:mnist-lenet1", SEEDS, "--forwards", 100, "-q", "--out", "x", "--fail-if", "faults>1").code == 1


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("diff", "zoo:mnist-lenet1", "--seeds", SEEDS), "two or more"),
        (("diff", *PAIR, "--seeds", SEEDS, "--method", "dlfuzz"), "a single target"),
        (("diff", *PAIR), "--seeds DATA"),
        (("diff", "zoo:mnist-lenet1", "zoo:fashion-lenet1", "--seeds", SEEDS), "different classes"),
        (("diff", *PAIR, "--seeds", SEEDS, "--layers", "nothere"), "matches no layer"),
        (("diff", *PAIR, "--seeds", SEEDS, "--method", "deepxplore:eps=2"), "eps=2"),
        (("illuminate", "zoo:mnist-lenet1", SEEDS, "--forwards", 0), "--forwards 0"),
        (("illuminate", "zoo:mnist-lenet1", SEEDS, "--changes", "glitter"), "expected all"),
        (("illuminate", "--resume", "nowhere"), "nowhere"),
    ],
)
def test_bad_input_is_one_sentence(cli: Cli, args: tuple[str, ...], message: str) -> None:
    outcome = cli(*args)
    assert outcome.code == 2
    assert message in outcome.err
    assert not Path("neurotest-runs").exists()


@pytest.mark.slow
@pytest.mark.parametrize("command", ["attack", "diff", "illuminate"])
def test_killed_and_resumed(cli: Cli, tmp_path: Path, command: str) -> None:
    many = "zoo:mnist/test[:300]"
    args = {
        "attack": ["attack", "zoo:mnist-lenet5", many, "--steps", "20", "--batch", "10"],
        "diff": ["diff", *PAIR, "--seeds", many, "--method", "deepxplore:blackout", "--batch", "10"],
        "illuminate": ["illuminate", "zoo:mnist-lenet5", many, "--forwards", "6000", "--batch", "8"],
    }[command]
    assert cli(*args, "--out", "whole", "-q").code == 0
    going = commands.start(*args, "--out", "part", "-q", cwd=tmp_path)
    until(lambda: list((tmp_path / "part" / "parts").glob("0*.npz")), "a part of the run", going)
    going.send_signal(signal.SIGKILL)
    going.wait()
    assert not (tmp_path / "part" / "suite.npz").exists()
    again = cli(command, "--resume", "part", "-q")
    assert again.code == 0, again.err
    with np.load(tmp_path / "part" / "suite.npz") as one, np.load(tmp_path / "whole" / "suite.npz") as other:
        assert all(np.array_equal(one[name], other[name]) for name in one.files)
