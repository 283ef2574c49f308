"""Waiting for an event. Nothing is said about how soon it comes: machines may be busy."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Protocol, TypeVar

import pytest

T = TypeVar("T")
LIMIT = 600  # seconds after which something is broken, not slow


class Process(Protocol):
    def poll(self) -> int | None: ...


def until(condition: Callable[[], T], what: str, process: Process | None = None) -> T:
    """What `condition` gives once it holds. `what` must come, and `process`, if it is given, must not end before that."""
    end = time.monotonic() + LIMIT
    while True:
        ended = None if process is None else process.poll()  # before the condition: what it did last counts
        if value := condition():
            return value
        assert ended is None, f"waited for {what}, but the process ended with {ended}"
        assert time.monotonic() < end, f"waited {LIMIT} seconds for {what}"
        time.sleep(0.01)


def only_hanging_takes_time(executor: Any, hangs: Callable[[Any], bool], monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock of these workers stands still unless nothing is at work but tasks that hang: no other task is ever late."""
    now, wait = 0.0, executor.wait

    def look(workers: list[Any], seconds: float) -> list[Any]:
        nonlocal now
        ready: list[Any] = wait(workers, seconds)
        if not ready and all(hangs(job.task) for job in executor._busy.values()):
            now += seconds
        return ready

    monkeypatch.setattr(executor, "wait", look)
    monkeypatch.setattr("neurotest.scale.pool.time", SimpleNamespace(monotonic=lambda: now))
