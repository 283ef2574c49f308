"""Runs stored before a run held the description of its target: they open, and every follow-up works on them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.refusals import refused

from neurotest.campaign import Explanation, explain, families, fuzz, merge, replay, shrink, status, swarm
from neurotest.campaign.neurons import neurons
from neurotest.evaluate import evaluate
from neurotest.report.section import write_report
from neurotest.runs.store import Run

RUNS = Path(__file__).parents[2] / "golden" / "runs"
COMMANDS = ("fuzz", "swarm")


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    shutil.copytree(RUNS, tmp_path / "runs")
    return tmp_path / "runs"


@pytest.fixture(params=COMMANDS)
def run(request: pytest.FixtureRequest, runs: Path) -> Path:
    path: Path = runs / request.param
    return path


def summary(path: Path) -> dict[str, Any]:
    with Run.open(path) as run:
        stored: dict[str, Any] = run["summary"]
        return stored


def test_what_is_kept_is_old(run: Path) -> None:
    with Run.open(run) as opened:
        assert "description" not in opened["config"]
        assert not opened.made_here  # from elsewhere: only its zoo: target may be opened


def test_counts_and_families_are_read(run: Path) -> None:
    before, state, rows = summary(run), status(run), families(run).families
    assert state["state"] == "done"
    assert state["faults"] == before["faults"] > 0
    assert len(rows) == state["families"] == before["families"]
    assert sum(family.faults for family in rows) == before["faults"]


def test_faults_are_replayed_shrunk_and_reported(run: Path) -> None:
    for image in sorted((run / "faults").glob("fault-*.png"))[:5]:
        assert replay(image).fails
    smaller = shrink(run)["families"]
    assert len(smaller) == summary(run)["families"]
    assert all(row["l2_after"] <= row["l2_before"] + 1e-6 for row in smaller if row["operator"].startswith("swarm"))
    assert write_report(run).read_text().count('alt="shrunk"') == len(smaller)


def test_faults_are_explained_by_neurons_and_paths(run: Path) -> None:
    assert len(neurons(run, rounds=2, pairs=2, top=3).neurons) == 3
    first = min((run / "faults").glob("fault-*.png"))
    explanation = explain(run, first.name, train="zoo:mnist/train[:100]", describe="class-profile", critical="conductance:3")
    assert isinstance(explanation, Explanation)
    assert explanation.fault == int(first.stem.removeprefix("fault-"))


def test_both_are_merged_and_judged(runs: Path) -> None:
    before = [summary(runs / name) for name in COMMANDS]
    merged = merge([runs / name for name in COMMANDS], runs / "merged")
    assert merged["faults"] == sum(each["faults"] for each in before)
    assert merged["families"] == sum(each["families"] for each in before)
    judged = evaluate(runs / "swarm", runs / "merged").judged
    assert judged["swarm"].defects["faults"] == before[1]["faults"]
    assert judged["merged"].defects["faults"] == merged["faults"]


def test_a_campaign_goes_on_and_keeps_what_it_had(runs: Path) -> None:
    with Run.open(runs / "fuzz") as opened:
        old = opened.rows("SELECT number, content, chain, file FROM mutant ORDER BY number")
    longer = fuzz(resume=runs / "fuzz", iterations=30)
    assert longer.tally.iterations >= 30
    with Run.open(runs / "fuzz") as opened:
        new = opened.rows("SELECT number, content, chain, file FROM mutant ORDER BY number")
    assert new[: len(old)] == old
    assert len(new) == longer.tally.outputs > len(old)
    with refused("changed", "guide"):
        fuzz(resume=runs / "fuzz", guide="kmnc:10")


def test_a_finished_swarm_has_nothing_left_to_do(runs: Path) -> None:
    before = summary(runs / "swarm")
    again = swarm(resume=runs / "swarm").to_dict()
    assert {name: again[name] for name in before if name != "run"} == {n: v for n, v in before.items() if n != "run"}
