"""A run that somebody sent: links, pipes, a database that is not ours. Nothing of the reader's own comes out or is touched."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.refusals import refused
from tests.waiting import LIMIT

from neurotest.errors import BadInput
from neurotest.report.section import write_report
from neurotest.runs import Run, codec, handles, schema
from neurotest.runs.folder import Folder, declare
from neurotest.runs.listing import list_runs
from neurotest.runs.lock import is_locked
from neurotest.select.exchange import export

SECRET = b"\x89PNG the reader's own private key"
declare(r"notes/[a-z]+\.txt|plain\.txt")


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    file = tmp_path / "secret.png"
    file.write_bytes(SECRET)
    return file


@pytest.fixture(autouse=True, params=["by handles", "by paths"])
def platform(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test here, also as on a platform where files cannot be opened from the handle of a folder (Windows)."""
    if request.param == "by paths":
        monkeypatch.setattr(handles, "KIND", handles.PathHandle)
        monkeypatch.setattr(handles, "PLAIN", handles.PLAIN & ~os.O_NOFOLLOW)


@pytest.fixture(autouse=True)
def no_waiting() -> Iterator[None]:
    """Whoever opens a pipe without care would wait for ever."""
    import signal

    def late(number: int, frame: object) -> None:
        raise TimeoutError("it waits for somebody to write into a pipe")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(LIMIT)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def place(run: Path, name: str, kind: str, secret: Path) -> None:
    """Put something else where the file of a run was."""
    file = run / name
    file.unlink(missing_ok=True)
    if kind == "link":
        file.symlink_to(secret)
    elif kind == "pipe":
        os.mkfifo(file)
    elif kind == "folder":
        shutil.move(file.parent, run.parent / "outside")
        (run.parent / "outside" / file.name).write_bytes(SECRET)
        file.parent.symlink_to(run.parent / "outside")


def floats(run: Path) -> None:
    """Stored as .npy with a view beside it."""
    with Run.open(run, write=True) as opened:
        opened.save_inputs([2, 0], np.linspace(0, 1, 24, dtype=np.float32).reshape(2, 1, 3, 4))


def outputs(run: Path) -> bytes:
    """Everything that is made of a run for others to see."""
    out = run.parent / "out"
    made = []
    for form in ("csv", "folder", "label-studio"):
        try:
            export(run, form, out / form / "x")
        except BadInput as error:
            made.append(str(error).encode())
    try:
        write_report(run, out / "report.html")
    except BadInput as error:
        made.append(str(error).encode())
    return b"".join([*made, *(file.read_bytes() for file in sorted(out.rglob("*")) if file.is_file())])


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
@pytest.mark.parametrize("name", ["inputs/picked-000002.png", "inputs/picked-000002.view.png"])
def test_reports_and_exports_hold_nothing_from_outside(small: Path, secret: Path, name: str, kind: str) -> None:
    if "view" in name:
        floats(small)
    assert len(outputs(small)) > 1000
    shutil.rmtree(small.parent / "out")
    place(small, name, kind, secret)
    import base64

    made = outputs(small)
    assert SECRET not in made
    assert base64.b64encode(SECRET)[:20] not in made


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_inputs_are_read_from_the_run_only(small: Path, secret: Path, kind: str) -> None:
    place(small, "inputs/picked-000002.png", kind, secret)
    with Run.open(small) as run, refused(("untrusted", "not-a-file"), None):
        run.load_input(2)


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_a_lock_that_is_none(small: Path, secret: Path, kind: str) -> None:
    place(small, ".lock", kind, secret)
    assert is_locked(small) is False
    assert list_runs(small.parent)[0].state == "done"
    with refused("not-writable", "lock"):
        Run.open(small, write=True)
    assert secret.read_bytes() == SECRET


@pytest.mark.parametrize("ending", ["", "-wal", "-shm", "-journal"])
@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_a_database_that_is_none(small: Path, secret: Path, ending: str, kind: str) -> None:
    place(small, schema.FILE + ending, kind, secret)
    if ending == "" and kind == "pipe":
        with refused("wrong-run", "run"):
            Run.open(small)
        return
    for write in (False, True):
        with refused(("untrusted", "not-a-file"), None):
            Run.open(small, write=write)
    assert secret.read_bytes() == SECRET


def test_a_journal_that_names_a_file_to_be_removed(small: Path, tmp_path: Path) -> None:
    """SQLite removes the further journal that a journal names: here it would be a file of the reader."""
    mine = tmp_path / "thesis.tex"
    mine.write_text("precious")
    name = str(mine).encode()
    tail = name + len(name).to_bytes(4, "big") + sum(name).to_bytes(4, "big") + schema.SUPER
    journal = schema.SUPER + bytes(504) + (1 << 30).to_bytes(4, "big") + tail
    (small / f"{schema.FILE}-journal").write_bytes(journal)
    for write in (False, True):
        with refused("untrusted", "journal"):
            Run.open(small, write=write)
    assert mine.read_text() == "precious"


# writing


@pytest.mark.parametrize("kind", ["link", "folder"])
def test_nothing_is_written_outside(small: Path, secret: Path, kind: str) -> None:
    place(small, "inputs/picked-000001.png", kind, secret)
    x = np.zeros((1, 3, 4), np.uint8)
    with Run.open(small, write=True) as run:
        if kind == "folder":
            with refused("untrusted", "folder"):
                run.save_input(1, x)
            assert (small.parent / "outside" / "picked-000001.png").read_bytes() == SECRET
        else:
            run.save_input(1, x)
            assert np.array_equal(run.load_input(1), x)
    assert secret.read_bytes() == SECRET
    assert not any(name.is_symlink() for name in small.iterdir() if name.name != "inputs")


def test_what_is_swept_is_never_outside(small: Path, secret: Path) -> None:
    outside = small.parent / "outside"
    outside.mkdir()
    (outside / "fault-000007.png").write_bytes(SECRET)
    (outside / ".x.1.part").write_bytes(SECRET)
    (small / "faults").symlink_to(outside)
    (small / ".run.json.1.part").symlink_to(secret)
    Run.open(small, write=True).close()
    assert sorted(file.name for file in outside.iterdir()) == [".x.1.part", "fault-000007.png"]
    assert secret.exists()


def test_a_part_that_is_a_link_is_not_followed(small: Path, secret: Path) -> None:
    (small / f".run.json.{os.getpid()}.part").symlink_to(secret)
    (small / f".run.json.{os.getpid()}.beside.part").symlink_to(secret)
    with Run.open(small) as run:
        run.export()
    with Run.open(small, write=True) as run:
        run.export()
    assert secret.read_bytes() == SECRET


@pytest.mark.parametrize(
    "name", ["/etc/hostname", "../x", "a/../x", "a/./x", "a//x", "", "a/", "x\0y", "a/b/c/d/e", "x" * 1001, ".", ".."]
)
def test_names_that_are_no_file_of_a_run(tmp_path: Path, name: str) -> None:
    with refused(("untrusted", "syntax"), "path"):
        Folder(tmp_path).file(name)


def test_names_that_nobody_declared_are_not_written(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="no declared name"):
        Folder(tmp_path).file("whatever.txt").write("x")
    folder = Folder(tmp_path, owner=True)
    folder.file("notes/a.txt").write("x")
    (tmp_path / "notes" / "mine.md").write_text("x")
    (tmp_path / "plain.txt").write_text("x")
    assert sorted(folder.names()) == ["notes/a.txt", "notes/mine.md", "plain.txt"]
    folder.withdraw()
    assert sorted(folder.names()) == ["notes/mine.md", "plain.txt"]
    folder.clear()
    assert sorted(folder.names()) == ["notes/mine.md"]


def test_a_file_is_read_up_to_its_limit(tmp_path: Path) -> None:
    (tmp_path / "plain.txt").write_bytes(b"12345")
    file = Folder(tmp_path).file("plain.txt")
    assert file.read(5) == b"12345"
    with refused("too-large"):
        file.read(4)
    with refused("not-found"):
        Folder(tmp_path).file("gone.txt").read()
    for device in (Path("/dev/zero"), Path("/dev/null")):
        with refused("not-a-file"):
            Folder(device.parent).file(device.name).read()


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    folder = Folder(tmp_path, owner=True)
    folder.file("plain.txt").write("old")

    def fail() -> None:
        with folder.file("plain.txt").writing() as file:
            file.write(b"half")
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError):
        fail()
    assert [(name.name, name.read_text()) for name in tmp_path.iterdir()] == [("plain.txt", "old")]
    assert codec.picture(tmp_path / "plain.png") is None


@pytest.mark.parametrize("name", ["inputs\\..\\..\\secret.png", "C:secret.png", "run.json:stream"])
def test_names_that_lead_elsewhere_on_windows(tmp_path: Path, name: str) -> None:
    if handles.KIND is handles.PathHandle:
        with refused("untrusted", "path"):
            Folder(tmp_path).file(name)
    else:
        assert Folder(tmp_path).file(name).exists() is False


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("what", ["file", "folder"])
def test_a_link_that_comes_while_a_file_is_opened_by_path(
    tmp_path: Path, secret: Path, monkeypatch: pytest.MonkeyPatch, when: str, what: str
) -> None:
    """Between the look at a name and its opening, or just afterwards."""
    run, outside = tmp_path / "run", tmp_path / "outside"
    for folder in (run / "notes", outside):
        folder.mkdir(parents=True)
        (folder / "a.txt").write_bytes(SECRET if folder == outside else b"x")
    real = os.open

    def swap() -> None:
        if what == "file":
            (run / "notes" / "a.txt").unlink()
            (run / "notes" / "a.txt").symlink_to(secret)
        else:
            (run / "notes").rename(run / "moved")
            (run / "notes").symlink_to(outside)

    def opened(path: str, flags: int, mode: int = 0o777, **more: int) -> int:
        if not str(path).endswith("a.txt"):
            return real(path, flags, mode, **more)
        monkeypatch.setattr(os, "open", real)
        if when == "before":
            swap()
        number = real(path, flags, mode, **more)
        if when == "after":
            swap()
        return number

    monkeypatch.setattr(os, "open", opened)
    try:
        content = Folder(run).file("notes/a.txt").read()
    except BadInput:
        return
    assert handles.KIND is handles.Handle
    assert content == b"x"


# the database

Change = Callable[[sqlite3.Connection], object]


def schema_text(sql: str, name: str) -> Change:
    def change(db: sqlite3.Connection) -> None:
        db.execute("PRAGMA writable_schema=ON")
        assert db.execute("UPDATE sqlite_master SET sql = ? WHERE name = ?", (sql, name)).rowcount == 1

    return change


def renamed(create: str, old: str, new: str) -> Change:
    """Names that begin with sqlite_ are reserved: they can only be written into the table of tables."""

    def change(db: sqlite3.Connection) -> None:
        db.execute(create)
        db.execute("PRAGMA writable_schema=ON")
        db.execute(
            "UPDATE sqlite_master SET name = ?, tbl_name = replace(tbl_name, ?, ?), sql = replace(sql, ?, ?) WHERE name = ?",
            (new, old, new, old, new, old),
        )

    return change


def sql(statement: str) -> Change:
    return lambda db: db.execute(statement)


CONTROL = "CREATE TABLE control (batch INTEGER PRIMARY KEY CHECK (batch >= 0), contents BLOB NOT NULL{})"


@pytest.mark.parametrize(
    "change",
    [
        sql("CREATE VIRTUAL TABLE words USING fts5(text)"),
        sql("CREATE  VIRTUAL  TABLE words USING fts5(text)"),
        sql("CREATE/**/VIRTUAL TABLE words USING rtree(id, a, b)"),
        sql("CREATE TABLE more (x)"),
        sql("CREATE TABLE more (x, y AS (upper(x)))"),
        sql("ALTER TABLE input ADD COLUMN y AS (abs(position)) VIRTUAL"),
        sql("ALTER TABLE input ADD COLUMN y TEXT"),
        sql("ALTER TABLE input RENAME COLUMN extra TO other"),
        sql("CREATE INDEX evil ON meta (hex(value))"),
        sql("CREATE VIEW meta2 AS SELECT * FROM meta"),
        sql("CREATE TRIGGER t AFTER INSERT ON meta BEGIN DELETE FROM label; END"),
        sql("ANALYZE"),
        renamed("CREATE TABLE evil (x, y AS (abs(x)))", "evil", "sqlite_evil"),
        renamed("CREATE VIEW evil AS SELECT 1", "evil", "sqlite_evil"),
        renamed("CREATE TRIGGER evil AFTER INSERT ON meta BEGIN DELETE FROM label; END", "evil", "sqlite_evil"),
        schema_text(CONTROL.format(", more AS (abs(batch))"), "control"),
        schema_text(CONTROL.format(" DEFAULT (load_extension('x'))"), "control"),
        schema_text(CONTROL.format("").replace("batch >= 0", "abs(batch) >= 0"), "control"),
        schema_text("CREATE TABLE control AS SELECT 1", "control"),
    ],
)
def test_any_other_schema_is_refused(small: Path, change: Change) -> None:
    db = sqlite3.connect(small / schema.FILE)
    change(db)
    db.commit()
    db.close()
    for write in (False, True):
        with refused(("untrusted", "damaged"), None):
            Run.open(small, write=write)


def test_another_encoding_and_a_database_too_large_are_refused(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "LARGEST_FILE", (small / schema.FILE).stat().st_size)
    Run.open(small).close()
    monkeypatch.setattr(schema, "LARGEST_FILE", (small / schema.FILE).stat().st_size - 1)
    with refused("too-large"):
        Run.open(small)
    monkeypatch.undo()
    old = sqlite3.connect(small / schema.FILE)
    statements = list(old.iterdump())
    old.close()
    (small / schema.FILE).unlink()
    new = sqlite3.connect(small / schema.FILE)
    new.execute("PRAGMA encoding='UTF-16le'")
    new.execute(f"PRAGMA application_id={schema.APPLICATION}")
    new.execute(f"PRAGMA user_version={len(schema.MIGRATIONS)}")
    new.executescript("\n".join(line for line in statements if "sqlite_sequence" not in line))
    new.close()
    with refused("untrusted", "pages"):
        Run.open(small)


def test_a_row_that_is_too_large_is_refused(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Run.open(small, write=True) as run:
        run["long"] = "x" * 20_000
    monkeypatch.setattr(schema, "LARGEST_ROW", 10_000)
    with Run.open(small) as run, refused("damaged", "database"):
        run["long"]


# reading beside a writer


def test_a_settled_run_is_read_without_a_trace(small: Path) -> None:
    before = {file.name: file.stat().st_mtime_ns for file in small.iterdir()}
    with Run.open(small) as run:
        assert run["state"] == "done"
        assert run._settled is not None
    assert {file.name: file.stat().st_mtime_ns for file in small.iterdir()} == before


def test_a_reader_follows_a_writer_that_comes_later(small: Path) -> None:
    with Run.open(small) as reader:
        assert "note" not in reader
        with Run.open(small, write=True) as writer:
            writer["note"] = 1
            assert reader["note"] == 1
            with Run.open(small) as second:
                assert second["note"] == 1
            writer["note"] = 2
            assert reader["note"] == 2
        assert reader["note"] == 2


def test_a_run_whose_writer_died_is_read_with_its_log(small: Path, tmp_path: Path) -> None:
    with Run.open(small, write=True) as writer:
        writer["note"] = "committed, and only in the log"
        shutil.copytree(small, tmp_path / "died")
    assert (tmp_path / "died" / f"{schema.FILE}-wal").stat().st_size > 0
    with Run.open(tmp_path / "died") as run:
        assert run["note"] == "committed, and only in the log"


def test_a_run_whose_writer_died_in_the_database_itself_is_mended(small: Path, tmp_path: Path) -> None:
    db = sqlite3.connect(small / schema.FILE, isolation_level=None)
    db.execute("PRAGMA cache_size=1")
    db.execute("BEGIN")
    db.execute("UPDATE meta SET value = '\"torn\"' WHERE key = 'state'")
    db.executemany("INSERT INTO input (position, content) VALUES (?, ?)", [(i, "x" * 500) for i in range(100, 400)])
    shutil.copytree(small, tmp_path / "died")
    db.execute("ROLLBACK")
    db.close()
    assert (tmp_path / "died" / f"{schema.FILE}-journal").stat().st_size > 0
    with Run.open(tmp_path / "died") as run:
        assert (run["state"], len(run.inputs())) == ("done", 3)
