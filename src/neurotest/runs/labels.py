"""Labels that people give to inputs of a run: rows are added and never removed, taking one back is a row, too."""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from neurotest.errors import BadInput
from neurotest.runs.rows import LabelRow, LeaseRow, integer, read


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _moment() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds")


class Labels(ABC):
    """The part of a run that keeps labels."""

    _db: sqlite3.Connection
    _file: Path

    @abstractmethod
    def transaction(self, *, durable: bool = False) -> AbstractContextManager[None]: ...

    @abstractmethod
    def rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]: ...

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
