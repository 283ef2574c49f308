"""`neurotest swarm` and `neurotest neurons` as a user types them."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import pytest
from tests import commands
from tests.waiting import until

from neurotest import zoo
from neurotest.errors import BadInput
from neurotest.runs.store import Run

from .conftest import Cli

pytestmark = pytest.mark.skipif(not zoo.find("mnist-lenet1").embedded, reason="the embedded networks were removed")
SEEDS = "zoo:mnist/test[:12]"
FEW = ("--evaluations", 80, "--radius", "0.2", "--threads", 1)


def test_swarm_families_replay_neurons(cli: Cli, tmp_path: Path) -> None:
    swarmed = cli("swarm", "zoo:mnist-lenet1", SEEDS, *FEW, "--out", "run", "--json")
    assert swarmed.code == 0, swarmed.err
    summary = json.loads(swarmed.out)
    assert {"outputs", "faults", "families", "roots", "by_predicted", "forwards", "seconds", "run"} <= summary.keys()
    assert summary["roots"] > summary["controls"]["noise"]["failed"]
    assert len(list((tmp_path / "run" / "faults").glob("fault-*.png"))) == summary["faults"]
    shown = cli("families", "run", "--json")
    assert sum(row["faults"] for row in json.loads(shown.out)["families"]) == summary["faults"]
    assert "fails again" in cli("replay", "run#0").out
    small = cli("shrink", "run", "--json")
    assert small.code == 0, small.err
    assert all(one["l2_after"] <= one["l2_before"] for one in json.loads(small.out)["families"])
    cli("swarm", "zoo:mnist-lenet1", SEEDS, *FEW, "--fitness", "margin", "--controls", "none", "--out", "other")
    joined = cli("merge", "run", "other", "--out", "both", "--json")
    assert joined.code == 0, joined.err
    assert json.loads(joined.out)["faults"] >= summary["faults"]
    causes = cli("neurons", "run", "--top", 3, "--rounds", 4, "--pairs", 5, "--json")
    assert causes.code == 0, causes.err
    content = json.loads(causes.out)
    assert len(content["neurons"]) == 3
    assert {"layer", "index", "value", "low", "high", "seeds", "repaired", "broken"} <= content["neurons"][0].keys()
    again = cli("swarm", "--resume", "run", "--json")  # nothing is left to do
    assert json.loads(again.out)["faults"] == summary["faults"]
    assert cli("swarm", "zoo:mnist-lenet1", SEEDS, "--out", "run").code == 2


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--radius", "0"), "--radius 0"),
        (("--radius", "3"), "beyond the input range"),
        (("--particles", "0"), "--particles 0"),
        (("--layers", "nothere"), "matches no layer"),
        (("--fitness", "luck"), "unknown fitness"),
        (("--preset", "paper"), "no such preset"),
        (("--controls", "cw"), "no such control"),
    ],
)
def test_bad_input_is_one_sentence(cli: Cli, args: tuple[str, ...], message: str) -> None:
    outcome = cli("swarm", "zoo:mnist-lenet1", SEEDS, *args)
    assert outcome.code == 2
    assert message in outcome.err
    assert len(outcome.err.strip().splitlines()) == 1


def test_bad_faulty_training_is_said(cli: Cli) -> None:
    for args, message in (
        (("--pollute", "much"), "--pollute much"),
        (("--pollute", "10%", "--underfit"), "give one of them"),
        (("--class", "3"), "faulty training"),
    ):
        outcome = cli("zoo", "train", "mnist-lenet1", *args)
        assert outcome.code == 2
        assert message in outcome.err


def test_killed_and_resumed_it_ends_where_an_undisturbed_one_does(cli: Cli, tmp_path: Path) -> None:
    asked = [
        "zoo:mnist-lenet1",
        "zoo:mnist/test[:60]",
        "--evaluations",
        "150",
        "--batch",
        "40",
        "--controls",
        "none",
        "--threads",
        "1",
    ]
    whole = json.loads(cli("swarm", *asked, "--out", "whole", "--json", "-q").out)
    with commands.start("swarm", *asked, "--out", "part", "-q", cwd=tmp_path) as process:
        until(lambda: _done(tmp_path / "part"), "a group of seeds in the run", process)
        process.kill()
    assert _done(tmp_path / "part") >= 10  # a group of ten seeds was committed
    again = cli("swarm", "--resume", "part", "--json", "-q")
    assert again.code == 0, again.err
    resumed = json.loads(again.out)
    same = ("faults", "families", "roots", "by_predicted", "forwards", "labels_per_seed")
    assert {key: resumed[key] for key in same} == {key: whole[key] for key in same}


def _done(path: Path) -> int:
    if not (path / "run.sqlite").is_file():
        return 0
    with suppress(BadInput), Run.open(path) as run:
        return int(run["swarm"]["done"]) if "swarm" in run.keys() else 0  # noqa: SIM118 - a run is no dictionary
    return 0
