"""The seconds of a campaign on the wall clock, over all its resumes, and what took them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from neurotest.errors import BadInput
from neurotest.generate.fuzz.mutants import Tally

NAMES = ("start", "guide", "random", "validity", "saving", "rest")
_command: ContextVar[float | None] = ContextVar("neurotest campaign began", default=None)


@contextmanager
def counting_from(began: float) -> Iterator[None]:
    """Campaigns started inside began at this moment of `time.monotonic`: a command imports and loads before it fuzzes."""
    token = _command.set(began)
    try:
        yield
    finally:
        _command.reset(token)


class Clock:
    """start: until the first batch. validity: judging faults. saving: rows, images, snapshots. guide, random: of the tallies."""

    def __init__(self) -> None:
        began = _command.get()
        self.began = time.monotonic() if began is None else began
        self.before: dict[str, float] = {}  # of the sessions before this one
        self.own: dict[str, float] = {}

    def total(self) -> float:
        return self.before.get("total", 0.0) + time.monotonic() - self.began

    @contextmanager
    def spending(self, name: str) -> Iterator[None]:
        began = time.monotonic()
        try:
            yield
        finally:
            self.own[name] = self.own.get(name, 0.0) + time.monotonic() - began

    def started(self, worked: float) -> None:
        """The first batch begins; `worked`: seconds of batches that were repeated on resume."""
        self.own["start"] = max(0.0, time.monotonic() - self.began - worked)

    def plain(self) -> dict[str, float]:
        names = {"total": self.total()} | {name: self.before.get(name, 0.0) + n for name, n in self.own.items()}
        return {**self.before, **names}

    def restore(self, stored: Any) -> None:
        """Take over what earlier sessions took."""
        try:
            self.before = {name: float(stored.get(name, 0.0)) for name in ("total", "start", "validity", "saving")}
        except (AttributeError, TypeError, ValueError):
            raise BadInput("damaged", "clock", "the run's clock cannot be read: the run is damaged.") from None

    def shares(self, guided: Tally, control: Tally | None) -> dict[str, float]:
        """Seconds by what took them; their sum is the total."""
        plain = self.plain()
        parts = {name: plain.get(name, 0.0) for name in NAMES[:-1]}
        parts |= {"guide": guided.seconds, "random": control.seconds if control is not None and control is not guided else 0.0}
        parts["rest"] = max(0.0, plain["total"] - sum(parts.values()))
        return {name: round(value, 3) for name, value in parts.items()}
