"""The tables of a run and how they came about. A new table or column is a new entry at the end of MIGRATIONS.

`PRAGMA user_version` counts the entries applied to a database; entries that were ever released are never edited.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from neurotest.errors import BadInput

FILE = "run.sqlite"
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
]


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """SQLite's complaints as sentences."""
    try:
        yield
    except sqlite3.IntegrityError as error:
        raise BadInput(f"{path}: the row does not fit what the run holds ({error}).") from error
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
            raise BadInput(f"cannot write to {path}: {error}. What was saved stays; free some space and resume.") from error
        if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
            raise BadInput(f"cannot open {path}: {error}. Copy the run to a place you may write to.") from error
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise BadInput(f"{path} is held by another program ({error}): close it and try again.") from error
        raise BadInput(f"{path} cannot be read: {error}. It is damaged or no run of neurotest.") from error


def connect(path: Path, *, write: bool) -> sqlite3.Connection:
    """A connection that trusts nothing in the file. The caller translates errors."""
    if path.is_symlink():
        raise BadInput(f"{path} is a link: refused, a run holds its own database.")
    mode = "rw" if write else "ro"
    connection = sqlite3.connect(f"file:{quote(str(path.resolve()))}?mode={mode}", uri=True, isolation_level=None)
    connection.execute("PRAGMA trusted_schema=OFF")
    connection.execute("PRAGMA cell_size_check=ON")
    connection.execute("PRAGMA foreign_keys=ON")
    return connection


def version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def build(path: Path, meta: dict[str, str]) -> None:
    """A new database with every table and these entries of `meta` (JSON texts), at a path where nothing is yet."""
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        connection.execute(f"PRAGMA application_id={APPLICATION}")
        migrate(connection)
        connection.execute("BEGIN")
        connection.executemany("INSERT INTO meta VALUES (?, ?)", meta.items())
        connection.execute("COMMIT")
    finally:
        connection.close()


def migrate(connection: sqlite3.Connection) -> None:
    """Apply the entries that this database lacks, all or none."""
    applied = version(connection)
    if applied == len(MIGRATIONS):
        return
    connection.execute("BEGIN IMMEDIATE")
    for statements in MIGRATIONS[applied:]:
        for statement in statements:
            connection.execute(statement)
    connection.execute(f"PRAGMA user_version={len(MIGRATIONS)}")
    connection.execute("COMMIT")


def _objects(connection: sqlite3.Connection) -> dict[tuple[str, str], str]:
    rows = connection.execute("SELECT type, name, coalesce(sql, '') FROM sqlite_master").fetchall()
    # Names that begin with sqlite_ are reserved: SQLite's own indexes and counters, and nobody else's.
    return {(kind, name): sql for kind, name, sql in rows if not str(name).startswith("sqlite_")}


def check(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse what is no run, what is newer than this program, and what could act: views, triggers, virtual tables not ours."""
    if connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION:
        raise BadInput(f"{path} is a database, but no run of neurotest.")
    applied = version(connection)
    if applied > len(MIGRATIONS):
        raise BadInput(
            f"{path} was written by a newer neurotest (schema {applied}, this one knows {len(MIGRATIONS)}): upgrade neurotest."
        )
    if applied < 1:
        raise BadInput(f"{path} holds no tables: it is damaged or no run of neurotest.")
    reference = sqlite3.connect(":memory:", isolation_level=None)
    try:
        for statement in (s for statements in MIGRATIONS[:applied] for s in statements):
            reference.execute(statement)
        ours = _objects(reference)
    finally:
        reference.close()
    theirs = _objects(connection)
    if lacking := sorted(name for _, name in ours.keys() - theirs.keys()):
        raise BadInput(f"{path} lacks {', '.join(lacking)}: it is damaged or no run of neurotest.")
    for (kind, name), sql in theirs.items():
        plain_table = kind == "table" and not sql.upper().startswith("CREATE VIRTUAL")
        if not plain_table and ours.get((kind, name)) != sql:
            raise BadInput(f"{path} holds a {kind} {name!r} that neurotest did not put there: refused.")


def open_checked(path: Path, *, write: bool) -> sqlite3.Connection:
    """Open a run's database: writers bring its tables up to date, readers of an older one see an updated copy in memory."""
    connection = connect(path, write=write)
    try:
        check(connection, path)
        if write:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=NORMAL")
            migrate(connection)
        elif version(connection) < len(MIGRATIONS):
            copy = sqlite3.connect(":memory:", isolation_level=None)
            copy.execute("PRAGMA trusted_schema=OFF")
            connection.backup(copy)
            connection.close()
            connection = copy
            migrate(connection)
        return connection
    except BaseException:
        connection.close()
        raise
