"""Listing and removing runs: never one that is being written, never what is no run."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.refusals import refused

from neurotest.errors import BadInput
from neurotest.runs import Run, schema
from neurotest.runs.listing import clean, list_runs


def make(root: Path, name: str, days: float, done: bool = True) -> Path:
    """A run that was made so many days ago."""
    with Run.create(root / name, "select", {}) as run:
        run._set("created", (datetime.now(UTC) - timedelta(days=days)).isoformat())
        if done:
            run.finish({})
    return root / name


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Four runs and three things that are none."""
    root = tmp_path / "runs"
    make(root, "new", 0.5)
    make(root, "stopped", 1, done=False)
    make(root, "old", 40)
    make(root, "ancient-stopped", 400, done=False)
    (root / "notes").mkdir()
    (root / "notes" / "thesis.tex").touch()
    (root / "broken").mkdir()
    (root / "broken" / schema.FILE).write_text("no database")
    (root / "readme.txt").touch()
    return root


def names(paths: list[Path]) -> list[str]:
    return [path.name for path in paths]


def test_runs_are_listed_newest_first(root: Path) -> None:
    infos = list_runs(root)
    assert names([info.path for info in infos]) == ["new", "stopped", "old", "ancient-stopped", "broken"]
    assert [info.state for info in infos] == ["done", "unfinished", "done", "unfinished", "unreadable"]
    assert all(info.command == "select" and info.size > 1000 and len(info.id) == 32 for info in infos[:4])
    assert "not a run of neurotest" in infos[-1].problem


def test_no_place_holds_no_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert list_runs(tmp_path / "nowhere") == []
    monkeypatch.chdir(tmp_path)
    assert list_runs() == []
    (tmp_path / "file").touch()
    with refused("not-a-folder", "root"):
        list_runs(tmp_path / "file")


@pytest.mark.parametrize(
    ("options", "gone"),
    [
        ({"keep": 2}, ["old", "ancient-stopped"]),
        ({"keep": 0}, ["new", "stopped", "old", "ancient-stopped"]),
        ({"keep": 9}, []),
        ({"older_than_days": 30}, ["old", "ancient-stopped"]),
        ({"older_than_days": 0}, ["new", "stopped", "old", "ancient-stopped"]),
        ({"unfinished": True}, ["stopped", "ancient-stopped"]),
        ({"unfinished": True, "keep": 1}, ["ancient-stopped"]),
        ({"unfinished": True, "older_than_days": 30}, ["ancient-stopped"]),
        ({"keep": 3, "older_than_days": 30}, ["ancient-stopped"]),
    ],
)
def test_clean_by_hand(root: Path, options: dict[str, float], gone: list[str]) -> None:
    every = {entry.name for entry in root.iterdir()}
    assert names(clean(root, **options)) == gone  # type: ignore[arg-type]
    assert {entry.name for entry in root.iterdir()} == every - set(gone)
    assert (root / "notes" / "thesis.tex").exists()


def test_the_record_in_the_cache_goes_too(root: Path, own_cache: Path) -> None:
    clean(root, keep=0)
    assert list((own_cache / "runs").iterdir()) == []


def test_a_run_that_is_being_written_stays(root: Path, python: Callable[[str], subprocess.Popen[str]]) -> None:
    hold = f"run = Run.open({str(root / 'old')!r}, write=True)"
    other = python(f"import signal; from neurotest.runs import Run; {hold}; print(1, flush=True); signal.pause()")
    try:
        assert other.stdout is not None
        assert other.stdout.readline() == "1\n"
        assert {info.path.name: info.state for info in list_runs(root)}["old"] == "running"
        assert "old" not in names(clean(root, keep=0))
        assert (root / "old" / schema.FILE).exists()
    finally:
        other.kill()
        other.communicate()
    assert names(clean(root, keep=0)) == ["old"]


def test_listing_leaves_no_trace_and_hinders_no_writer(root: Path) -> None:
    (root / "new" / ".lock").unlink()
    list_runs(root)
    assert sorted(entry.name for entry in (root / "new").iterdir()) == ["run.sqlite"]


def test_links_are_neither_listed_nor_followed(root: Path, tmp_path: Path) -> None:
    outside = make(tmp_path / "elsewhere", "precious", 100)
    (root / "link").symlink_to(outside)
    (root / "old" / "inputs").symlink_to(tmp_path / "elsewhere")
    assert "link" not in names([info.path for info in list_runs(root)])
    assert names(clean(root, older_than_days=30)) == ["old", "ancient-stopped"]
    assert (outside / schema.FILE).exists()


def test_a_run_without_a_date_is_unreadable_and_stays(root: Path) -> None:
    for key in ("old", "new"):
        with sqlite3.connect(root / key / schema.FILE) as db:
            db.execute(
                "DELETE FROM meta WHERE key = 'created'" if key == "old" else "UPDATE meta SET value = '7' WHERE key = 'created'"
            )
    problems = {info.path.name: info.problem for info in list_runs(root) if info.state == "unreadable"}
    assert set(problems) == {"old", "new", "broken"}
    assert problems["old"] == f"{root / 'old' / schema.FILE} has no 'created' that fits: it is damaged or not a run of neurotest."
    assert names(clean(root, keep=0)) == ["stopped", "ancient-stopped"]


def test_a_date_without_a_time_zone_can_still_be_sorted(root: Path) -> None:
    with sqlite3.connect(root / "old" / schema.FILE) as db:
        db.execute("UPDATE meta SET value = '\"2001-01-01T00:00:00\"' WHERE key = 'created'")
    assert names([info.path for info in list_runs(root)])[3] == "old"


@pytest.mark.parametrize("options", [{}, {"keep": -1}, {"older_than_days": -1}, {"older_than_days": float("nan")}])
def test_a_clean_that_does_not_say_what_is_refused(root: Path, options: dict[str, float]) -> None:
    with pytest.raises(BadInput):
        clean(root, **options)  # type: ignore[arg-type]
    assert len(list_runs(root)) == 5


def test_a_run_itself_is_no_place_of_runs(root: Path) -> None:
    for look in (lambda: list_runs(root / "old"), lambda: clean(root / "old", keep=0)):
        with refused("wrong-run", "root"):
            look()
    assert (root / "old" / schema.FILE).exists()


def test_a_copy_of_a_run_is_listed_beside_it(root: Path) -> None:
    shutil.copytree(root / "new", root / "copy")
    assert len(list_runs(root)) == 6
