"""What a run hands out, one small tuple per row, and what JSON can hold out of what Python and numpy hold."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, get_origin, get_type_hints

import numpy as np

from neurotest.errors import BadInput
from neurotest.runs.folder import RunFile


def plain(value: Any) -> Any:
    """The value as JSON types: arrays and tuples become lists, paths text; NaN and infinities, which JSON lacks, null."""
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, set | frozenset):
        return sorted(plain(item) for item in value)
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no place in a run: give numbers, text, lists and dictionaries")


def dumps(value: Any) -> str:
    """One line of JSON, the same for equal values."""
    return json.dumps(plain(value), sort_keys=True, allow_nan=False)


Row = TypeVar("Row", bound=tuple[Any, ...])


class Absent(BadInput, KeyError):
    """A run lacks an entry: for whoever takes it apart a missing key, for the user a sentence."""

    __str__ = Exception.__str__


class InputRow(NamedTuple):
    """One input of the pool: where it stands, its content hash, its label and the predicted class, if known."""

    position: int
    content: str
    label: int | None = None
    predicted: int | None = None
    extra: dict[str, Any] = {}  # noqa: RUF012 - never changed, a NamedTuple has no factory

    @property
    def name(self) -> str | None:
        """What its file is called, where it is one."""
        name = self.extra.get("name")
        return name if isinstance(name, str) else None

    @property
    def words(self) -> str:
        """For people: where it stands, and its file."""
        return str(self.position) if self.name is None else f"{self.position} {self.name}"


class FileRow(NamedTuple):
    """One stored input."""

    position: int
    role: str
    file: RunFile

    @property
    def path(self) -> Path:
        """Where it is, to be shown."""
        return self.file.path


class MethodRow(NamedTuple):
    """One ranking of the run: the first `picked` of its `ranked` places were selected."""

    name: str
    picked: int
    ranked: int


class RankedRow(NamedTuple):
    """One place of a ranking; rank 1 is the most valuable."""

    rank: int
    position: int
    score: float | None
    picked: bool


class LabelRow(NamedTuple):
    """One label by a person. `label` None: could not tell or, if `valid` is 0, the input is none that the network has to answer.

    `undoes` names the row that this one takes back; `session` is where it was given, one tab of a browser for example. `value` is
    a quantity, where the network predicts one: `label` is then the predicted class if the network is near enough, else another.
    """

    n: int
    position: int
    label: int | None
    by: str
    at: str
    undoes: int | None
    valid: int = 1
    session: str = ""
    value: float | None = None


class LeaseRow(NamedTuple):
    """Who looks at an input, so that nobody else is given it, until a time in seconds since 1970."""

    position: int
    holder: str
    until: float


@functools.cache
def _kinds(row: type[Any]) -> tuple[Any, ...]:
    return tuple(get_origin(hint) if get_origin(hint) is dict else hint for hint in get_type_hints(row).values())


def read(row: type[Row], values: Iterable[Any], where: Path) -> Row:
    """The row out of a run, which may be anybody's: a column of another type is refused here."""
    result = row(*values)
    if not all(map(isinstance, result, _kinds(row))):
        raise BadInput(
            "damaged", row.__name__, f"{where} holds a {row.__name__} that does not fit: it is damaged or not a run of neurotest."
        )
    return result


def loads(text: str, where: Path) -> Any:
    """JSON out of a run, which may be anybody's."""
    try:
        return json.loads(text)
    except (ValueError, TypeError, RecursionError):
        raise BadInput(
            "damaged", "json", f"{where} holds an entry that is not JSON: it is damaged or not a run of neurotest."
        ) from None


def integer(value: Any) -> int | None:
    """Numpy's numbers as Python's: SQLite would store an int64 as bytes."""
    return None if value is None else int(value)


def stored_input(row: InputRow) -> tuple[int, str, int | None, int | None, str]:
    return int(row.position), str(row.content), integer(row.label), integer(row.predicted), dumps(row.extra)
