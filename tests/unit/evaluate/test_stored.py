"""Suites of runs: what is read, what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import neurotest
from neurotest.data.source import ArraySource
from neurotest.errors import BadInput
from neurotest.evaluate.stored import evaluate, read_suite
from neurotest.generate.gradient import AttackResult, attack
from neurotest.runs.store import Run
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
    found = evaluate(tmp_path / "little", tmp_path / "much", target=target())
    assert found.judged["much"].defects["faults"] == much.faults > little.faults
    assert found.random["much"].defects["faults"] == int(much.control.fault.sum())
    assert found.random["much"].naturalness["l2"] == pytest.approx(found.judged["much"].naturalness["l2"], rel=0.1)
    assert found.comparison is not None
    assert {p.metric for p in found.comparison.pairs} >= {"fault", "ssim", "linf"}
    said = json.loads(found.save(tmp_path / "e.json").read_text())
    assert said["suites"]["little"]["random"]["outputs"] == 20
    row = next(r for r in found.table() if r["suite"] == "much" and r["metric"] == "success")
    assert row["value"] > row["random"]
    assert neurotest.evaluate(tmp_path / "much", target=target()).comparison is None


def test_what_was_attacked_is_what_is_read(tmp_path: Path) -> None:
    result = attacked(tmp_path / "run", 0.2)
    network, suite, noise = read_suite(tmp_path / "run", target())
    assert network.spec == "mine"
    assert np.array_equal(suite.read(np.arange(20)), result.x)
    assert np.array_equal(noise.read(np.arange(20)), result.control.x)
    assert suite.originals is not None
    assert np.array_equal(suite.originals.read(np.arange(20)), result.seeds)


def test_refusals(tmp_path: Path) -> None:
    attacked(tmp_path / "run", 0.2)
    with pytest.raises(BadInput, match="at least one run"):
        evaluate()
    with pytest.raises(BadInput, match="given twice"):
        evaluate(tmp_path / "run", tmp_path / "run")
    with pytest.raises(BadInput, match="fingerprint"):
        evaluate(tmp_path / "run", target=target(4))
    with pytest.raises(BadInput):
        evaluate(tmp_path / "none")
    with Run.create(tmp_path / "other", "select", {}) as run:
        run.finish({})
    with pytest.raises(BadInput, match="run of 'select'"):
        evaluate(tmp_path / "other")
    (tmp_path / "run" / "suite.npz").unlink()
    with pytest.raises(BadInput, match="lost its suite"):
        evaluate(tmp_path / "run", target=target())


def test_a_run_from_elsewhere_runs_no_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    attacked(tmp_path / "run", 0.2)
    monkeypatch.setenv("NEUROTEST_CACHE", str(tmp_path / "another home"))
    with pytest.raises(BadInput, match="made elsewhere"):
        evaluate(tmp_path / "run")
