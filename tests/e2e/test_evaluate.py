"""`neurotest evaluate` on runs of several commands, its page, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from neurotest import zoo

from .conftest import Cli

pytestmark = pytest.mark.skipif(not zoo.find("mnist-lenet1").embedded, reason="the embedded networks were removed")
TARGET, SEEDS = "zoo:mnist-lenet1", "zoo:mnist/test[:30]"


def succeed(cli: Cli, *args: object) -> None:
    outcome = cli(*args, "-q")
    assert outcome.code == 0, outcome.err


def test_suites_of_all_kinds_side_by_side(cli: Cli, tmp_path: Path) -> None:
    succeed(cli, "attack", TARGET, SEEDS, "--steps", 4, "--step", "0.05", "--eps", "0.2", "--out", "attacked")
    succeed(cli, "fuzz", TARGET, SEEDS, "--guide", "nc", "--forwards", 300, "--out", "fuzzed")
    succeed(cli, "select", TARGET, "zoo:mnist/nss-pool@1[:300]", "--method", "deepgini", "--budget", "40", "--out", "selected")
    succeed(cli, "diff", TARGET, "zoo:mnist-lenet5", "--seeds", SEEDS, "--out", "apart")
    judged = cli("evaluate", "attacked", "fuzzed", "selected", "apart", "--out", "judged", "--json", "--class-bias",
                 "zoo:mnist/test[:2000]", "--train", "zoo:mnist/train[:300]")  # fmt: skip
    assert judged.code == 0, judged.err
    content = json.loads(judged.out)
    assert list(content["suites"]) == ["attacked", "fuzzed", "selected", "apart"]
    assert {name: one["random"] is not None for name, one in content["suites"].items()} == dict.fromkeys(content["suites"], True)
    assert all(one["naturalness"]["outside"] is not None for one in content["suites"].values())
    assert content["suites"]["fuzzed"]["class_bias"]["classes"]
    assert len(content["comparison"]["pairs"]) % 6 == 0  # every pair of four suites, for each number
    assert any("differ in size" in note for note in content["notes"])
    assert cli("report", "judged").code == 0
    page = (tmp_path / "judged" / "report.html").read_text()
    assert all(name in page for name in ("attacked", "fuzzed", "selected", "apart", "Side by side", "taken for"))
    shown = cli("evaluate", "fuzzed", "--faults-only", "--limit", 5, "--out", "again")
    assert "5 outputs" in shown.out
    assert cli("evaluate", "fuzzed", "--out", "third", "--fail-if", "suites.fuzzed.outputs>3", "-q").code == 1


def test_what_is_refused(cli: Cli, tmp_path: Path) -> None:
    succeed(cli, "attack", TARGET, "zoo:mnist/test[:6]", "--steps", 1, "--out", "six")
    succeed(cli, "attack", "zoo:mnist-lenet4", "zoo:mnist/test[:6]", "--steps", 1, "--out", "other")
    succeed(cli, "cover", TARGET, "zoo:mnist/test[:20]", "--criteria", "nc", "--out", "covered")
    for args, message in (
        (("six", "other"), "one and the same target"),
        (("six", "--metric", "fid"), "FID from 6 inputs"),
        (("six", "--metric", "inception_score"), "inception score of 6 inputs"),
        (("six", "--metric", "nothing"), "--metric nothing"),
        (("six", "--extractor", "zoo:cifar10-resnet20"), "takes inputs of 3x32x32"),
        (("covered",), "makes no suite"),
        (("nothere",), "nothere"),
        (("six", "six"), "given twice"),
        (("six", "--limit", "0"), "--limit 0"),
        (("six", "--train", "zoo:mnist/train[:20]", "--metric", "outside"), "at least 100"),
    ):
        outcome = cli("evaluate", *args, "--out", "judged")
        assert outcome.code == 2, args
        assert message in outcome.err, (args, outcome.err)
        assert len(outcome.err.strip().splitlines()) == 1, outcome.err
        assert not (tmp_path / "judged").exists()


def test_statistics_on_published_suites_that_are_none(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text("a,b\n1,2\n")
    outcome = cli("study", "coverage", "--from-csv", "s.csv", "--out", "run")
    assert outcome.code == 2
    assert "no column 'model'" in outcome.err
    assert cli("study", "nss", "--from-csv", "s.csv").code == 2
