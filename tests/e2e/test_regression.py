"""Every command on a network that predicts a quantity: the bend of drawn roads."""

from __future__ import annotations

import json
import re
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import neurotest
from neurotest.cli.app import app
from neurotest.errors import BadInput
from neurotest.runs.store import Run

TARGET, OTHER = "zoo:lanes-dave", "zoo:lanes-pooled"
SEEDS, TRAIN = "zoo:lanes/test[:40]", "zoo:lanes/train[:300]"


def command(*words: str) -> dict[str, Any]:
    result = CliRunner().invoke(app, [*words, "--json"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)  # type: ignore[no-any-return]


def refused(*words: str) -> str:
    """The sentence with which a command refuses; the program prints it and exits with 2."""
    result = CliRunner().invoke(app, [*words])
    assert isinstance(result.exception, BadInput), result.output
    return str(result.exception)


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("regression") / "fuzz"
    words = ("--mutations", "weather", "--oracle", "metamorphic:15%", "--forwards", "400", "--out", str(run))
    assert command("fuzz", TARGET, SEEDS, *words)["faults"] > 0
    return run


def test_doctor_and_cover(tmp_path: Path) -> None:
    assert command("doctor", TARGET, SEEDS)["problems"] == 0
    said = command("cover", TARGET, SEEDS, "--criteria", "nc", "--out", str(tmp_path / "cover"))
    assert said["criteria"]["nc"]["covered"] > 0


def test_a_bound_of_the_oracle_is_kept_and_shown_with_both_answers(campaign: Path) -> None:
    with sqlite3.connect(campaign / "run.sqlite") as base:
        rows = base.execute("SELECT root, answer FROM mutant WHERE oracle = 'metamorphic'").fetchall()
        before = {p: json.loads(extra)["answer"] for p, extra in base.execute("SELECT position, extra FROM input")}
    assert rows
    assert all(abs(answer - before[root]) > 0.3 for root, answer in rows)  # 15 % of a span of 2
    families = command("families", str(campaign))["families"]
    assert all(abs(row["after"] - row["before"]) > 0.3 for row in families)
    page = (campaign / "report.html").read_text()
    assert "moved by more than 0.3" in page
    assert f"<b>{families[0]['after']:.4g}</b>" in page


def test_a_fault_is_replayed_and_shrunk(campaign: Path) -> None:
    first = command("families", str(campaign))["families"][0]
    again = command("replay", f"{campaign}#{first['fault']}")
    assert again["same_values"]
    assert again["fails"]
    assert command("shrink", str(campaign))["families"]


@pytest.mark.parametrize("method", ["pgd:eps=0.03,steps=5", "cw:steps=20,searches=2"])
def test_attacks_move_the_answer_beyond_the_tolerance(tmp_path: Path, method: str) -> None:
    run = tmp_path / "attack"
    said = command("attack", TARGET, SEEDS, "--attack", method, "--tolerance", "0.25", "--out", str(run))
    assert said["quantity"]["tolerance"] == 0.25
    assert said["faults"] > said["random"]["faults"]
    with Run.open(run) as stored:
        assert stored["config"]["description"]["tolerance"] == 0.25
        faults = [row.extra for row in stored.inputs() if row.extra["fault"]]
    assert all(abs(one["after"] - one["before"]) > 0.25 for one in faults)
    page = (run / "report.html").read_text()
    assert "moves by more than 0.25" in page
    assert re.search(rf"{faults[0]['before']:.4g} becomes <b>", page)


def test_attacks_for_classes_are_refused() -> None:
    pytest.importorskip("art")
    assert "use pgd, bim, fgsm or cw" in refused("attack", TARGET, SEEDS, "--attack", "deepfool")


def test_swarm(tmp_path: Path) -> None:
    said = command("swarm", TARGET, "zoo:lanes/test[:6]", "--radius", "0.05", "--out", str(tmp_path / "swarm"))
    assert said["outputs"] >= said["faults"] >= 0
    with sqlite3.connect(tmp_path / "swarm" / "run.sqlite") as base:
        before = {p: json.loads(extra)["answer"] for p, extra in base.execute("SELECT position, extra FROM input")}
        rows = base.execute("SELECT root, answer, oracle FROM mutant").fetchall()
    assert all(oracle == "metamorphic" and abs(answer - before[root]) > 0.2 for root, answer, oracle in rows)


@pytest.mark.parametrize("constraint", ["light", "occlusion", "blackout"])
def test_differences_of_two_networks(tmp_path: Path, constraint: str) -> None:
    run = tmp_path / "diff"
    words = ("--method", f"deepxplore:{constraint}", "--steps", "8", "--out", str(run))
    said = command("diff", TARGET, OTHER, "--seeds", SEEDS, *words)
    assert said["seeds"] + said["disagreed"] + said["set_aside"] == 40
    with Run.open(run) as stored:
        rows = [row.extra for row in stored.inputs()]
    for row in rows:
        assert row["fault"] == (abs(row["said"][0] - row["said"][1]) > 0.2) or row["linf"] == 0


def test_dlfuzz_and_illuminate(tmp_path: Path) -> None:
    said = command("diff", TARGET, "--seeds", "zoo:lanes/test[:10]", "--method", "dlfuzz", "--out", str(tmp_path / "dlfuzz"))
    assert said["faults"] > 0
    words = ("--forwards", "800", "--out", str(tmp_path / "map"))
    assert command("illuminate", TARGET, "zoo:lanes/test[:10]", *words)["archive"] >= 0


def test_selection_has_a_default_and_refuses_the_others_with_what_to_use(tmp_path: Path) -> None:
    said = command("select", TARGET, SEEDS, "--budget", "5", "--out", str(tmp_path / "sel"))
    assert said["method"] == "disagreement"
    assert len(said["indices"]) == 5
    assert "Use disagreement (with --train DATA)" in refused("select", TARGET, SEEDS, "--method", "entropy")
    (tmp_path / "labels.csv").write_text("position,label\n0,0.25\n1,-0.5\n2,0.9\n")
    words = ("--method", "neighbours", "--labels", str(tmp_path / "labels.csv"), "--budget", "5", "--out", str(tmp_path / "two"))
    assert command("select", TARGET, SEEDS, *words)["indices"]
    assert "use disagreement or unsteady" in refused("label", TARGET, SEEDS, "--method", "adaptive")


def test_check_says_how_far_it_is_off(tmp_path: Path) -> None:
    words = ("--train", TRAIN, "--out", str(tmp_path / "check"))
    only = [word for name in ("accuracy", "first", "slices", "attacks") for word in ("--only", name)]
    said = command("check", TARGET, "zoo:lanes/test[:200]", *words, *only)
    accuracy = said["examinations"]["accuracy"]
    assert accuracy["error"] < 0.2 < accuracy["error_of_median"]
    assert accuracy["tolerance"] == 0.2
    assert said["examinations"]["first"]["budget"] == 10


def test_truths_that_have_nothing_to_do_with_the_inputs_are_an_alarm(tmp_path: Path) -> None:
    data = neurotest.data("zoo:lanes/test[:200]")
    shuffled = np.random.default_rng(0).permutation(data.quantities)
    result = neurotest.check(TARGET, (data.read(np.arange(200)), shuffled), only=["accuracy"], out=False)
    assert any("no better than always answering with the median" in finding.sentence for finding in result.findings)


def test_gate_counts_by_the_tolerance(tmp_path: Path) -> None:
    words = ("--out", str(tmp_path / "gate"))
    said = command("gate", TARGET, OTHER, "zoo:lanes/test[:200]", "--max-loss", "0.5", "--class-loss", "1", *words)
    assert said["accuracy"]["old"] > 0.9  # by bins it would be a third


def test_robustness(tmp_path: Path) -> None:
    words = ("--method", "clever:samples=16,pool=4", "--inputs", "3", "--out", str(tmp_path / "rob"))
    said = command("robustness", TARGET, SEEDS, *words)
    assert 0 < said["score"] < said["upper"]
    assert "leave it out" in refused("robustness", TARGET, SEEDS, "--towards", "0.04 .. 0.12", "--inputs", "2")


def test_describe_explain_evaluate(tmp_path: Path, campaign: Path) -> None:
    assert command("describe", TARGET, "zoo:lanes/test[:30]", "--out", str(tmp_path / "names"))
    fault = command("families", str(campaign))["families"][0]["fault"]
    assert command("explain", str(campaign), str(fault))
    assert command("evaluate", str(campaign), "--out", str(tmp_path / "judged"))


def test_suspects_are_refused() -> None:
    assert "what the training data contradict" in refused("suspects", TARGET, SEEDS)


def test_repair_lowers_the_error_on_changed_roads(tmp_path: Path, campaign: Path) -> None:
    few = ("--protocol", "default:epochs=2", "--control", "schedule", "--attack", "fgsm", "--repeats", "1")
    words = ("--train", "zoo:lanes/train[:300]", "--holdout", "zoo:lanes/test[500:600]", "--out", str(tmp_path / "repair"))
    result = command("repair", TARGET, str(campaign), *words, *few)
    assert result["plan"]["faults"]["learn"] > 0
    assert result["sets"]["mutated"]["after"] > result["sets"]["mutated"]["before"]  # within the tolerance
    repaired, data = neurotest.load(f"run:{tmp_path / 'repair'}"), neurotest.data("zoo:lanes/test[500:600]")
    assert repaired.tolerance == 0.2
    assert repaired.bins is not None
    assert data.quantities is not None
    x = repaired.prepare(data.read(np.arange(100)))
    with torch.inference_mode():
        answers = repaired.bins.values(repaired.logits(x).double()).numpy()
    within = float((np.abs(answers - data.quantities) <= 0.2).mean())
    assert within == pytest.approx(result["sets"]["clean"]["after"], abs=1e-9)
