"""What works beside the labelling page, so that it answers at once: the thread that has the run open, and the selector.

The adaptive selector learns from the last labels in a process of its own. Everything about the run is asked of one thread, people
before chores.
"""

from __future__ import annotations

import itertools
import os
import queue
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from neurotest.errors import NeurotestError
from neurotest.scale.start import pipe, start_process

Entry = dict[str, Any]
ENDED = "The selector has ended: start `neurotest label` again. Labels are stored all the same."


@dataclass(frozen=True)
class Choice:
    """What the selector says after some labels.

    batch: what to label next, best first. chances, experts: (n,) and (n, experts), of every input of the pool. draw: what is
    kept of an audit's random share. standing: where the selection stands, for people.
    """

    batch: list[int]
    chances: NDArray[np.float32]
    experts: NDArray[np.float32]
    draw: Entry
    standing: Entry


@dataclass(frozen=True)
class Request:
    """size: of the next batch. taken: inputs that somebody has before them. stop: fault rate below which labelling may end."""

    size: int
    taken: tuple[int, ...]
    stop: float | None


class Chooser:
    """The process, asked from here; answers come by `done`, in a thread of this object."""

    def __init__(self, path: Path, done: Callable[[Choice | str], None]) -> None:
        self._connection, theirs = pipe()
        self._process = start_process(_serve, theirs, str(path), name="neurotest-chooser")
        theirs.close()
        self._done, self._closing = done, False
        threading.Thread(target=self._listen, name="neurotest-listener", daemon=True).start()

    def ask(self, request: Request) -> None:
        try:
            self._connection.send(request)
        except OSError:
            self._done(ENDED)

    def _listen(self) -> None:
        while True:
            try:
                answer = self._connection.recv()
            except (EOFError, OSError):
                if not self._closing:
                    self._done(ENDED)
                return
            self._done(answer)

    def close(self) -> None:
        self._closing = True
        self._connection.close()
        self._process.terminate()
        self._process.join(5)


def _serve(connection: Connection, path: str) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the server, whose end ends this
    import torch

    torch.set_num_threads(max(1, (os.cpu_count() or 2) - 1))
    selector = None
    while True:
        try:
            request = connection.recv()
        except (EOFError, OSError):
            return
        try:
            selector = selector or Selector(Path(path))
            answer: Choice | str = selector.choose(request)
        except NeurotestError as error:
            answer = str(error)
        try:
            connection.send(answer)
        except OSError:
            return


class Selector:
    """The loop of a run, which it only reads."""

    def __init__(self, path: Path) -> None:
        from neurotest.runs.store import Run
        from neurotest.select.adaptive.stored import new_loop

        self.path = path
        with Run.open(path) as run:
            self.loop, self.method = new_loop(run)

    def choose(self, request: Request) -> Choice:
        from neurotest.runs.store import Run
        from neurotest.select.adaptive.stored import take_up
        from neurotest.select.exchange import rounds_of

        with Run.open(self.path) as run:
            rounds = rounds_of(run)
            take_up(run, rounds, self.loop)
        loop, taken = self.loop, [p for p in request.taken if p not in self.loop.labels]
        standing = self._standing(len(rounds), request)
        draws = len(loop.draws)
        free = len(loop.left) - len(taken)
        batch = loop.propose(min(request.size, free), taken).tolist() if free > 0 else []
        draw: Entry = {}
        if len(loop.draws) > draws:
            last = loop.draws[-1]
            draw = {"random": list(last.positions), "labelled": sorted(last.labelled), "expected": last.expected}
        experts = loop.posterior.experts.float().numpy()
        return Choice(batch, loop.chances.astype(np.float32), experts, draw, standing)

    def _standing(self, rounds: int, request: Request) -> Entry:
        from neurotest.select.adaptive.rounds import advise, as_many_random

        loop, stop = self.loop, self.method.stop if request.stop is None else request.stop
        judged, left, rest = len(loop.labelled), len(loop.left), loop.remaining()
        size = min(request.size, left)
        rate = loop.expected_rate(size) if size else 0.0
        random = as_many_random(len(loop.facts), judged, loop.faults, rest) if judged else None
        advice = advise(self.path, rounds, 0, size, rate, left, rest.value, stop)
        return {
            "random": None if random is None else {"rate": random.value, "low": random.low, "high": random.high},
            "remaining": {
                "faults": rest.value, "low": rest.low, "high": rest.high,
                "by": f"{rest.random} random labels" if rest.random else "model",
            },
            "next": {
                "size": size, "faults": rate * size, "rate": rate, "random_rate": min(1.0, rest.value / max(left, 1)),
            },
            "go_on": advice.go_on, "advice": advice.reason, "threshold": stop,
        }  # fmt: skip


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
