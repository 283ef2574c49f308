"""`neurotest describe` as a user types it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from neurotest import zoo

from .conftest import Cli

pytestmark = pytest.mark.skipif(not zoo.find("fashion-lenet1").embedded, reason="the embedded networks were removed")
DATA = "zoo:fashion-mnist/test[:400]"


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEUROTEST_CACHE", str(tmp_path / "cache"))


def test_describe(cli: Cli, tmp_path: Path) -> None:
    outcome = cli("describe", "zoo:fashion-lenet1", DATA, "--out", "words", "--k", 5, "--json", "-q")
    assert outcome.code == 0, outcome.err
    content = json.loads(outcome.out)
    assert content["neurons"] == len(content["descriptions"]) == 4 + 12 + 10
    assert set(content["layers"]) == {"relu1", "relu2", "fc1"}
    named = {row["neuron"]: row["description"] for row in content["descriptions"] if row["layer"] == "fc1"}
    assert sum(name in named[n] for n, name in enumerate(zoo.FAMILIES["fashion"].classes)) >= 8
    run = tmp_path / "words"
    for file in ("descriptions.csv", "exemplars.csv", "rating.csv", "rating-key.json", "report.html", "run.json", "run.sqlite"):
        assert (run / file).stat().st_size > 0, file
    assert len(list((run / "sheets").glob("*.png"))) == 3
    again = cli("report", "words", "--out", "page.html")
    assert again.code == 0, again.err
    assert (tmp_path / "page.html").read_text() == (run / "report.html").read_text()
    # What was written can be read back, and by no other network.
    back = cli("describe", "zoo:fashion-lenet1", "--method", f"csv:{run}/descriptions.csv", "--out", "back", "--json", "-q")
    assert back.code == 0, back.err
    assert [r["description"] for r in json.loads(back.out)["descriptions"]] == [r["description"] for r in content["descriptions"]]
    other = cli("describe", "zoo:mnist-lenet1", "--method", f"csv:{run}/descriptions.csv")
    assert other.code == 2
    assert "describes another target" in other.err


def test_a_page_that_is_missing_is_made_by_resume(cli: Cli, tmp_path: Path) -> None:
    method = ("--method", "class-profile", "--layers", "fc1", "-q")
    assert cli("describe", "zoo:fashion-lenet1", DATA, *method, "--out", "words").code == 0
    page = (tmp_path / "words" / "report.html").read_text()
    finished = cli("describe", "--resume", "words")
    assert (finished.code, "is finished" in finished.err) == (2, True)
    (tmp_path / "words" / "report.html").unlink()
    mended = cli("describe", "--resume", "words")
    assert mended.code == 0, mended.err
    assert (tmp_path / "words" / "report.html").read_text() == page
    other = cli("select", "zoo:fashion-lenet1", DATA, "--out", "picks", "-q")
    assert other.code == 0, other.err
    assert "a run of 'select'" in cli("describe", "--resume", "picks").err


def test_a_table_on_the_screen_and_a_threshold(cli: Cli) -> None:
    outcome = cli(
        "describe", "zoo:fashion-lenet1", DATA, "--method", "class-profile", "--layers", "fc1", "--fail-if", "described>5", "-q"
    )
    assert outcome.code == 1
    assert "ankle boot" in outcome.out
    assert "report.html" in outcome.out


@pytest.mark.parametrize(
    ("args", "word"),
    [
        ((), "DATA is missing"),
        ((DATA, "--method", "nobody"), "unknown describer"),
        ((DATA, "--method", "attributes:measure=maps", "--layers", "fc1"), "no spatial maps"),
        ((DATA, "--layers", "nothing*"), "matches no layer"),
        ((DATA, "--k", "0"), "k=0"),
        ((DATA, "--classes", "twice.txt", "--method", "class-profile"), "stands twice"),
        ((DATA, "--method", "csv:none.csv"), "cannot be read"),
        (("zoo:cifar10/test[:5]",), "the target expects 1x28x28"),
    ],
)
def test_bad_input_is_one_sentence(cli: Cli, tmp_path: Path, args: tuple[str, ...], word: str) -> None:
    names = list(zoo.FAMILIES["fashion"].classes)
    (tmp_path / "twice.txt").write_text("\n".join([names[0], *names[:9]]))
    outcome = cli("describe", "zoo:fashion-lenet1", *args, "--out", "run")
    assert outcome.code == 2
    assert word in outcome.err
    assert "Traceback" not in outcome.err
    assert not (tmp_path / "run").exists()
