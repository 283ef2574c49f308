"""What a tracker is told of a run; the trackers themselves are in tests/peers/test_trackers.py."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests.refusals import refused

from neurotest.report import track
from neurotest.runs.store import Run


def finished(path: Path, summary: dict[str, object]) -> Path:
    with Run.create(path, "cover", {"target": "zoo:mnist-lenet1", "options": {"k": 3, "none": None}}) as run:
        run.finish(summary)
        run.export()
    return path


def test_numbers_have_the_names_of_fail_if(tmp_path: Path) -> None:
    summary = {
        "nc": 0.5,
        "random": {"fdr": 0.25},
        "interval": [0.1, 0.2],
        "rows": [1, 2, 3],
        "ok": True,
        "name": "x",
        "nan": None,
    }
    record = track._record_of(finished(tmp_path / "run", summary))
    assert record.numbers == {"nc": 0.5, "random.fdr": 0.25, "interval.0": 0.1, "interval.1": 0.2}
    assert record.settings == {"target": "zoo:mnist-lenet1", "options.k": "3"}
    assert [file.name for file in record.files] == ["run.json"]
    assert (record.name, record.command) == ("run", "cover")


def test_a_run_with_many_numbers_gives_those_that_stand_highest(tmp_path: Path) -> None:
    summary = {"many": {f"n{i}": i for i in range(2 * track.MAX_NUMBERS)}, "first": 7}
    numbers = track._record_of(finished(tmp_path / "run", summary)).numbers
    assert len(numbers) == track.MAX_NUMBERS
    assert numbers["first"] == 7


def test_an_unfinished_run_is_refused(tmp_path: Path) -> None:
    Run.create(tmp_path / "run", "cover", {}).close()
    with refused("unfinished"):
        track._record_of(tmp_path / "run")


def test_an_unknown_tracker_is_named_with_the_nearest() -> None:
    with refused("unknown-name", "track"):
        track.check_tracker("mlfow:nightly")


def test_a_tracker_that_is_not_installed_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with refused("not-installed", "wandb", match=r"pip install 'neurotest\[track\]'"):
        track.check_tracker("wandb")


def test_a_link_in_a_run_is_not_handed_over(tmp_path: Path) -> None:
    path = finished(tmp_path / "run", {"nc": 0.5})
    (tmp_path / "secret").write_text("mine")
    (path / "report.html").symlink_to(tmp_path / "secret")
    assert [file.name for file in track._record_of(path).files] == ["run.json"]
