"""`neurotest check` and `neurotest suspects` as users have them: a stranger's network, JSON, JUnit, --fail-if, mistakes."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from tests.e2e.conftest import Cli
from tests.e2e.stranger import absolute, project_spec

QUICK = ["--time", "1h", "--only", "accuracy", "--only", "labels", "--only", "slices", "--only", "first"]
DATA = "zoo:mnist/test[:600]"


def test_a_strangers_network_with_weights(cli: Cli, project: Path, tmp_path: Path) -> None:
    options = [*absolute(project), "--time", "15s", "--out", tmp_path / "run"]
    outcome = cli("check", project_spec(project), f"dir:{project / 'photos'}", *options, "--junit", tmp_path / "check.xml")
    assert outcome.code == 0, outcome.err
    assert outcome.out.startswith("verdict: ")
    page = (tmp_path / "run" / "report.html").read_text()
    assert page.index("verdict") < page.index("Findings")
    assert "<img" in page
    assert "neurotest select py:" in page  # the command that goes deeper, with the weights
    assert "--weights" in page
    cases = ElementTree.parse(tmp_path / "check.xml").getroot().findall("./testsuite/testcase")
    assert [case.get("name") for case in cases][:3] == ["health", "accuracy", "labels"]


def test_json_is_one_object_and_fail_if_reads_it(cli: Cli, tmp_path: Path) -> None:
    outcome = cli("check", "zoo:mnist-lenet1", DATA, *QUICK, "--json", "--out", tmp_path / "run", "--fail-if", "accuracy<0.99")
    content = json.loads(outcome.out)
    assert outcome.code == 1
    assert set(content["examinations"]) == {"accuracy", "labels", "slices", "first"}
    assert content["alarms"] == 0
    assert 0.9 < content["accuracy"] < 0.99
    low, high = content["examinations"]["accuracy"]["accuracy_interval"]
    assert low < content["accuracy"] < high
    assert Path(content["report"]).is_file()
    assert cli("check", "zoo:mnist-lenet1", DATA, *QUICK, "--quiet", "--fail-if", "alarms>0").code == 0


def test_an_alarm_fails_the_build(cli: Cli, tmp_path: Path) -> None:
    """Labels moved by one class: the network gets all of them wrong, and the doctor names the order of the classes."""
    import numpy as np

    import neurotest

    source = neurotest.data(DATA)
    assert source.labels is not None
    np.savez(tmp_path / "moved.npz", x=source.read(np.arange(600)), y=(source.labels + 1) % 10)
    outcome = cli(
        "check", "zoo:mnist-lenet1", "npz:moved.npz#x,y", "--time", "1h", "--only", "health", "--only", "accuracy", "--junit",
        tmp_path / "check.xml", "--fail-if", "alarms>0",
    )  # fmt: skip
    assert outcome.code == 1
    assert "in another order" in outcome.out
    suite = ElementTree.parse(tmp_path / "check.xml").getroot()
    assert suite.get("failures") == "2"
    assert "in another order" in str(suite.findall(".//failure")[0].get("message"))


def test_unlabelled_data_are_looked_at_as_far_as_that_goes(cli: Cli, tmp_path: Path) -> None:
    import numpy as np

    import neurotest

    np.savez(tmp_path / "pool.npz", x=neurotest.data(DATA).read(np.arange(200)))
    outcome = cli("check", "zoo:mnist-lenet1", "npz:pool.npz#x", "--time", "20s", "--skip", "campaign", "--json")
    content = json.loads(outcome.out)
    assert outcome.code == 0
    assert content["examinations"]["slices"]["skipped"]
    assert "have no labels" in content["examinations"]["slices"]["summary"] or "needs labels" in str(content["examinations"])
    assert content["examinations"]["first"]["budget"] == 10
    assert "not checked: accuracy, labels, slices" in content["verdict"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["zoo:mnist-lenet1", DATA, "--only", "slice"], "unknown check 'slice'. Did you mean slices"),
        (["zoo:mnist-lenet1", DATA, "--time", "soon"], "expected at least one second, such as 90s, 5m or 1h"),
        (["zoo:mnist-lenet1", DATA, "--only", "first", "--skip", "first"], "no check is left"),
        (["zoo:mnist-lenet1"], "check needs TARGET and DATA, or --resume RUN"),
        (["zoo:mnist-lenet1", DATA, "--fail-if", "alarms"], "write NUMBER>LIMIT"),
        (["zoo:mnist-lenet1", "zoo:fashion-mnist/test[:0]"], "leaves nothing"),
    ],
)
def test_mistakes_are_one_sentence(cli: Cli, arguments: list[str], words: str) -> None:
    outcome = cli("check", *arguments, "--quiet")
    assert outcome.code == 2
    assert words in outcome.err
    assert outcome.err.count("\n") == 1
    assert not Path("neurotest-runs").exists()


def test_suspects(cli: Cli, project: Path, tmp_path: Path) -> None:
    where = [project_spec(project), f"dir:{project / 'photos'}", *absolute(project)]
    outcome = cli("suspects", *where, "--json", "--out", tmp_path / "run")
    content = json.loads(outcome.out)
    assert outcome.code == 0
    assert content["inputs"] == 80
    assert all(row["name"].endswith(".png") for row in content["suspects"])
    assert cli("report", tmp_path / "run").code == 0
    assert "of the labels look wrong" in cli("suspects", *where).out
    assert "has no labels" in cli("suspects", "zoo:mnist-lenet1", _unlabelled(tmp_path)).err


def _unlabelled(folder: Path) -> str:
    import numpy as np

    np.savez(folder / "x.npz", x=np.zeros((4, 1, 28, 28), dtype=np.uint8))
    return "npz:x.npz#x"
