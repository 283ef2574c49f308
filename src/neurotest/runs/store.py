"""The store of a run: one writer, everything committed is kept, files before the rows that name them."""

from __future__ import annotations

import re
import sqlite3
import uuid
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from neurotest import __version__
from neurotest.errors import BadInput
from neurotest.reading import reason
from neurotest.runs import codec, places, schema, seal
from neurotest.runs.folder import Folder, RunFile, declare
from neurotest.runs.lock import NAME as LOCK
from neurotest.runs.lock import Lock, is_locked
from neurotest.runs.rows import Absent, FileRow, InputRow, dumps, loads, plain, read, stored_input
from neurotest.runs.tables import Tables, now

INPUTS = "inputs"
# What the run itself keeps in meta; everything else there belongs to the command.
META_TYPES: dict[str, tuple[type, ...]] = {
    "id": (object,), "command": (str,), "config": (object,), "version": (str,), "created": (str,), "state": (str,),
    "finished": (str, type(None)), "summary": (dict, type(None)), "resumable": (object,), "filled": (object,),
}  # fmt: skip
UNCHANGING = (
    "id",
    "command",
    "config",
)  # what `made_here` looks at is what is used, though somebody may write the file meanwhile
# What taking apart values of other types raises.
UNFIT = (LookupError, TypeError, AttributeError, ValueError, OverflowError, RecursionError)
ROLE = re.compile(r"[a-z][a-z0-9_]*(-[a-z0-9_]+)*")
ENDING = r"(png|npy|wav|view\.png)"
declare(r"run\.json|selection\.csv")  # exports
STORED = declare(rf"{INPUTS}/{ROLE.pattern}-[0-9]{{6,}}\.{ENDING}|faults/(fault|shrunk)-[0-9]{{6,}}\.{ENDING}", INPUTS, "faults")


class Run(Tables):
    """An open run. Use it as a context manager; `create` and `open(write=True)` hold the run's lock until it closes."""

    @classmethod
    def create(
        cls, out: Path | str | None, command: str, config: dict[str, Any], *, resumable: bool = True, trusted: bool = True
    ) -> Run:
        """A new run at `out`, by default `./neurotest-runs/COMMAND-TIME`. An existing run is refused.

        `config` is what the command was started with, the target's spec included: `made_here` vouches for nothing else.
        resumable: False for work that is whole or not there; what is left of it after a crash is replaced. trusted: False for a
        config that comes from somebody else's run: then the new one counts as made elsewhere, too.
        """
        folder = places.new_folder(None if out is None else Path(out), command)
        path = folder.path
        if resumable or not (path / schema.FILE).is_file():
            places.refuse_occupied(path)  # before anything is put there
        else:
            with suppress(BadInput):
                cls._open_to_write(path).close()  # whoever died there has left its log
        lock, run_id = Lock.take(path), uuid.uuid4().hex
        begun = False
        try:
            if not resumable:
                _remove_dead(folder, command)
            places.refuse_occupied(path)
            begun = True
            folder.sweep()
            entries = {"id": run_id, "command": command, "config": plain(config), "created": now()}
            state = {"state": "running", "summary": None, "finished": None, "resumable": resumable, "filled": False}
            if trusted:
                seal.keep(entries["id"], command, entries["config"])
            with schema.translated(path / schema.FILE):
                schema.create(folder, {key: dumps(value) for key, value in {**entries, "version": __version__, **state}.items()})
            with schema.translated(path / schema.FILE):
                return cls(folder, schema.open_checked(path / schema.FILE, write=True), lock)
        except BaseException:
            if begun:
                _remove_new(folder, run_id, lock)
            lock.release()
            raise

    @classmethod
    def open(cls, path: Path | str, *, write: bool = False) -> Run:
        """A run that exists. Writing takes its lock and removes files that no row names (a crash came between)."""
        path = Path(path)
        places.refuse_no_run(path)
        return cls._open_to_write(path) if write else cls._open_to_read(path)

    @classmethod
    def _open_to_write(cls, path: Path) -> Run:
        lock = Lock.take(path)
        try:
            before = schema.settled(path / schema.FILE)
            with schema.translated(path / schema.FILE):
                run = cls(Folder(path, owner=True), schema.open_checked(path / schema.FILE, write=True), lock)
            run._ours = run._as_we_left_it(before)
            run._sweep()
            return run
        except BaseException:
            lock.release()
            raise

    @classmethod
    def _open_to_read(cls, path: Path) -> Run:
        file = path / schema.FILE
        if schema.torn(file) and not is_locked(path):
            with suppress(BadInput):
                cls._open_to_write(path).close()
        settled = None if is_locked(path) else schema.settled(file)
        with schema.translated(file):
            run = cls(Folder(path), schema.open_checked(file, write=False, immutable=settled is not None), None)
        run._settled, run._ours = settled, run._as_we_left_it(settled)
        return run

    def _as_we_left_it(self, state: tuple[int, ...] | None) -> bool:
        with suppress(BadInput):
            return self.made_here and seal.untouched(str(self["id"]), state)
        return False

    def close(self) -> None:
        """Commit nothing more and let go. A closed run is one plain file that can be copied and read from anywhere."""
        run_id = ""
        if self._lock is not None:
            with suppress(BadInput):
                run_id = str(self["id"]) if self._ours else ""
            with suppress(sqlite3.Error):  # another reader holds on: then the log stays beside the database, which is fine too
                self._db.execute("PRAGMA busy_timeout=0")
                self._db.execute("PRAGMA journal_mode=DELETE")
        self._db.close()
        if self._lock is not None:
            seal.note(run_id, schema.settled(self._file))
            self._lock.release()
            self._lock = None

    def withdraw(self) -> None:
        """Take away a new run in which nothing is: what this process made, and nothing a person put beside it."""
        assert self._lock is not None
        run_id = ""
        with suppress(BadInput, KeyError):
            run_id = str(self["id"])
        self._db.close()
        self.folder.withdraw()
        _remove_new(self.folder, run_id, self._lock)
        self._lock.release()
        self._lock = None

    def file(self, name: str) -> RunFile:
        """A file of the run; nothing else opens one."""
        return self.folder.file(name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        blamed = None if error is None else self.blamed(error)
        self.close()
        if blamed is not None:
            raise blamed from error

    def blamed(self, error: BaseException) -> BadInput | None:
        """A sentence in place of an error that comes from what the run holds. What nobody but us has written fits: then the
        mistake is ours, and stays what it is."""
        if self._ours or not isinstance(error, UNFIT):
            return None
        return BadInput(
            "damaged", "", f"{self.path} holds what no run of neurotest holds ({reason(error)}): it is damaged or was changed."
        )

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"

    def __getitem__(self, key: str) -> Any:
        rows = [(self._fixed[key],)] if key in self._fixed else self.rows("SELECT value FROM meta WHERE key = ?", key)
        if rows and key in UNCHANGING:
            self._fixed[key] = rows[0][0]
        if not rows and key not in META_TYPES:
            raise Absent(
                "damaged", key, f"{self._file} has no {key!r}: it is damaged, or the work ended before that was written."
            )
        value = loads(rows[0][0], self._file) if rows else None
        if key in META_TYPES and not isinstance(value, META_TYPES[key]):
            raise BadInput("damaged", key, f"{self._file} has no {key!r} that fits: it is damaged or not a run of neurotest.")
        return value

    def __setitem__(self, key: str, value: Any) -> None:
        if key in META_TYPES:
            raise BadInput("conflict", key, f"meta {key!r} is kept by the run itself: choose another key.")
        self._set(key, value)

    def __delitem__(self, key: str) -> None:
        with self.transaction():
            self._db.execute("DELETE FROM meta WHERE key = ?", (key,))

    def __contains__(self, key: object) -> bool:
        return bool(self.rows("SELECT 1 FROM meta WHERE key = ?", key))

    def keys(self) -> list[str]:
        return [key for (key,) in self.rows("SELECT key FROM meta ORDER BY key")]

    def _set(self, key: str, value: Any) -> None:
        with self.transaction():
            self._db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, dumps(value)))

    @property
    def made_here(self) -> bool:
        """Whether this user made this run on this machine and its command and config are still what they were."""
        return seal.fits(str(self["id"]), self["command"], self["config"])

    def finish(self, summary: dict[str, Any]) -> None:
        """The work is done: state and summary."""
        with self.transaction(durable=True):
            for key, value in (("state", "done"), ("finished", now()), ("summary", summary)):
                self._set(key, value)

    def mark_filled(self) -> None:
        """Everything that the run holds from the beginning on is in it."""
        self._set("filled", True)

    @property
    def is_filled(self) -> bool:
        """Runs of the first versions do not say it of themselves, and are."""
        return "filled" not in self or self["filled"] is not False

    def reopen(self) -> None:
        """The work goes on: a finished run is running again."""
        with self.transaction():
            for key, value in (("state", "running"), ("finished", None), ("summary", None)):
                self._set(key, value)

    # inputs and their files

    @property
    def rate(self) -> int | None:
        """Samples a second of the sound that its target takes; None where it takes something else."""
        config = self["config"]
        described = config.get("description") if isinstance(config, dict) else None
        rate = str(described.get("rate")) if isinstance(described, dict) else ""  # older runs hold text
        return int(rate) if re.fullmatch(r"[0-9]{1,6}", rate) else None

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
        rows = self.rows("SELECT position, content, label, predicted, extra FROM input ORDER BY position")
        return [read(InputRow, (*row[:4], loads(row[4], self._file)), self._file) for row in rows]

    def save_input(self, position: int, x: np.ndarray, role: str = "picked", bounds: tuple[float, float] = (0.0, 1.0)) -> Path:
        """Store the input itself as RUN/inputs/ROLE-POSITION.png, .wav or .npy; the same position and role again replaces it."""
        if not ROLE.fullmatch(role):
            raise BadInput("syntax", "role", f"role={role!r}: expected lower-case words joined by - (picked, original).")
        position = int(position)
        if not self.rows("SELECT 1 FROM input WHERE position = ?", position):
            raise BadInput(
                "not-found", "position", f"position {position} is not an input of {self.path}: add_inputs comes first."
            )
        with self.transaction():
            file = codec.encode(x, self.file(f"{INPUTS}/{role}-{position:06d}"), bounds, self.rate)
            self._db.execute("INSERT OR REPLACE INTO file VALUES (?, ?, ?)", (position, role, file.name))
        return file.path

    def save_inputs(
        self, positions: ArrayLike, x: Iterable[np.ndarray], role: str = "picked", bounds: tuple[float, float] = (0.0, 1.0)
    ) -> list[Path]:
        """`save_input` for many, their rows in one transaction."""
        with self.transaction():
            return [self.save_input(i, image, role, bounds) for i, image in zip(np.asarray(positions).tolist(), x, strict=True)]

    def files(self, role: str | None = None) -> list[FileRow]:
        """Stored inputs by position; a path that leaves the run is refused."""
        rows = self.rows("SELECT position, role, path FROM file WHERE ?1 IS NULL OR role = ?1 ORDER BY position, role", role)
        return [read(FileRow, (*row[:2], self.file(str(row[2]))), self._file) for row in rows]

    def load_input(self, position: int, role: str = "picked") -> codec.Input:
        """Exactly what `save_input` stored."""
        rows = self.rows("SELECT path FROM file WHERE position = ? AND role = ?", int(position), role)
        if not rows:
            raise BadInput("not-found", "input", f"{self.path} stores no input {position} as {role!r}.")
        return codec.decode(self.file(str(rows[0][0])))

    def _sweep(self) -> None:
        """Remove what was being written, and inputs that no row names, when a process died."""
        self.folder.sweep()
        rows = self.rows("SELECT path FROM file UNION SELECT file FROM mutant UNION SELECT file FROM shrunk")
        names = {str(name) for (name,) in rows}
        for name in list(self.folder.names()):
            owners = {name.removesuffix(codec.VIEW) + ending for ending in codec.VIEWED} if name.endswith(codec.VIEW) else {name}
            if STORED.fullmatch(name) and not owners & names:
                self.file(name).remove()

    def export(self) -> None:
        """Write run.json and, where there are rankings, selection.csv, each whole or not at all."""
        from neurotest.runs.export import export

        export(self)


def _remove_new(folder: Folder, run_id: str, lock: Lock) -> None:
    """Remove the database, the lock and, where that empties it, the folder of a new run, and what vouches for it."""
    for name in (schema.FILE, *(schema.FILE + ending for ending in schema.BESIDE)):
        folder.file(name).remove()
    lock.before_removal()
    folder.file(LOCK).remove()
    folder.remove()
    seal.forget(run_id)


def _remove_dead(folder: Folder, command: str) -> None:
    """Remove what is left of a run of this command that died and cannot go on: its own files, the database last."""
    path = folder.path
    if not (path / schema.FILE).is_file():
        return
    try:
        with Run.open(path) as run:
            dead = run["command"] == command and run["state"] == "running" and run.made_here
            dead = dead and "resumable" in run and run["resumable"] is False
            run_id = str(run["id"])
    except (BadInput, KeyError):
        return
    if dead:
        folder.clear()
        for name in (*(schema.FILE + ending for ending in schema.BESIDE), schema.FILE):
            folder.file(name).remove()
        seal.forget(run_id)
