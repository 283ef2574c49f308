"""Who does the work: tasks in, results out, in the order of the tasks. A command does not know how many workers there are.

Serial is the default; `neurotest.scale` has processes of this machine and a Ray cluster. Whoever has work to share asks for
`current()`. Which tasks there are never depends on the number of workers, so results do not either.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from neurotest import interrupts
from neurotest.errors import BadInput

Task = TypeVar("Task")
Result = TypeVar("Result")
TRIES = 2  # how often a task is begun whose worker dies or hangs


@dataclass(frozen=True)
class Lost:
    """In place of a result: the worker died, or took too long, each time."""

    reason: str


class Executor(ABC):
    """Runs `function(shared, task)` for every task."""

    name: ClassVar[str]
    workers: int = 1

    @abstractmethod
    def attempt(
        self, function: Callable[[Any, Task], Result], shared: Any, tasks: Iterable[Task], *,
        timeout: float | None = None, ordered: bool = True,
    ) -> Iterator[tuple[Task, Result | Lost]]:  # fmt: skip
        """Each task with its result, in order or as they are finished.

        timeout: seconds after which a worker counts as hanging (None: never). What a function raises is raised here.
        """

    def run(
        self, function: Callable[[Any, Task], Result], shared: Any, tasks: Iterable[Task], *, ordered: bool = True
    ) -> Iterator[tuple[Task, Result]]:
        """The same where no result may be missing."""
        for task, result in self.attempt(function, shared, tasks, ordered=ordered):
            if isinstance(result, Lost):
                raise BadInput(
                    "worker-lost",
                    "",
                    f"a worker was lost {TRIES} times with the same piece of work ({result.reason}): use fewer --workers "
                    "(memory?), a smaller --batch, or find the input with one worker.",
                )
            yield task, result

    def close(self) -> None:
        """End all workers."""
        return None


class Serial(Executor):
    """Everything here, one after the other."""

    name = "serial"

    def attempt(
        self, function: Callable[[Any, Task], Result], shared: Any, tasks: Iterable[Task], *,
        timeout: float | None = None, ordered: bool = True,
    ) -> Iterator[tuple[Task, Result | Lost]]:  # fmt: skip
        for task in tasks:
            interrupts.check()
            yield task, function(shared, task)


_current: ContextVar[Executor] = ContextVar("executor")
_SERIAL = Serial()


def current() -> Executor:
    """The executor of whoever is at work here."""
    return _current.get(_SERIAL)


@contextmanager
def using(executor: Executor) -> Iterator[Executor]:
    """Let what is done inside be done by this executor, and end its workers afterwards."""
    token = _current.set(executor)
    try:
        yield executor
    finally:
        _current.reset(token)
        executor.close()
