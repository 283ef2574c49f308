"""`neurotest attack` and `neurotest evaluate` as a user types them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from neurotest import zoo

from .conftest import Cli

pytestmark = pytest.mark.skipif(not zoo.find("mnist-lenet1").embedded, reason="the embedded networks were removed")
SEEDS = "zoo:mnist/test[:20]"


def test_attack_and_evaluate(cli: Cli, tmp_path: Path) -> None:
    plain = cli("attack", "zoo:mnist-lenet1", SEEDS, "--steps", 4, "--step", "0.05", "--eps", "0.2", "--out", "plain", "--json")
    assert plain.code == 0, plain.err
    summary = json.loads(plain.out)
    assert {"outputs", "faults", "families", "roots", "by_predicted", "forwards", "seconds", "run"} <= summary.keys()
    assert summary["faults"] > summary["random"]["faults"]
    assert len(list((tmp_path / "plain" / "inputs").glob("fault-*.png"))) == summary["faults"]
    diverse = cli("attack", "zoo:mnist-lenet1", SEEDS, "--attack", "pgd:steps=4,step=0.05", "--diversity", 1, "--out", "diverse")
    assert diverse.code == 0, diverse.err
    assert "random noise of the same size" in diverse.out
    judged = cli("evaluate", "plain", "diverse", "--json")
    assert judged.code == 0, judged.err
    content = json.loads(judged.out)
    assert content["suites"]["plain"]["defects"]["faults"] == summary["faults"]
    assert content["comparison"]["pairs"]
    shown = cli("evaluate", "plain", "--extractor", "reference")
    assert shown.code == 0, shown.err
    assert "naturalness: ssim" in shown.out
    assert cli("attack", "zoo:mnist-lenet1", SEEDS, "--steps", 1, "--out", "third", "--fail-if", "outputs>3", "-q").code == 1


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--eps", "2"), "eps=2"),
        (("--diversity", "1", "--layers", "nothere"), "matches no layer"),
        (("--layers", "conv1"), "weight is 0"),
        (("--attack", "depfool"), "Did you mean deepfool"),
        (("--attack", "jsma", "--diversity", "1"), "cannot use the regulariser"),
        (("--kappa", "3"), "no option 'kappa'"),
        (("--batch", "0"), "--batch 0"),
    ],
)
def test_bad_input_is_one_sentence(cli: Cli, args: tuple[str, ...], message: str) -> None:
    outcome = cli("attack", "zoo:mnist-lenet1", SEEDS, *args)
    assert outcome.code == 2
    assert message in outcome.err
    assert not Path("neurotest-runs").exists()
