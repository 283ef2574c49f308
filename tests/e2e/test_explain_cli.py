"""`neurotest explain` and the guide nsgen from the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from neurotest import zoo

pytestmark = pytest.mark.skipif(not zoo.find("mnist-lenet1").embedded, reason="the embedded networks were removed")
FUZZ = ("zoo:mnist-lenet1", "zoo:mnist/test[:80]", "--mutations", "rules95:bilateral=false", "--no-control", "-q", "--json")


def last(out: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(out.strip().splitlines()[-1])
    return content


def test_a_campaign_is_guided_and_explained(cli: Any, tmp_path: Path) -> None:
    guide = "nsgen:describe=class-profile,per_class=1,critical=conductance:3"
    outcome = cli("fuzz", *FUZZ, "--train", "zoo:mnist/train[:300]", "--guide", guide, "--max-outputs", 40, "--out", "run")
    assert outcome.code == 0, outcome.err
    details = last(outcome.out)["guide_details"]
    assert details["layers"] == ["relu1", "relu2"]
    assert 0 < details["dpd_rate"] <= 1
    families = json.loads(cli("families", "run", "--json").out)["families"]
    number = families[0]["fault"]
    outcome = cli("explain", "run", number, "--json")
    assert outcome.code == 0, outcome.err
    explained = json.loads(outcome.out)
    assert explained["tau"] == pytest.approx(details["tau"])
    assert [layer["layer"] for layer in explained["layers"]] == ["relu1", "relu2"]
    outcome = cli("explain", "run", number, "--out", "e.html")
    assert outcome.code == 0
    assert "The paths" in outcome.out
    assert (tmp_path / "e.html").read_text().count("data:image/png") >= 6
    outcome = cli("explain", "run", "--limit", 20, "--out", "p.md")
    assert outcome.code == 0, outcome.err
    assert "where the path first leaves" in outcome.out


def test_bad_input_is_one_sentence_and_exit_2(cli: Any) -> None:
    train = ("--train", "zoo:mnist/train[:50]")
    for arguments, message in (
        (("fuzz", *FUZZ, "--guide", "nsgen", "--max-outputs", 5), "--train"),
        (("fuzz", *FUZZ, *train, "--guide", "nsgen:mode=labels", "--max-outputs", 5), "mode="),
        (
            ("fuzz", *FUZZ, *train, "--guide", "nsgen:critical=all,describe=class-profile,per_class=1", "--max-outputs", 5),
            "no spread",
        ),
        (("explain", "nowhere", 1), "nowhere"),
        (("explain", "nowhere", 1, "--out", "a.docx"), "--out"),
    ):
        outcome = cli(*arguments)
        assert outcome.code == 2, outcome
        assert message in outcome.err
        assert "Traceback" not in outcome.err
