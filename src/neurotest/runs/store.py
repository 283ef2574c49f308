"""The store of a run: one writer, everything committed is kept, files before the rows that name them."""

from __future__ import annotations

import re
import sqlite3
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from itertools import count, repeat
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from neurotest import __version__, files
from neurotest.errors import BadInput, near
from neurotest.runs import codec, schema, seal
from neurotest.runs.lock import NAME as LOCK
from neurotest.runs.lock import Lock
from neurotest.runs.plain import dumps, plain
from neurotest.runs.rows import FileRow, InputRow, LabelRow, MethodRow, RankedRow, integer, loads, read, stored_input

ROOT = Path("neurotest-runs")
INPUTS = "inputs"
# What the run itself keeps in meta; everything else there belongs to the command.
OWN = ("id", "command", "config", "version", "created", "state", "finished", "summary")
ROLE = re.compile(r"[a-z][a-z0-9_]*(-[a-z0-9_]+)*")
OUR_FILE = re.compile(rf"{ROLE.pattern}-[0-9]{{6,}}\.(png|npy|view\.png)|\..*\.part")

WHOLE = ("BEGIN IMMEDIATE", "COMMIT", "ROLLBACK")
PART = ("SAVEPOINT part", "RELEASE part", "ROLLBACK TO part")


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


class Run:
    """An open run. Use it as a context manager; `create` and `open(write=True)` hold the run's lock until it closes."""

    def __init__(self, path: Path, connection: sqlite3.Connection, lock: Lock | None) -> None:
        self.path = path
        self._file = path / schema.FILE
        self._db = connection
        self._lock = lock

    @classmethod
    def create(cls, out: Path | str | None, command: str, config: dict[str, Any]) -> Run:
        """A new run at `out`, by default `./neurotest-runs/COMMAND-TIME`. An existing run is refused.

        `config` is what the command was started with, the target's spec included: `made_here` vouches for nothing else.
        """
        path = _default_place(command) if out is None else _place(Path(out))
        lock = Lock.take(path)
        try:
            _refuse_occupied(path)
            entries = {"id": uuid.uuid4().hex, "command": command, "config": plain(config), "created": now()}
            meta = {**entries, "version": __version__, "state": "running", "summary": None, "finished": None}
            with files.whole(path / schema.FILE) as part, schema.translated(path / schema.FILE):
                schema.build(part, {key: dumps(value) for key, value in meta.items()})
            seal.keep(entries["id"], command, entries["config"])
            with schema.translated(path / schema.FILE):
                return cls(path, schema.open_checked(path / schema.FILE, write=True), lock)
        except BaseException:
            lock.release()
            raise

    @classmethod
    def open(cls, path: Path | str, *, write: bool = False) -> Run:
        """A run that exists. Writing takes its lock and removes files that no row names (a crash came between)."""
        path = Path(path)
        _refuse_no_run(path)
        lock = Lock.take(path) if write else None
        try:
            with schema.translated(path / schema.FILE):
                run = cls(path, schema.open_checked(path / schema.FILE, write=write), lock)
            if write:
                run._sweep()
            return run
        except BaseException:
            if lock:
                lock.release()
            raise

    def close(self) -> None:
        """Commit nothing more and let go. A closed run is one plain file that can be copied and read from anywhere."""
        if self._lock is not None:
            with suppress(sqlite3.Error):  # another reader holds on: then the log stays beside the database, which is fine too
                self._db.execute("PRAGMA busy_timeout=0")
                self._db.execute("PRAGMA journal_mode=DELETE")
        self._db.close()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"

    @contextmanager
    def transaction(self, *, durable: bool = False) -> Iterator[None]:
        """Everything inside is kept together or not at all; inside another one it is a part that can fail on its own.

        `durable` waits until the disk has it (labels do): a power cut loses nothing. Without, only a power cut can.
        """
        if self._lock is None:
            raise BadInput(f"{self.path} is open for reading only: open it with write=True.")
        inner = self._db.in_transaction
        begin, end, back = PART if inner else WHOLE
        with schema.translated(self._file):
            if not inner:
                self._db.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
            self._db.execute(begin)
            try:
                yield
                self._db.execute(end)
            except BaseException:
                with suppress(sqlite3.Error):  # a full disk may have ended the transaction already
                    self._db.execute(back)
                    if inner:
                        self._db.execute(end)
                raise

    def _rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        with schema.translated(self._file):
            return self._db.execute(query, values).fetchall()

    def rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        """What a query of another package's own tables gives."""
        return self._rows(query, *values)

    def change(self, query: str, rows: Iterable[tuple[Any, ...]]) -> None:
        """Run a statement once per row, inside a transaction."""
        with self.transaction():
            self._db.executemany(query, rows)

    # meta

    def __getitem__(self, key: str) -> Any:
        rows = self._rows("SELECT value FROM meta WHERE key = ?", key)
        if not rows:
            raise KeyError(key)
        return loads(rows[0][0], self._file)

    def __setitem__(self, key: str, value: Any) -> None:
        if key in OWN:
            raise BadInput(f"meta {key!r} is kept by the run itself: choose another key.")
        self._set(key, value)

    def __contains__(self, key: object) -> bool:
        return bool(self._rows("SELECT 1 FROM meta WHERE key = ?", key))

    def keys(self) -> list[str]:
        return [key for (key,) in self._rows("SELECT key FROM meta ORDER BY key")]

    def _set(self, key: str, value: Any) -> None:
        with self.transaction():
            self._db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, dumps(value)))

    @property
    def made_here(self) -> bool:
        """Whether this user made this run on this machine and its command and config are still what they were."""
        return seal.fits(str(self["id"]), self["command"], self["config"])

    def disown(self) -> None:
        """From now on the run counts as made elsewhere: its configuration comes from somebody else."""
        seal.forget(str(self["id"]))

    def finish(self, summary: dict[str, Any]) -> None:
        """The work is done: state and summary."""
        with self.transaction(durable=True):
            for key, value in (("state", "done"), ("finished", now()), ("summary", summary)):
                self._set(key, value)

    def reopen(self) -> None:
        """The work goes on: a finished run is running again."""
        with self.transaction():
            for key, value in (("state", "running"), ("finished", None), ("summary", None)):
                self._set(key, value)

    # inputs and their files

    def add_inputs(self, rows: Iterable[InputRow | Mapping[str, Any]]) -> None:
        """Rows with position, content and, where known, label, predicted, extra. All or none of the call are kept."""
        inputs = (row if isinstance(row, InputRow) else InputRow(**row) for row in rows)
        with self.transaction():
            self._db.executemany("INSERT INTO input VALUES (?, ?, ?, ?, ?)", map(stored_input, inputs))

    def clear_inputs(self) -> None:
        """Forget all inputs and their files, to write them anew after a crash; files go when the run is opened again."""
        with self.transaction():
            for table in ("file", "input"):
                self._db.execute(f"DELETE FROM {table}")

    def inputs(self) -> list[InputRow]:
        rows = self._rows("SELECT position, content, label, predicted, extra FROM input ORDER BY position")
        return [read(InputRow, (*row[:4], loads(row[4], self._file)), self._file) for row in rows]

    def save_input(self, position: int, x: np.ndarray, role: str = "picked", bounds: tuple[float, float] = (0.0, 1.0)) -> Path:
        """Store the input itself as RUN/inputs/ROLE-POSITION.png (or .npy); the same position and role again replaces it."""
        if not ROLE.fullmatch(role):
            raise BadInput(f"role={role!r}: expected lower-case words joined by - (picked, original).")
        position = int(position)
        if not self._rows("SELECT 1 FROM input WHERE position = ?", position):
            raise BadInput(f"position {position} is no input of {self.path}: add_inputs comes first.")
        with self.transaction():
            path = codec.encode(x, files.inside(self.path, f"{INPUTS}/{role}-{position:06d}"), bounds)
            self._db.execute("INSERT OR REPLACE INTO file VALUES (?, ?, ?)", (position, role, f"{INPUTS}/{path.name}"))
        return path

    def save_inputs(
        self, positions: ArrayLike, x: Iterable[np.ndarray], role: str = "picked", bounds: tuple[float, float] = (0.0, 1.0)
    ) -> list[Path]:
        """`save_input` for many, their rows in one transaction."""
        with self.transaction():
            return [self.save_input(i, image, role, bounds) for i, image in zip(np.asarray(positions).tolist(), x, strict=True)]

    def files(self, role: str | None = None) -> list[FileRow]:
        """Stored inputs by position; a path that leaves the run is refused."""
        rows = self._rows("SELECT position, role, path FROM file WHERE ?1 IS NULL OR role = ?1 ORDER BY position, role", role)
        return [read(FileRow, (*row[:2], files.inside(self.path, str(row[2]))), self._file) for row in rows]

    def load_input(self, position: int, role: str = "picked") -> codec.Input:
        """Exactly what `save_input` stored."""
        rows = self._rows("SELECT path FROM file WHERE position = ? AND role = ?", int(position), role)
        if not rows:
            raise BadInput(f"{self.path} stores no input {position} as {role!r}.")
        return codec.decode(files.inside(self.path, str(rows[0][0])))

    def _sweep(self) -> None:
        names = {str(path) for (path,) in self._rows("SELECT path FROM file")}
        codec.remove_orphans(self.path / INPUTS, names, OUR_FILE)

    # rankings

    def add_ranking(self, method: str, positions: ArrayLike, scores: ArrayLike | None, picked: int) -> None:
        """An order over inputs of the run, most valuable first, of which the first `picked` were selected."""
        order = np.asarray(positions)
        values = None if scores is None else np.asarray(scores, dtype=np.float64)
        if order.ndim != 1 or not np.issubdtype(order.dtype, np.integer):
            raise BadInput(f"ranking {method}: expected positions as one row of integers.")
        if values is not None and values.shape != order.shape:
            raise BadInput(f"ranking {method}: {order.size} positions, but scores of shape {values.shape}.")
        if not 0 <= picked <= order.size:
            raise BadInput(f"ranking {method}: picked={picked}, expected 0 to {order.size}.")
        if method in {row.name for row in self.methods()}:
            raise BadInput(f"{self.path} already has a ranking by {method}.")
        with self.transaction():
            number = self._db.execute("INSERT INTO method (name, picked) VALUES (?, ?)", (method, int(picked))).lastrowid
            column = [None] * order.size if values is None else values.tolist()
            places = zip(repeat(number, order.size), range(1, order.size + 1), order.tolist(), column, strict=True)
            self._db.executemany("INSERT INTO ranking VALUES (?, ?, ?, ?)", places)

    def methods(self) -> list[MethodRow]:
        """The rankings there are, in the order they were added."""
        query = "SELECT name, picked, (SELECT count(*) FROM ranking WHERE method = id) FROM method ORDER BY id"
        return [read(MethodRow, row, self._file) for row in self._rows(query)]

    def ranking(self, method: str) -> list[RankedRow]:
        """One ranking in order."""
        methods = self._rows("SELECT id, picked FROM method WHERE name = ?", method)
        if not methods:
            raise BadInput(f"{self.path} has no ranking by {method!r}. {near(method, [row.name for row in self.methods()])}")
        query = "SELECT rank, position, score, rank <= ? FROM ranking WHERE method = ? ORDER BY rank"
        number, picked = methods[0]
        rows = self._rows(query, picked, number)
        return [read(RankedRow, (*row[:3], bool(row[3])), self._file) for row in rows]

    # labels

    def add_label(self, position: int, label: int | None, by: str = "") -> int:
        """A person's label of an input, on disk when this returns; None is "cannot tell". Gives the row's number."""
        return self._add_label_row(int(position), integer(label), by, None)

    def undo_label(self, n: int, by: str = "") -> int:
        """Take back row n with a row of its own; the earlier label of that input counts again."""
        rows = {row.n: row for row in self.label_history()}
        if n not in rows or rows[n].undoes is not None:
            raise BadInput(f"label {n} does not exist: give a number that add_label returned.")
        if any(row.undoes == n for row in rows.values()):
            raise BadInput(f"label {n} is undone already.")
        return self._add_label_row(rows[n].position, None, by, n)

    def _add_label_row(self, position: int, label: int | None, by: str, undoes: int | None) -> int:
        query = "INSERT INTO label (position, label, by, at, undoes) VALUES (?, ?, ?, ?, ?)"
        with self.transaction(durable=True):
            n = self._db.execute(query, (position, label, by, now(), undoes)).lastrowid
        assert n is not None
        return n

    def label_history(self) -> list[LabelRow]:
        """Every row ever added, undone ones and undos included."""
        rows = self._rows("SELECT n, position, label, by, at, undoes FROM label ORDER BY n")
        return [read(LabelRow, row, self._file) for row in rows]

    def labels(self) -> list[LabelRow]:
        """What counts now: the last row about each input that was not taken back, in the order they were added."""
        history = self.label_history()
        undone = {row.undoes for row in history}
        last = {row.position: row for row in history if row.undoes is None and row.n not in undone}
        return sorted(last.values())

    def export(self) -> None:
        """Write run.json and, where there are rankings, selection.csv, each whole or not at all."""
        from neurotest.runs.export import export

        export(self)


def _default_place(command: str) -> Path:
    """A new directory named by command and time; a second one in the same second gets -2."""
    stem = f"{command}-{datetime.now().astimezone():%Y%m%d-%H%M%S}"
    for n in count(1):
        path = ROOT / (stem if n == 1 else f"{stem}-{n}")
        try:
            path.mkdir(parents=True)
            return path
        except FileExistsError:
            if not ROOT.is_dir():
                raise BadInput(f"{ROOT} is a file: choose another place with --out.") from None
        except OSError as error:
            raise BadInput(f"cannot make {path}: {error.strerror}. Choose another place with --out.") from error
    raise AssertionError("unreachable")


def _place(path: Path) -> Path:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise BadInput(f"--out {path} is a file: give a directory that does not exist yet.") from None
    except OSError as error:
        raise BadInput(f"cannot make --out {path}: {error.strerror}. Choose another place.") from error
    _refuse_occupied(path)
    return path


def _refuse_no_run(path: Path) -> None:
    try:
        if (path / schema.FILE).is_file():
            return
        what = "holds no run.sqlite" if path.is_dir() else "is no directory" if path.exists() else "does not exist"
    except OSError as error:
        raise BadInput(f"cannot open {path}: {error.strerror}.") from error
    raise BadInput(f"{path} is no run: it {what}. `neurotest runs list` shows the runs here.")


def _refuse_occupied(path: Path) -> None:
    try:
        names = sorted(entry.name for entry in path.iterdir())
    except OSError as error:
        raise BadInput(f"cannot look into --out {path}: {error.strerror}. Choose another place.") from error
    if schema.FILE in names:
        raise BadInput(f"{path} holds a run already: continue it with --resume {path}, or choose another --out.")
    # What a run that died while being made leaves behind is ours to overwrite; anything else is somebody's.
    if others := [name for name in names if name != LOCK and not name.startswith(f".{schema.FILE}.")]:
        raise BadInput(f"--out {path} is not empty (it holds {others[0]}): give a directory that does not exist yet.")
