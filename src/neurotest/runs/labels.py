"""Labels that people give to inputs of a run: rows are added and never removed, taking one back is a row, too."""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from neurotest.errors import BadInput
from neurotest.runs.rows import LabelRow, integer, read


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


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
        rows = self.rows("SELECT n, position, label, by, at, undoes FROM label ORDER BY n")
        return [read(LabelRow, row, self._file) for row in rows]

    def labels(self) -> list[LabelRow]:
        """What counts now: the last row about each input that was not taken back, in the order they were added."""
        history = self.label_history()
        undone = {row.undoes for row in history}
        last = {row.position: row for row in history if row.undoes is None and row.n not in undone}
        return sorted(last.values())
