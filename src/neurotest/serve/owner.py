"""The one thread that has the run open for writing: everything about it is asked of that thread, people before chores."""

from __future__ import annotations

import itertools
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

Answer = TypeVar("Answer")
PERSON, CHORE, END = 0, 1, 2


class Owner:
    """Runs functions one after the other in a thread of its own, where SQLite's connection lives."""

    def __init__(self) -> None:
        self._waiting: queue.PriorityQueue[tuple[int, int, Callable[[], Any] | None, Future[Any]]] = queue.PriorityQueue()
        self._count = itertools.count()
        self._thread = threading.Thread(target=self._work, name="neurotest-owner", daemon=True)
        self._thread.start()

    def ask(self, work: Callable[[], Answer]) -> Answer:
        """What the work gives, or raises, once it is its turn."""
        future: Future[Answer] = Future()
        self._waiting.put((PERSON, next(self._count), work, future))
        return future.result()

    def later(self, work: Callable[[], Any]) -> None:
        """When nobody waits; what it raises is nobody's."""
        self._waiting.put((CHORE, next(self._count), work, Future()))

    def end(self, last: Callable[[], Any]) -> None:
        """Do this after everything else, and stop."""
        future: Future[Any] = Future()
        self._waiting.put((END, next(self._count), last, future))
        self._waiting.put((END, next(self._count), None, Future()))
        with suppress(KeyboardInterrupt):  # a second Ctrl-C: the thread goes on until the process ends
            future.result()

    def _work(self) -> None:
        while True:
            _, _, work, future = self._waiting.get()
            if work is None:
                return
            try:
                future.set_result(work())
            except BaseException as error:
                future.set_exception(error)
