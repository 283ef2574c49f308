"""The tables of a run and how they came about. A new table or column is a new entry at the end of MIGRATIONS.

`PRAGMA user_version` counts the entries applied to a database; entries that were ever released are never edited.
"""

from __future__ import annotations

import functools
import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

from neurotest.errors import BadInput
from neurotest.runs.folder import Folder

FILE = "run.sqlite"
WAL, JOURNAL = "-wal", "-journal"
BESIDE = (WAL, JOURNAL, "-shm")  # what SQLite keeps beside a database
SUPER = bytes.fromhex("d9d505f920a163d7")  # the end of a journal that names another one
LARGEST_FILE = 1 << 34  # bytes of a database
LARGEST_ROW = 1 << 29  # and of one row in it
APPLICATION = 0x4E545354  # "NTST": tells our database from any other

MIGRATIONS: list[tuple[str, ...]] = [
    (
        "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
        """CREATE TABLE input (
            position INTEGER PRIMARY KEY CHECK (position >= 0),
            content TEXT NOT NULL,
            label INTEGER,
            predicted INTEGER,
            extra TEXT NOT NULL DEFAULT '{}')""",
        """CREATE TABLE file (
            position INTEGER NOT NULL REFERENCES input (position),
            role TEXT NOT NULL,
            path TEXT NOT NULL UNIQUE,
            PRIMARY KEY (position, role)) WITHOUT ROWID""",
        "CREATE TABLE method (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, picked INTEGER NOT NULL)",
        """CREATE TABLE ranking (
            method INTEGER NOT NULL REFERENCES method (id),
            rank INTEGER NOT NULL CHECK (rank >= 1),
            position INTEGER NOT NULL REFERENCES input (position),
            score REAL,
            PRIMARY KEY (method, rank),
            UNIQUE (method, position)) WITHOUT ROWID""",
        """CREATE TABLE label (
            n INTEGER PRIMARY KEY AUTOINCREMENT,
            position INTEGER NOT NULL REFERENCES input (position),
            label INTEGER,
            by TEXT NOT NULL,
            at TEXT NOT NULL,
            undoes INTEGER UNIQUE REFERENCES label (n))""",
        # A person's label is never changed or lost, only followed by another row.
        "CREATE TRIGGER label_stays BEFORE DELETE ON label BEGIN SELECT RAISE(ABORT, 'labels are never deleted'); END",
        "CREATE TRIGGER label_is_final BEFORE UPDATE ON label BEGIN SELECT RAISE(ABORT, 'labels are never changed'); END",
    ),
    # Campaigns: what came out, what is alive, and where the fuzzer stood.
    (
        """CREATE TABLE mutant (
            number INTEGER PRIMARY KEY CHECK (number >= 0),
            batch INTEGER NOT NULL,
            iteration INTEGER NOT NULL,
            root INTEGER NOT NULL REFERENCES input (position),
            content TEXT NOT NULL,
            expected INTEGER NOT NULL,
            predicted INTEGER NOT NULL,
            oracle TEXT,
            operator TEXT NOT NULL,
            accepted INTEGER NOT NULL,
            gain REAL,
            l0 REAL NOT NULL,
            l2 REAL NOT NULL,
            linf REAL NOT NULL,
            chain TEXT NOT NULL,
            file TEXT UNIQUE)""",
        "CREATE INDEX mutant_family ON mutant (expected, predicted, operator)",
        """CREATE TABLE corpus (
            number INTEGER PRIMARY KEY CHECK (number >= 0),
            root INTEGER NOT NULL,
            used INTEGER NOT NULL,
            chain TEXT NOT NULL,
            x BLOB NOT NULL,
            reference BLOB NOT NULL)""",
        "CREATE TABLE snapshot (name TEXT PRIMARY KEY, content BLOB NOT NULL) WITHOUT ROWID",
        """CREATE TABLE shrunk (
            expected INTEGER NOT NULL,
            predicted INTEGER NOT NULL,
            operator TEXT NOT NULL,
            mutant INTEGER NOT NULL,
            content TEXT NOT NULL,
            chain TEXT NOT NULL,
            about TEXT NOT NULL,
            file TEXT,
            PRIMARY KEY (expected, predicted, operator)) WITHOUT ROWID""",
    ),
    # Their control: contents of what it output, eight bytes each, a row per batch.
    ("CREATE TABLE control (batch INTEGER PRIMARY KEY CHECK (batch >= 0), contents BLOB NOT NULL)",),
    # Labelling by several people at once: who looks at what, until when; which inputs are none; and where a label was given.
    (
        "ALTER TABLE label ADD COLUMN valid INTEGER NOT NULL DEFAULT 1",
        "ALTER TABLE label ADD COLUMN session TEXT NOT NULL DEFAULT ''",
        """CREATE TABLE lease (
            position INTEGER PRIMARY KEY REFERENCES input (position),
            holder TEXT NOT NULL,
            until REAL NOT NULL)""",
    ),
    # Networks that predict a quantity: what they answer to a mutant.
    ("ALTER TABLE mutant ADD COLUMN answer REAL",),
    # And what a person says that the quantity is; the label beside it counts whether the network is near enough.
    ("ALTER TABLE label ADD COLUMN value REAL",),
    # Rounds of an adaptive selection after the first, a row each; those of earlier versions stay in `meta`.
    ("CREATE TABLE round (number INTEGER PRIMARY KEY CHECK (number >= 1), content TEXT NOT NULL)",),
]


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """SQLite's complaints as sentences."""
    try:
        yield
    except sqlite3.IntegrityError as error:
        raise BadInput("damaged", "row", f"{path}: the row does not fit what the run holds ({error}).") from error
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
            raise BadInput(
                "not-writable", "", f"cannot write to {path}: {error}. What was saved stays; free some space and resume."
            ) from error
        if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
            raise BadInput("unreadable", "", f"cannot open {path}: {error}. Copy the run to a place you may write to.") from error
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise BadInput("busy", "", f"{path} is held by another program ({error}): close it and try again.") from error
        raise BadInput(
            "damaged", "database", f"{path} cannot be read: {error}. It is damaged or not a run of neurotest."
        ) from error
    except UnicodeDecodeError as error:
        raise BadInput(
            "damaged", "text", f"{path} cannot be read: it holds no text in UTF-8. It is damaged or not a run of neurotest."
        ) from error


def _connect(path: Path, *, write: bool, immutable: bool = False) -> sqlite3.Connection:
    """A connection that trusts nothing in the file. The caller translates errors.

    immutable: nobody writes it, so SQLite need not lock it, look for a log beside it or make one.
    """
    _look(path)
    mode = "rw" if write else "ro&immutable=1" if immutable else "ro"
    connection = sqlite3.connect(f"file:{quote(os.fsencode(path.resolve()))}?mode={mode}", uri=True, isolation_level=None)
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LARGEST_ROW)
    connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    connection.execute("PRAGMA trusted_schema=OFF")
    connection.execute("PRAGMA cell_size_check=ON")
    connection.execute("PRAGMA foreign_keys=ON")
    return connection


def _look(path: Path) -> None:
    """Refuse links, pipes and the like instead of the database and what SQLite keeps beside it, before SQLite follows them."""
    for name in (path, *(path.with_name(path.name + ending) for ending in BESIDE)):
        try:
            status = os.stat(name, follow_symlinks=False)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise BadInput(
                "unreadable", "", f"cannot open {name}: {error.strerror}. Copy the run to a place you may read."
            ) from error
        if stat.S_ISLNK(status.st_mode):
            raise BadInput("untrusted", "link", f"{name} is a link: refused, a run holds its own database.")
        if not stat.S_ISREG(status.st_mode):
            raise BadInput("not-a-file", "", f"{name} is not a plain file: refused.")
        if status.st_size > LARGEST_FILE:
            raise BadInput("too-large", "", f"{name} has {status.st_size:,} bytes, {LARGEST_FILE:,} are allowed: refused.")
        if name.name.endswith(JOURNAL) and status.st_size >= len(SUPER):
            with open(name, "rb") as journal:
                journal.seek(-len(SUPER), os.SEEK_END)
                if journal.read() == SUPER:
                    raise BadInput("untrusted", "journal", f"{name} names a further journal, which SQLite would remove: refused.")


def settled(path: Path) -> tuple[int, ...] | None:
    """What tells whether the database has changed; None while there is a log beside it, so that it may change any time."""
    try:
        for ending in (WAL, JOURNAL):
            with suppress(FileNotFoundError):
                if os.stat(path.with_name(path.name + ending), follow_symlinks=False).st_size:
                    return None
        status = os.stat(path, follow_symlinks=False)
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def torn(path: Path) -> bool:
    """Whether its last writer died while it wrote into the database itself: only a writer can put that right."""
    return path.with_name(path.name + JOURNAL).is_file()


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def create(folder: Folder, meta: dict[str, str]) -> None:
    """A new database with every table and these entries of `meta` (JSON texts), whole or not at all."""
    with folder.file(FILE).replacing() as part:
        connection = sqlite3.connect(part, isolation_level=None)
        try:
            connection.execute(f"PRAGMA application_id={APPLICATION}")
            _migrate(connection)
            connection.execute("BEGIN")
            connection.executemany("INSERT INTO meta VALUES (?, ?)", meta.items())
            connection.execute("COMMIT")
        finally:
            connection.close()


def _migrate(connection: sqlite3.Connection) -> None:
    """Apply the entries that this database lacks, all or none."""
    applied = _version(connection)
    if applied == len(MIGRATIONS):
        return
    connection.execute("BEGIN IMMEDIATE")
    for statements in MIGRATIONS[applied:]:
        for statement in statements:
            connection.execute(statement)
    connection.execute(f"PRAGMA user_version={len(MIGRATIONS)}")
    connection.execute("COMMIT")


def _objects(connection: sqlite3.Connection) -> dict[tuple[str, str], tuple[str, str]]:
    rows = connection.execute("SELECT type, name, tbl_name, coalesce(sql, '') FROM sqlite_master").fetchall()
    return {(str(kind), str(name)): (str(table), str(sql)) for kind, name, table, sql in rows}


@functools.cache
def _expected(applied: int) -> dict[tuple[str, str], tuple[str, str]]:
    reference = sqlite3.connect(":memory:", isolation_level=None)
    try:
        for statement in (s for statements in MIGRATIONS[:applied] for s in statements):
            reference.execute(statement)
        return _objects(reference)
    finally:
        reference.close()


def _check(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse what is no run, what is newer than this program, and every table, column, index or trigger that is not ours."""
    if connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION:
        raise BadInput("wrong-run", "database", f"{path} is a database, but no run of neurotest.")
    applied = _version(connection)
    if applied > len(MIGRATIONS):
        raise BadInput(
            "unsupported",
            "schema",
            f"{path} was written by a newer neurotest (schema {applied}, this one knows {len(MIGRATIONS)}): upgrade neurotest.",
        )
    if applied < 1:
        raise BadInput("damaged", "tables", f"{path} holds no tables: it is damaged or not a run of neurotest.")
    pages, size, encoding = (connection.execute(f"PRAGMA {p}").fetchone()[0] for p in ("page_count", "page_size", "encoding"))
    if pages * size > LARGEST_FILE or encoding != "UTF-8":
        raise BadInput(
            "untrusted",
            "pages",
            f"{path} has {pages:,} pages of {size:,} bytes in {encoding}: refused, no run of neurotest is like that.",
        )
    ours, theirs = _expected(applied), _objects(connection)
    if lacking := sorted(name for _, name in ours.keys() - theirs.keys()):
        raise BadInput("damaged", "columns", f"{path} lacks {', '.join(lacking)}: it is damaged or not a run of neurotest.")
    for (kind, name), definition in theirs.items():
        if ours.get((kind, name)) != definition:
            raise BadInput(
                "untrusted", "objects", f"{path} holds a {kind[:20]} {name[:80]!r} that neurotest did not put there: refused."
            )


def open_checked(path: Path, *, write: bool, immutable: bool = False) -> sqlite3.Connection:
    """Open a run's database: writers bring its tables up to date, readers of an older one see an updated copy in memory."""
    connection = _connect(path, write=write, immutable=immutable)
    try:
        _check(connection, path)
        if write:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=NORMAL")
            _migrate(connection)
        elif _version(connection) < len(MIGRATIONS):
            copy = sqlite3.connect(":memory:", isolation_level=None)
            copy.execute("PRAGMA trusted_schema=OFF")
            connection.backup(copy)
            connection.close()
            connection = copy
            _migrate(connection)
        return connection
    except BaseException:
        connection.close()
        raise
