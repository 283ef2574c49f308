"""Suites of runs: what is read, what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.refusals import refused
from torch import nn

import neurotest
from neurotest.campaign import fuzz
from neurotest.data.source import ArraySource
from neurotest.errors import BadInput
from neurotest.evaluate import read_suite
from neurotest.evaluate.stored import evaluate
from neurotest.generate.differential import diff
from neurotest.generate.gradient import AttackResult, attack
from neurotest.report import write_report
from neurotest.runs.store import Run
from neurotest.select import select
from neurotest.target import Target


def target(seed: int = 3) -> Target:
    torch.manual_seed(seed)
    module = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 16, 3))
    return Target(module.eval(), shape=(1, 6, 6), spec="mine")


def attacked(out: Path, eps: float) -> AttackResult:
    x = np.random.default_rng(0).integers(0, 256, (20, 1, 6, 6), dtype=np.uint8)
    return attack(target(), ArraySource(x), "bim:steps=3,step=0.1", eps=eps, out=out)


def test_two_suites_beside_noise_and_beside_each_other(tmp_path: Path) -> None:
    little, much = attacked(tmp_path / "little", 0.02), attacked(tmp_path / "much", 0.3)
    evaluation = evaluate(tmp_path / "little", tmp_path / "much", target=target())
    assert evaluation.judged["much"].defects["faults"] == much.faults > little.faults
    random = evaluation.random["much"]
    assert random is not None
    assert random.defects["faults"] == int(much.control.fault.sum())
    assert random.naturalness["l2"] == pytest.approx(evaluation.judged["much"].naturalness["l2"], rel=0.1)
    assert evaluation.comparison is not None
    assert {p.metric for p in evaluation.comparison.pairs} >= {"fault", "ssim", "linf"}
    content = json.loads(evaluation.save(tmp_path / "e.json").read_text())
    assert content["suites"]["little"]["random"]["outputs"] == 20
    row = next(r for r in evaluation.table() if r["suite"] == "much" and r["metric"] == "success")
    assert row["value"] > row["random"]
    assert neurotest.evaluate(tmp_path / "much", target=target()).comparison is None


def test_what_was_attacked_is_what_is_read(tmp_path: Path) -> None:
    result = attacked(tmp_path / "run", 0.2)
    stored = read_suite(tmp_path / "run", target())
    assert stored.target.spec == "mine"
    assert np.array_equal(stored.suite.read(np.arange(20)), result.x)
    assert np.array_equal(stored.fault, result.fault)
    assert stored.control is not None
    assert np.array_equal(stored.control.read(np.arange(20)), result.control.x)
    assert stored.suite.originals is not None
    assert np.array_equal(stored.suite.originals.read(np.arange(20)), result.seeds)


def test_refusals(tmp_path: Path) -> None:
    attacked(tmp_path / "run", 0.2)
    with refused("missing", "runs"):
        evaluate()
    with refused("duplicate", "runs"):
        evaluate(tmp_path / "run", tmp_path / "run")
    with refused("changed", "target"):
        evaluate(tmp_path / "run", target=target(4))
    with pytest.raises(BadInput):
        evaluate(tmp_path / "none")
    with Run.create(tmp_path / "other", "cover", {}) as run:
        run.finish({})
    with refused("wrong-run"):
        evaluate(tmp_path / "other")
    with Run.create(tmp_path / "open", "attack", {}):
        pass
    with refused("unfinished"):
        evaluate(tmp_path / "open")
    with refused("out-of-range", "limit"):
        evaluate(tmp_path / "run", target=target(), limit=0)
    with refused("unknown-name", "metric"):
        evaluate(tmp_path / "run", target=target(), metrics=["nothing"])
    (tmp_path / "run" / "suite.npz").unlink()
    with refused("not-found", "suite"):
        evaluate(tmp_path / "run", target=target())


def test_a_run_from_elsewhere_runs_no_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    attacked(tmp_path / "run", 0.2)
    monkeypatch.setenv("NEUROTEST_CACHE", str(tmp_path / "another home"))
    with refused("untrusted", "target"):
        evaluate(tmp_path / "run")


def test_a_metric_that_is_asked_for_must_be_had(tmp_path: Path) -> None:
    attacked(tmp_path / "run", 0.2)
    evaluate(tmp_path / "run", target=target(), metrics=["kid", "ssim", "success"])
    with refused("unsuitable", "fid"):  # 20 inputs, 64 features
        evaluate(tmp_path / "run", target=target(), metrics=["fid"])
    with refused("unsuitable", "outside"):
        evaluate(tmp_path / "run", target=target(), metrics=["outside"])
    assert evaluate(tmp_path / "run", target=target()).judged["run"].naturalness["fid"] is None


def test_parts_of_suites_and_their_sizes(tmp_path: Path) -> None:
    whole = attacked(tmp_path / "a", 0.3)
    attacked(tmp_path / "b", 0.02)
    evaluation = evaluate(tmp_path / "a", target=target(), faults_only=True)
    assert evaluation.judged["a"].outputs == whole.faults
    assert evaluation.judged["a"].defects["fault_rate"] == 1
    assert "faults_per_1000_forwards" not in evaluation.judged["a"].defects
    part = evaluate(tmp_path / "a", target=target(), limit=7)
    assert part.judged["a"].outputs == 7
    assert any("drawn at random" in note for note in part.notes)
    uneven = evaluate(tmp_path / "a", tmp_path / "b", target=target(), faults_only=False, limit=20)
    assert uneven.notes == ()
    paired = evaluate(tmp_path / "a", tmp_path / "b", target=target(), paired=True)
    assert paired.comparison is not None
    assert paired.comparison.test == "wilcoxon"


def test_an_evaluation_is_a_run_with_a_page(tmp_path: Path) -> None:
    attacked(tmp_path / "a", 0.3)
    labels = np.tile([0, 1, 2], 20)
    x = np.random.default_rng(1).integers(0, 256, (60, 1, 6, 6), dtype=np.uint8)
    evaluation = evaluate(tmp_path / "a", target=target(), classes=ArraySource(x, labels), out=tmp_path / "judged")
    assert evaluation.run == tmp_path / "judged"
    assert f"a: {evaluation.judged['a'].defects['faults']} faults in" in evaluation._repr_html_()
    assert evaluation.to_dict()["suites"]["a"]["class_bias"]["per_class"] == 100
    page = write_report(tmp_path / "judged").read_text()
    assert page.count("<svg") == 2
    assert "taken for" in page
    assert "coverage of their own inputs" in page
    with refused("exists", "run"):
        evaluate(tmp_path / "a", target=target(), out=tmp_path / "judged")


def test_a_campaign(tmp_path: Path) -> None:
    x = np.random.default_rng(0).integers(0, 256, (20, 1, 6, 6), dtype=np.uint8)
    campaign = fuzz(target(), ArraySource(x), "random", oracle="metamorphic", forwards=400, keep=1, out=tmp_path / "run")
    assert campaign.faults > 0
    stored = read_suite(tmp_path / "run", target())
    assert len(stored.suite) == campaign.to_dict()["outputs"]
    evaluation = evaluate(tmp_path / "run", target=target())
    assert evaluation.judged["run"].defects["faults"] == campaign.faults
    assert evaluation.judged["run"].defects["families"] == campaign.to_dict()["families"]
    assert evaluation.judged["run"].defects["roots"] == campaign.to_dict()["roots"]
    guided = fuzz(target(), ArraySource(x), "nc:0.5", oracle="metamorphic", forwards=400, out=tmp_path / "guided")
    beside = evaluate(tmp_path / "guided", target=target())
    row = next(r for r in beside.table() if r["metric"] == "faults" and r["part"] == "defects")
    assert row["random"] == guided.to_dict()["random"]["faults"]


def test_a_campaign_on_fractions_comes_out_again(tmp_path: Path) -> None:
    """No file rounds them: a mutant that is made again in another batch has to be the same to the last bit."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 50))
    own = Target(module.eval(), shape=(3, 32, 32), spec="mine")
    x = np.random.default_rng(0).random((40, 3, 32, 32), dtype=np.float32)
    labels = own.logits(torch.from_numpy(x)).argmax(1).numpy()
    result = fuzz(own, ArraySource(x, labels), forwards=1000, out=tmp_path / "run")
    stored = read_suite(tmp_path / "run", own)
    assert len(stored.suite) == result.tally.outputs > 100


def test_a_selection(tmp_path: Path) -> None:
    x = np.random.default_rng(0).integers(0, 256, (60, 1, 6, 6), dtype=np.uint8)
    network = target()
    labels = network.logits(network.prepare(x)).argmax(1).numpy()
    labels[::3] = (labels[::3] + 1) % 3  # a third of the pool is wrong
    select(network, ArraySource(x, labels), "deepgini", 12, out=tmp_path / "run")
    evaluation = evaluate(tmp_path / "run", target=target())
    one = evaluation.judged["run"]
    assert one.outputs == 12
    assert one.defects["originally_correct"] is None
    assert one.naturalness["kid"] is None
    assert "something natural" in one.refused["kid"]
    row = next(r for r in evaluation.table() if r["metric"] == "fault_rate")
    assert row["random"] == pytest.approx(1 / 3)
    kept = evaluate(tmp_path / "run", target=target(), train=ArraySource(np.random.default_rng(5).integers(
        0, 256, (120, 1, 6, 6), dtype=np.uint8)))  # fmt: skip
    assert kept.judged["run"].reference == "the training data"
    assert kept.judged["run"].naturalness["kid"] is not None


def test_a_differential_suite_is_judged_on_one_of_its_targets(tmp_path: Path) -> None:
    x = np.random.default_rng(0).integers(0, 256, (30, 1, 6, 6), dtype=np.uint8)
    first, second = target(3), target(4)
    diff([first, second], ArraySource(x), "deepxplore", steps=5, out=tmp_path / "run")
    left, right = (evaluate(tmp_path / "run", target=target(seed)) for seed in (3, 4))
    assert left.judged["run"].fingerprint != right.judged["run"].fingerprint
    assert any("driving 2 targets apart" in note for note in left.notes)
    with refused("changed", "target"):
        evaluate(tmp_path / "run", target=target(5))


def test_suites_of_two_targets_are_not_compared(tmp_path: Path) -> None:
    attacked(tmp_path / "a", 0.2)
    x = np.random.default_rng(0).integers(0, 256, (20, 1, 6, 6), dtype=np.uint8)
    attack(target(9), ArraySource(x), "bim:steps=1", out=tmp_path / "b")
    with refused("changed", "target"):
        evaluate(tmp_path / "a", tmp_path / "b", target=target())
