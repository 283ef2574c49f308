"""Which runs a command has finished, so that what belongs to every run (its page) is done once, above all methods."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

_noted: ContextVar[list[Path] | None] = ContextVar("finished runs", default=None)


@contextmanager
def finished_runs() -> Iterator[list[Path]]:
    """The runs that the work inside finishes, in their order."""
    noted: list[Path] = []
    token = _noted.set(noted)
    try:
        yield noted
    finally:
        _noted.reset(token)


def note(path: Path) -> None:
    """Say that a run is finished; heard by whoever asked."""
    noted = _noted.get()
    if noted is not None and path not in noted:
        noted.append(path)
