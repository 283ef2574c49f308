"""Places where one changed sign or word went unnoticed: views, cells, locks, listings, what a writer leaves behind."""

from __future__ import annotations

import os
import resource
import sqlite3
import string
import time
import warnings
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tests.refusals import refused

from neurotest.runs import Run, codec
from neurotest.runs.export import cell
from neurotest.runs.listing import clean, list_runs
from neurotest.runs.lock import Lock, is_locked
from neurotest.runs.rows import Absent


def view(x: np.ndarray, tmp_path: Path, bounds: tuple[float, float] = (0.0, 1.0)) -> Image.Image:
    shown = codec.picture(codec.encode(x, tmp_path / "x", bounds))
    assert shown is not None
    with Image.open(shown) as image:
        image.load()
        return image


def test_the_view_of_colours_in_floats_is_a_colour_picture(tmp_path: Path) -> None:
    image = view(np.array([[[0.0]], [[0.5]], [[1.0]]], dtype=np.float32), tmp_path)
    assert (image.mode, image.getpixel((0, 0))) == ("RGB", (0, 128, 255))


def test_the_view_takes_what_cannot_be_shown_for_an_end(tmp_path: Path) -> None:
    x = np.array([[[np.nan, np.inf, -np.inf, 7.0, -7.0, 1e38]]], dtype=np.float32)
    assert list(view(x, tmp_path).tobytes()) == [0, 255, 0, 255, 0, 255]
    flat = view(np.array([[[3.0, 3.5, 4.0]]], dtype=np.float32), tmp_path, bounds=(3.0, 3.0))
    assert list(flat.tobytes()) == [0, 128, 255]  # bounds without a width are taken as one wide


def test_a_view_shows_the_first_sixteen_channels(tmp_path: Path) -> None:
    x = np.arange(17 * 2, dtype=np.uint8).reshape(17, 2, 1)
    image = view(x, tmp_path)
    assert (image.mode, image.size) == ("L", (16, 2))
    assert list(image.tobytes()) == [*range(0, 32, 2), *range(1, 32, 2)]


def test_ordinary_text_stays_in_a_cell() -> None:
    for sign in string.ascii_letters + string.digits + " _.,;:/\\'\"()[]{}#%&*!?<>|~^$äß":
        assert cell(f"{sign}1") == f"{sign}1"
    for sign in "=+-@\t\r\n":
        assert cell(f"{sign}1") == f"'{sign}1"
        assert cell(sign) == f"'{sign}"
    assert (cell(""), cell(-1), cell(-0.5), cell(None)) == ("", -1, -0.5, None)


def test_a_place_that_cannot_be_looked_into_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(self: Path) -> Any:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "iterdir", denied)
    with refused("unreadable", "root"):
        list_runs(tmp_path)


def test_a_lock_names_its_process_and_anything_else_is_not_repeated(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    (small / ".lock").write_text("9" * 15 + "\n")  # of a process before, with a longer number
    lock = Lock.take(small)
    try:
        assert is_locked(small)
        text = (small / ".lock").read_text()
        assert text == f"{os.getpid()}\n"
        with refused("busy"):
            Lock.take(small)
        for content in (b"\xff\xfe evil \x1b[31m\n", b"", b"12 34"):
            (small / ".lock").write_bytes(content)
            with refused("busy"):
                Lock.take(small)
        (small / ".lock").write_bytes(b"1234567890" * 10)
        with refused("busy"):
            Lock.take(small)
    finally:
        lock.release()
    assert not is_locked(small)
    again = Lock.attempt(small)
    assert again is not None
    again.release()


def test_a_lock_is_tried_again_before_it_is_refused(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A listing holds the lock for an instant."""
    lock = Lock.take(small)
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 5:
            lock.release()

    monkeypatch.setattr(time, "sleep", sleep)
    Lock.take(small).release()
    assert len(pauses) == 5
    assert 0.1 < sum(pauses) < 1


def test_a_lock_whose_file_was_replaced_guards_nothing(small: Path) -> None:
    first = Lock.take(small)
    (small / ".lock").unlink()
    second = Lock.attempt(small)  # a new file: nobody holds it
    assert second is not None
    second.release()
    first.release()
    assert is_locked(small / "nowhere") is False


def test_a_lock_that_cannot_be_written_is_let_go_at_once(small: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))  # as on a full disk
    try:
        with refused("not-writable", "lock") as caught:
            Lock.attempt(small)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not is_locked(small)  # though the error, with everything it refers to, is still there
    del caught


def test_a_refused_lock_leaves_no_file_open(small: Path) -> None:
    lock = Lock.take(small)
    with warnings.catch_warnings(record=True) as unclosed:
        warnings.simplefilter("always", ResourceWarning)
        assert Lock.attempt(small) is None
        assert is_locked(small)
        lock.release()
        assert not is_locked(small)
    assert unclosed == []


def test_age_is_counted_in_days(tmp_path: Path) -> None:
    for name, days in (("new", 0.5), ("old", 2.5)):
        with Run.create(tmp_path / name, "select", {}) as run:
            run.finish({})
        created = (datetime.now(UTC) - timedelta(days=days)).isoformat()
        with sqlite3.connect(tmp_path / name / "run.sqlite") as database:
            database.execute("UPDATE meta SET value = ? WHERE key = 'created'", (f'"{created}"',))
        database.close()
    assert clean(tmp_path, older_than_days=3) == []
    assert clean(tmp_path, older_than_days=2) == [tmp_path / "old"]
    assert clean(tmp_path, older_than_days=1) == []
    assert clean(tmp_path, older_than_days=0) == [tmp_path / "new"]


def test_a_listing_says_how_large_and_in_which_state_a_run_is(small: Path) -> None:
    (listed,) = list_runs(small.parent)
    assert listed.size == sum(file.stat().st_size for file in small.rglob("*") if file.is_file())
    assert (listed.state, listed.command, listed.problem) == ("done", "select", "")
    assert listed.created is not None
    with Run.open(small, write=True) as run:
        assert list_runs(small.parent)[0].state == "running"
        run.reopen()
        assert (run["state"], run["finished"], run["summary"]) == ("running", None, None)
    assert list_runs(small.parent)[0].state == "unfinished"


def test_keys_and_entries_of_the_run_itself(small: Path) -> None:
    with Run.open(small, write=True) as run:
        assert run.keys() == sorted(run.keys())
        assert "id" in run
        assert "nothing" not in run
        with refused("damaged", "nothing", kind=Absent):
            run["nothing"]
        for key in ("id", "command", "config", "version", "created", "state", "finished", "summary"):
            with refused("conflict", key):
                run[key] = 1
        run["classes"] = ["a", "b"]
        assert run["classes"] == ["a", "b"]
        assert run.made_here
    assert repr(run) == f"Run({str(small)!r})"
