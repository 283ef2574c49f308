"""Workers that take tasks one at a time: whose dies or hangs is replaced, and its task is begun again."""

from __future__ import annotations

import itertools
import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from neurotest import interrupts
from neurotest.executor import TRIES, Executor, Lost, Result, Task
from neurotest.scale.tasks import FAILED, pack, unpack

LOOK = 0.5  # seconds between two looks at whether somebody asked to stop
START = 300.0  # seconds that a new worker may take until it begins its first task: torch is slow to load on a busy machine
AHEAD = 4  # tasks per worker that may be finished before one that is still at work; their results wait here


_END: Any = object()


class WorkerDied(Exception):
    """A worker is gone; the text says why."""


class _Worker(Protocol):
    def send(self, key: str, message: bytes) -> None:
        """Begin a task."""

    def answer(self) -> bytes | None:
        """What it gave; None: it has started, and begins its first task now; `WorkerDied` if the worker is gone."""

    def end(self) -> None:
        """End it now, whatever it does."""


W = TypeVar("W", bound=_Worker)


@dataclass(eq=False)
class _Attempt:
    """A task under way."""

    number: int
    task: Any
    tries: int = 0
    began: float = field(default_factory=time.monotonic)


class WorkerPool(Executor, Generic[W]):
    """An executor over workers that a subclass starts and waits for."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self._idle: list[W] = []
        self._busy: dict[W, _Attempt] = {}
        self._keys = itertools.count()

    @abstractmethod
    def start(self) -> W:
        """A new worker."""

    @abstractmethod
    def wait(self, workers: list[W], seconds: float) -> list[W]:
        """Those that have an answer or are gone."""

    @abstractmethod
    def publish(self, key: str, content: bytes) -> None:
        """Let every worker read this under its key."""

    @abstractmethod
    def withdraw(self, key: str) -> None:
        """It is no longer needed."""

    def attempt(
        self, function: Callable[[Any, Task], Result], shared: Any, tasks: Iterable[Task], *,
        timeout: float | None = None, ordered: bool = True,
    ) -> Iterator[tuple[Task, Result | Lost]]:  # fmt: skip
        key = f"shared-{next(self._keys)}"
        self.publish(key, pack(shared))
        try:
            yield from self._work(key, function, tasks, timeout, ordered)
        except BaseException:
            self._drop_all()
            raise
        finally:
            self.withdraw(key)
            self._drop_busy()  # whoever stopped listening

    def _work(
        self, key: str, function: Callable[..., Any], tasks: Iterable[Any], timeout: float | None, ordered: bool
    ) -> Iterator[tuple[Any, Any]]:
        left, numbers = iter(tasks), itertools.count()  # who reads the results may add tasks, so the end may move
        again: list[_Attempt] = []
        finished: dict[int, tuple[Any, Any]] = {}
        due = 0  # the next result in order
        while True:
            interrupts.check()
            while len(self._busy) < self.workers:
                far = ordered and len(finished) >= AHEAD * self.workers
                if again:
                    self._begin(key, function, again.pop(0))
                    continue
                if far or (task := next(left, _END)) is _END:
                    break
                self._begin(key, function, _Attempt(next(numbers), task))
            if not self._busy and not finished:
                return
            for job, result in self._answers(timeout):
                if isinstance(result, Lost) and job.tries < TRIES:
                    again.append(job)
                    continue
                finished[job.number] = (job.task, result)
            if not ordered:
                yield from finished.values()
                finished.clear()
            while due in finished:
                yield finished.pop(due)
                due += 1

    def _begin(self, key: str, function: Callable[..., Any], job: _Attempt) -> None:
        message = pack((function, job.task))
        while True:
            new = not self._idle
            worker = self.start() if new else self._idle.pop()
            job.tries, job.began = job.tries + 1, time.monotonic() + (START if new else 0)  # its timeout counts from there
            try:
                worker.send(key, message)
            except WorkerDied:  # while it was idle: nobody's task
                job.tries -= 1
                worker.end()
                continue
            self._busy[worker] = job
            return

    def _answers(self, timeout: float | None) -> Iterator[tuple[_Attempt, Any]]:
        """Tasks that came to an end since the last look."""
        for worker in self.wait(list(self._busy), LOOK):
            job = self._busy.pop(worker)
            try:
                content = worker.answer()
            except WorkerDied as death:
                worker.end()
                yield job, Lost(str(death))
                continue
            if content is None:
                job.began = time.monotonic()
                self._busy[worker] = job
                continue
            kind, result = unpack(content)
            self._idle.append(worker)
            if kind == FAILED:
                raise result
            yield job, result
        for worker, job in list(self._busy.items()):
            if timeout is not None and time.monotonic() - job.began > timeout:
                del self._busy[worker]
                worker.end()
                yield job, Lost(f"no answer within {timeout:g} seconds")

    def _drop_busy(self) -> None:
        for worker in list(self._busy):
            worker.end()
        self._busy.clear()

    def _drop_all(self) -> None:
        for worker in [*self._idle, *self._busy]:
            worker.end()
        self._idle, self._busy = [], {}

    def close(self) -> None:
        self._drop_all()
