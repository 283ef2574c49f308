"""Places that cannot be used, damaged runs, and runs that somebody sent."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from tests.refusals import refused

from neurotest.errors import BadInput
from neurotest.runs import Run, schema


@contextmanager
def changed(run: Path) -> Iterator[sqlite3.Connection]:
    """The database of a run in somebody else's hands."""
    db = sqlite3.connect(run / schema.FILE)
    yield db
    db.commit()
    db.close()


# places


def test_an_existing_run_is_refused(small: Path) -> None:
    before = (small / schema.FILE).read_bytes()
    with refused("exists", "run"):
        Run.create(small, "select", {})
    assert (small / schema.FILE).read_bytes() == before


def test_a_place_that_is_somebody_elses_is_refused(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").touch()
    with refused("exists", "out"):
        Run.create(tmp_path / "full", "select", {})
    (tmp_path / "file").touch()
    for place in (tmp_path / "file", tmp_path / "file" / "run"):
        with refused("not-a-folder", "out"):
            Run.create(place, "select", {})
    assert sorted(p.name for p in (tmp_path / "full").iterdir()) == ["thesis.tex"]


def test_an_unwritable_place_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    locked = tmp_path / "locked"
    (locked / "empty").mkdir(parents=True)
    (locked / "empty").chmod(0o555)
    locked.chmod(0o555)
    monkeypatch.chdir(locked)
    root = os.geteuid() == 0
    if root:  # root may write anywhere, so be nobody for a moment
        os.seteuid(65534)
    try:
        for place in (locked / "new", locked / "empty", None):
            with refused("not-writable", "out"):
                Run.create(place, "select", {})
    finally:
        if root:
            os.seteuid(0)
        locked.chmod(0o755)


def test_a_creation_that_died_half_way_can_be_repeated(tmp_path: Path) -> None:
    place = tmp_path / "run"
    place.mkdir()
    (place / ".lock").write_text("1\n")
    (place / ".run.sqlite.99.part").write_bytes(b"SQLite for")
    (place / ".run.sqlite.99.part-journal").touch()
    Run.create(place, "select", {}).close()
    with Run.open(place) as run:
        assert run["state"] == "running"


@pytest.mark.parametrize(
    ("name", "refusal"), [("nowhere", ("wrong-run", "run")), ("file", ("wrong-run", "run")), ("empty", ("wrong-run", "run"))]
)
def test_what_is_no_run_is_refused(tmp_path: Path, name: str, refusal: tuple[str, str]) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()
    for write in (False, True):
        with refused(*refusal):
            Run.open(tmp_path / name, write=write)


# damage


@pytest.mark.parametrize("content", [b"", b"not a database at all, but long enough to be looked at" * 30])
def test_a_file_that_is_no_database_is_refused(small: Path, content: bytes) -> None:
    (small / schema.FILE).write_bytes(content)
    for write in (False, True):
        with refused(("wrong-run", "damaged"), "database"):
            Run.open(small, write=write)


def test_a_database_of_something_else_is_refused(small: Path) -> None:
    (small / schema.FILE).unlink()
    with changed(small) as db:
        db.execute("CREATE TABLE meta (key, value)")
    with refused("wrong-run", "database"):
        Run.open(small)


def test_damaged_pages_are_one_sentence_and_not_a_traceback(tmp_path: Path) -> None:
    with Run.create(tmp_path / "run", "select", {}) as run:
        run.add_inputs({"position": i, "content": "x" * 50} for i in range(2000))
        run.add_ranking("nss", np.arange(2000), None, 5)
    database = tmp_path / "run" / schema.FILE
    content = bytearray(database.read_bytes())
    generator = np.random.default_rng(0)
    refused = 0
    for _ in range(20):
        broken = bytearray(content)
        for page in generator.integers(0, len(content) // 4096, 8):
            broken[page * 4096 : page * 4096 + 2000] = generator.bytes(2000)
        database.write_bytes(broken)
        try:
            with Run.open(tmp_path / "run") as run:
                run.inputs()
                run.ranking("nss")
        except BadInput:
            refused += 1
    assert refused >= 15


def test_a_truncated_database_is_refused(small: Path) -> None:
    content = (small / schema.FILE).read_bytes()
    (small / schema.FILE).write_bytes(content[: len(content) // 2])
    with pytest.raises(BadInput), Run.open(small) as run:
        run.export()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE input SET extra = '{'",
        "UPDATE input SET extra = '[1]'",
        "UPDATE input SET content = x'00'",
        "UPDATE input SET label = 'seven'",
        "UPDATE ranking SET score = 'high'",
        "UPDATE meta SET value = 'nonsense'",
        "UPDATE method SET picked = 'all'",
    ],
)
def test_values_of_the_wrong_kind_are_refused(small: Path, statement: str) -> None:
    with changed(small) as db:
        db.execute(statement)
    with refused("damaged", None), Run.open(small) as run:
        run.export()


# a run that somebody sent


@pytest.mark.parametrize(
    "path", ["../../secret.png", "/etc/hostname", "inputs/../../secret.png", "inputs/../inputs/picked-000000.png"]
)
def test_a_path_that_leaves_the_run_is_refused(small: Path, path: str) -> None:
    secret = small.parent / "secret.png"
    shutil.copy(small / "inputs" / "picked-000000.png", secret)
    with changed(small) as db:
        db.execute("UPDATE file SET path = ? WHERE position = 0", (path,))
    with Run.open(small) as run:
        for read in (lambda: run.load_input(0), run.files, run.export):
            with refused("untrusted", "path"):
                read()
        assert run.load_input(2).shape == (1, 3, 4)


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE VIEW shown AS SELECT 1",
        "CREATE TRIGGER act AFTER INSERT ON label BEGIN DELETE FROM input; END",
        "CREATE VIRTUAL TABLE words USING fts5(text)",
        "CREATE INDEX quick ON input (label)",
        "DROP TRIGGER label_stays",
        "DROP TABLE ranking",
    ],
)
def test_tables_that_could_act_or_are_gone_are_refused(small: Path, statement: str) -> None:
    with changed(small) as db:
        db.execute(statement)
    with refused(("untrusted", "damaged"), None):
        Run.open(small)


def test_a_table_that_is_really_a_view_is_refused(small: Path) -> None:
    with changed(small) as db:
        db.execute("ALTER TABLE input RENAME TO hidden")
        db.execute("CREATE VIEW input AS SELECT * FROM hidden")
    with refused("damaged", "columns"):
        Run.open(small)


def test_links_instead_of_our_own_files_are_refused(small: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine.txt"
    mine.write_text("precious")
    (small / ".lock").unlink()
    (small / ".lock").symlink_to(mine)
    with refused("not-writable", "lock"):
        Run.open(small, write=True)
    assert mine.read_text() == "precious"
    (small / ".lock").unlink()
    outside = tmp_path / "outside"
    shutil.move(small / "inputs", outside)
    (small / "inputs").symlink_to(outside)
    (outside / "picked-000001.png").touch()
    with Run.open(small, write=True) as run, refused("untrusted", "folder"):
        run.save_input(1, np.zeros((1, 1, 1), np.uint8))
    assert (outside / "picked-000001.png").exists()
    shutil.move(small / schema.FILE, tmp_path / "other.sqlite")
    (small / schema.FILE).symlink_to(tmp_path / "other.sqlite")
    with refused("untrusted", "link"):
        Run.open(small)


def test_made_here(small: Path, own_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Run.open(small) as run:
        assert run.made_here
        record = own_cache / "runs" / run["id"]
    assert record.is_file()
    shutil.copytree(small, tmp_path / "copy")
    with changed(tmp_path / "copy") as db:
        db.execute("UPDATE meta SET value = ? WHERE key = 'config'", (json.dumps({"target": "py:evil.py:build", "seed": 0}),))
    with Run.open(tmp_path / "copy") as run:
        assert not run.made_here  # ours, but it came back changed
    monkeypatch.setenv("NEUROTEST_CACHE", str(tmp_path / "another-machine"))
    with Run.open(small) as run:
        assert not run.made_here


@pytest.mark.parametrize("name", ["../../runs/small/note", "", "0" * 31, "../" + "0" * 32, 5])
def test_an_id_that_is_a_path_is_not_followed(small: Path, name: object) -> None:
    with changed(small) as db:
        db.execute("UPDATE meta SET value = ? WHERE key = 'id'", (json.dumps(name),))
    with Run.open(small) as run:
        assert not run.made_here


def test_without_a_writable_cache_a_run_is_made_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("NEUROTEST_CACHE", str(tmp_path / "file"))
    with Run.create(tmp_path / "run", "select", {}) as run:
        assert not run.made_here
