"""Whoever starts a command learns which runs it finished, once each, and only while asking."""

from __future__ import annotations

from pathlib import Path

import pytest

from neurotest import Run
from neurotest.jobs.finished import finished_runs, note
from neurotest.jobs.life import begin, finish, whole

pytestmark = pytest.mark.plain


def test_finished_runs_are_noted_once_and_in_order(tmp_path: Path) -> None:
    with finished_runs() as finished:
        with whole("cover", tmp_path / "b", {}) as run:
            finish(run, {})
            finish(run, {"again": 1})
        with begin("fuzz", tmp_path / "a", {}) as other:
            finish(other, {})
        with begin("fuzz", tmp_path / "unfinished", {}):
            pass
        finish(None, {})
    assert finished == [tmp_path / "b", tmp_path / "a"]


def test_nobody_has_to_listen_and_inner_work_is_heard_inside_only(tmp_path: Path) -> None:
    note(tmp_path)
    with finished_runs() as outer:
        with finished_runs() as inner:
            note(tmp_path / "inner")
        note(tmp_path / "outer")
    assert (inner, outer) == ([tmp_path / "inner"], [tmp_path / "outer"])


def test_a_run_that_could_not_be_finished_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(run: Run) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(Run, "export", full)
    with finished_runs() as finished, pytest.raises(OSError, match="no space"), whole("cover", tmp_path / "run", {}) as run:
        finish(run, {})
    assert finished == []
