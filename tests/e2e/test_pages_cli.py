"""Pages by themselves: every command that finishes a run writes one, unless told not to, and never at the cost of the run."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from tests.e2e.conftest import Cli

from neurotest import Run

SELECT = ("select", "zoo:mnist-lenet1", "zoo:mnist/test[:60]", "--method", "deepgini", "--budget", "6")


def test_a_finished_run_has_its_page(cli: Cli) -> None:
    said = cli(*SELECT, "--out", "run", "--json")
    content = json.loads(said.out)
    assert content["report"] == "run/report.html"
    assert "Label these first" in Path("run/report.html").read_text()
    told = cli(*SELECT, "--out", "again")
    assert told.out.splitlines()[-1] == "report: open again/report.html in a browser"


def test_no_report(cli: Cli) -> None:
    content = json.loads(cli(*SELECT, "--out", "run", "--no-report", "--json").out)
    assert "report" not in content
    assert not Path("run/report.html").exists()
    with Run.open("run") as run:
        assert run["state"] == "done"


@pytest.mark.parametrize("error", [RuntimeError("no chart"), KeyboardInterrupt()])
def test_a_page_that_fails_costs_itself(cli: Cli, monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def fail(*args: object, **settings: object) -> None:
        raise error

    monkeypatch.setattr("neurotest.report.section.write_report", fail)
    said = cli(*SELECT, "--out", "run", "--json")
    assert said.code == 0
    assert len(json.loads(said.out)["indices"]) == 6
    assert "The results are stored; to try again: neurotest report run" in said.err
    with Run.open("run") as run:
        assert run["state"] == "done"


def test_a_changed_run_gets_a_new_page_if_it_had_one(cli: Cli) -> None:
    for name, options in (("with", ()), ("without", ("--no-report",))):
        cli(*SELECT, "--out", name, *options)
        os.utime(Path(name) / "run.sqlite")  # later than the page, as after labels, shrink or neurons
        if name == "with":
            page = Path(name) / "report.html"
            os.utime(page, ns=(0, 0))
        cli("export", name, "--format", "csv", "--out", f"{name}.csv")
    assert page.stat().st_mtime_ns > 0
    assert not Path("without/report.html").exists()


def test_the_map_that_is_asked_for(cli: Cli) -> None:
    cli(*SELECT, "--out", "run")
    assert cli("report", "run", "--map", "none").code == 0
    said = cli("report", "run", "--map", "pca")
    assert said.code == 2
    assert "--map pca: expected tsne, umap, none." in said.err


def test_a_run_that_lacks_only_its_page_gets_it_by_resume(cli: Cli) -> None:
    attack = ("attack", "zoo:mnist-lenet1", "zoo:mnist/test[:12]", "--steps", 2, "--out", "run", "-q")
    assert cli(*attack).code == 0
    assert cli("attack", "--resume", "run").code == 2  # there is nothing left to do
    Path("run/report.html").unlink()
    assert cli("attack", "--resume", "run", "--no-report").code == 2
    said = cli("attack", "--resume", "run", "--json")
    assert said.code == 0, said.err
    assert json.loads(said.out) == {"run": "run", "notes": [], "report": "run/report.html"}
    assert Path("run/report.html").is_file()
