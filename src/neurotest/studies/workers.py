"""Cells of a study in several processes: each is computed by itself, and whoever started them writes them down."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any

from neurotest import interrupts
from neurotest.errors import BadInput
from neurotest.studies.frame import ABSENT, Cell

LOOK = 0.5  # seconds between two looks at whether somebody asked to stop
Content = tuple[Any, float]  # of a cell, and the seconds it took


def contents(cells: Sequence[Cell], workers: int = 1) -> Iterator[tuple[Cell, Any, float]]:
    """Every cell with its content, as they are finished: one after the other, or so many at a time in processes of their own."""
    if workers < 1:
        raise BadInput(f"--workers {workers}: expected an integer >= 1.")
    if workers == 1:
        for cell in cells:
            interrupts.check()
            yield cell, *content(cell.make)
        return
    left, running = iter(cells), dict[Future[Content], Cell]()
    with _pool(min(workers, max(1, len(cells)))) as pool:
        while True:
            interrupts.check()
            for cell in itertools.islice(left, workers - len(running)):
                running[pool.submit(content, cell.make)] = cell
            if not running:
                return
            for future in wait(running, LOOK, FIRST_COMPLETED).done:
                yield running.pop(future), *_result(future)


def content(make: Callable[[], Any]) -> Content:
    """What a cell holds; one that cannot be computed here says why."""
    began = time.monotonic()
    try:
        value = make()
    except BadInput as error:
        value = {ABSENT: str(error)}
    return value, time.monotonic() - began


def _result(future: Future[Content]) -> Content:
    try:
        return future.result()
    except BrokenProcessPool as error:
        raise BadInput(
            "a process of the study was ended from outside (memory?): go on with --resume and fewer --workers."
        ) from error


@contextmanager
def _pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    """Processes with as many threads as this one; when something goes wrong, or somebody asks to stop, they end at once."""
    import torch

    others = set(multiprocessing.active_children())
    spawn = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, mp_context=spawn, initializer=_begin, initargs=(torch.get_num_threads(),))
    try:
        yield pool
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        while left := set(multiprocessing.active_children()) - others:
            for process in left:
                process.kill()
            for process in left:
                process.join(LOOK)
        raise
    pool.shutdown()


def _begin(threads: int) -> None:
    """In a new process: Ctrl-C is for whoever started it, and it does not stay when that one is gone."""
    import torch

    torch.set_num_threads(threads)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def follow() -> None:
        parent.join()
        os._exit(interrupts.EXIT)

    threading.Thread(target=follow, daemon=True).start()
