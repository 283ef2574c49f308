"""Rankings of the inputs of a run, one per method."""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from neurotest.errors import BadInput, near
from neurotest.runs.plain import dumps
from neurotest.runs.rows import MethodRow, RankedRow, loads, read


class Rankings(ABC):
    """The part of a run that keeps rankings."""

    path: Path
    _db: sqlite3.Connection
    _file: Path

    @abstractmethod
    def transaction(self, *, durable: bool = False) -> AbstractContextManager[None]: ...

    @abstractmethod
    def rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]: ...

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
