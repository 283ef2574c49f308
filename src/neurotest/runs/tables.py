"""The tables of an open run: transactions, rankings of its inputs, and labels that people give to them.

Rows of labels are added and never removed; taking one back is a row, too.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from neurotest.errors import BadInput, near
from neurotest.runs import schema
from neurotest.runs.folder import Folder
from neurotest.runs.lock import Lock
from neurotest.runs.rows import LabelRow, LeaseRow, MethodRow, RankedRow, dumps, integer, loads, read

OUTER = ("BEGIN IMMEDIATE", "COMMIT", "ROLLBACK")
INNER = ("SAVEPOINT part", "RELEASE part", "ROLLBACK TO part")


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _moment() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds")


class Tables:
    """What a run keeps in its database, beside inputs and the entries of `meta`."""

    path: Path

    def __init__(self, folder: Folder, connection: sqlite3.Connection, lock: Lock | None) -> None:
        self.folder = folder
        self.path = folder.path
        self._file = folder.path / schema.FILE
        self._db = connection
        self._lock = lock
        self._settled: tuple[int, ...] | None = None  # of a database that is read as if nobody could write it
        self._fixed: dict[str, str] = {}  # entries that never change, as they were when they were first read
        self._ours = True  # whether nobody else has written into it: it is new, or as we left it

    @contextmanager
    def transaction(self, *, durable: bool = False) -> Iterator[None]:
        """Everything inside is kept together or not at all; inside another one it is a part that can fail on its own.

        `durable` waits until the disk has it (labels do): a power cut loses nothing. Without, only a power cut can.
        """
        if self._lock is None:
            raise BadInput("unsupported", "write", f"{self.path} is open for reading only: open it with write=True.")
        inner = self._db.in_transaction
        begin, end, back = INNER if inner else OUTER
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

    def rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        """What a query gives."""
        with schema.translated(self._file):
            while True:
                try:
                    rows = self._db.execute(query, values).fetchall()
                except sqlite3.DatabaseError:
                    if not self._changed():
                        raise
                else:
                    if not self._changed():
                        return rows
                self._follow()

    def _changed(self) -> bool:
        """Whether somebody has begun to write a run that was opened as one nobody writes."""
        return self._settled is not None and schema.settled(self._file) != self._settled

    def _follow(self) -> None:
        """Read on beside a writer."""
        self._db.close()
        self._settled = None
        self._db = schema.open_checked(self._file, write=False)

    def change(self, query: str, rows: Iterable[tuple[Any, ...]]) -> None:
        """Run a statement once per row, inside a transaction."""
        with self.transaction():
            self._db.executemany(query, rows)

    # rankings

    def add_ranking(self, method: str, positions: ArrayLike, scores: ArrayLike | None, picked: int) -> None:
        """An order over inputs of the run, most valuable first, of which the first `picked` were selected."""
        order = np.asarray(positions)
        values = None if scores is None else np.asarray(scores, dtype=np.float64)
        if order.ndim != 1 or not np.issubdtype(order.dtype, np.integer):
            raise BadInput("wrong-shape", "order", f"ranking {method}: expected positions as one row of integers.")
        if values is not None and values.shape != order.shape:
            raise BadInput(
                "wrong-count", "scores", f"ranking {method}: {order.size} positions, but scores of shape {values.shape}."
            )
        if not 0 <= picked <= order.size:
            raise BadInput("out-of-range", "picked", f"ranking {method}: picked={picked}, expected 0 to {order.size}.")
        if self.rows("SELECT 1 FROM method WHERE name = ?", method):  # counting the places of the others takes longer
            raise BadInput("exists", "ranking", f"{self.path} already has a ranking by {method}.")
        with self.transaction():
            number = self._db.execute("INSERT INTO method (name, picked) VALUES (?, ?)", (method, int(picked))).lastrowid
            column = [None] * order.size if values is None else values.tolist()
            places = zip(repeat(number, order.size), range(1, order.size + 1), order.tolist(), column, strict=True)
            self._db.executemany("INSERT INTO ranking VALUES (?, ?, ?, ?)", places)

    def add_round(self, content: dict[str, Any]) -> None:
        """A proposal of a selection that goes on as labels come; earlier ones are not touched."""
        with self.transaction():
            self._db.execute("INSERT INTO round (content) VALUES (?)", (dumps(content),))

    def rounds(self) -> list[Any]:
        """What was added, the newest last."""
        return [loads(content, self._file) for (content,) in self.rows("SELECT content FROM round ORDER BY number")]

    def methods(self) -> list[MethodRow]:
        """The rankings there are, in the order they were added."""
        query = "SELECT name, picked, (SELECT count(*) FROM ranking WHERE method = id) FROM method ORDER BY id"
        return [read(MethodRow, row, self._file) for row in self.rows(query)]

    def ranking(self, method: str) -> list[RankedRow]:
        """One ranking in order."""
        methods = self.rows("SELECT id, picked FROM method WHERE name = ?", method)
        if not methods:
            raise BadInput(
                "unknown-name",
                "ranking",
                f"{self.path} has no ranking by {method!r}. {near(method, [row.name for row in self.methods()])}",
            )
        query = "SELECT rank, position, score, rank <= ? FROM ranking WHERE method = ? ORDER BY rank"
        number, picked = methods[0]
        rows = self.rows(query, picked, number)
        return [read(RankedRow, (*row[:3], bool(row[3])), self._file) for row in rows]

    # labels

    def add_label(self, position: int, label: int | None, by: str = "") -> int:
        """A person's label of an input, on disk when this returns; None is "cannot tell". Gives the row's number."""
        return self.add_labels({position: label}, by)[0]

    def add_labels(
        self, labels: Mapping[int, int | None], by: str = "", *, invalid: Collection[int] = (), session: str = "",
        values: Mapping[int, float] | None = None,
    ) -> list[int]:  # fmt: skip
        """Many at once, all or none: they carry one and the same time, by which they are known to belong together.

        invalid: positions, with the label None, of what is no valid input. session: where the labels were given.
        values: quantities, where a network predicts one.
        """
        values = values or {}
        at = _moment()
        if clash := [position for position in invalid if labels.get(position, 0) is not None]:
            raise BadInput("conflict", "label", f"input {clash[0]} is marked as no valid input: then its label is None.")
        return self._add_rows(
            [(int(p), integer(label), by, at, None, int(p not in invalid), session, values.get(p)) for p, label in labels.items()]
        )

    def undo_label(self, n: int, by: str = "") -> int:
        """Take back row n with a row of its own; the earlier label of that input counts again."""
        return self.undo_labels([n], by)[0]

    def undo_labels(self, numbers: Iterable[int], by: str = "", *, session: str = "") -> list[int]:
        """Take back some rows, all or none."""
        rows = {row.n: row for row in self.label_history()}
        undone, at = {row.undoes for row in rows.values()}, _moment()
        taken = []
        for n in numbers:
            if n not in rows or rows[n].undoes is not None:
                raise BadInput("not-found", "label", f"label {n} does not exist: give a number that add_label returned.")
            if n in undone:
                raise BadInput("finished", "label", f"label {n} is undone already.")
            taken.append((rows[n].position, None, by, at, n, 1, session, None))
        return self._add_rows(taken)

    def _add_rows(self, rows: Sequence[tuple[int, int | None, str, str, int | None, int, str, float | None]]) -> list[int]:
        query = "INSERT INTO label (position, label, by, at, undoes, valid, session, value) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
        with self.transaction(durable=True):
            return [int(self._db.execute(query, row).lastrowid or 0) for row in rows]

    def last_labels(self, session: str | None = None) -> list[LabelRow]:
        """Rows that were added together and last, those left out that were taken back; empty if there is none.

        session: only what was given there.
        """
        history = self.label_history()
        undone = {row.undoes for row in history}
        standing = [row for row in history if row.undoes is None and row.n not in undone and session in (None, row.session)]
        last = [(row.at, row.by, row.session) for row in standing[-1:]]
        return [row for row in standing if (row.at, row.by, row.session) in last]

    def label_history(self) -> list[LabelRow]:
        """Every row ever added, undone ones and undos included."""
        rows = self.rows("SELECT n, position, label, by, at, undoes, valid, session, value FROM label ORDER BY n")
        return [read(LabelRow, row, self._file) for row in rows]

    def labels(self) -> list[LabelRow]:
        """What counts now: the last row about each input that was not taken back, in the order they were added."""
        history = self.label_history()
        undone = {row.undoes for row in history}
        last = {row.position: row for row in history if row.undoes is None and row.n not in undone}
        return sorted(last.values())

    # who looks at what

    def lease(self, positions: Iterable[int], holder: str, until: float) -> None:
        """Keep inputs for a holder until this time, in seconds since 1970; whoever had them before has them no longer."""
        with self.transaction():
            self._db.executemany(
                "INSERT OR REPLACE INTO lease VALUES (?, ?, ?)", [(int(position), holder, float(until)) for position in positions]
            )

    def release(self, positions: Iterable[int]) -> None:
        """Let go of inputs."""
        with self.transaction():
            self._db.executemany("DELETE FROM lease WHERE position = ?", [(int(position),) for position in positions])

    def leases(self, at: float) -> list[LeaseRow]:
        """Those that still hold at this time."""
        rows = self.rows("SELECT position, holder, until FROM lease WHERE until > ? ORDER BY position", float(at))
        return [read(LeaseRow, row, self._file) for row in rows]
