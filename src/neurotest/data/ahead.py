"""Work on many items in order, some of them ahead in threads: decoding images leaves Python alone, so two are done at once."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from threading import Thread
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")
FEW_ITEMS = 16  # items for which threads are not worth starting
THREADS = 4  # at most: the network needs processors, too


def ahead(
    function: Callable[[T], R], items: Iterable[T], *, count: int | None = None, threads: int | None = None
) -> Iterator[tuple[T, Callable[[], R]]]:
    """Each item with a function that returns, or raises, what `function(item)` does; at most a few results wait at any time.

    count: how many items an iterator has, of which no more than a few are asked for ahead.
    """
    if count is None:
        items = list(items)
        count = len(items)
    threads = min(THREADS, os.cpu_count() or 1) if threads is None else threads
    if threads < 2 or count < FEW_ITEMS:
        for item in items:
            yield item, partial(function, item)
        return
    with ThreadPoolExecutor(threads) as pool:
        waiting: deque[tuple[T, Future[R]]] = deque()
        try:
            for item in items:
                waiting.append((item, pool.submit(function, item)))
                if len(waiting) > 2 * threads:
                    first, future = waiting.popleft()
                    yield first, future.result
            while waiting:
                first, future = waiting.popleft()
                yield first, future.result
        finally:
            for _, future in waiting:
                future.cancel()


def one_ahead(function: Callable[[T], R], items: Iterable[T]) -> Generator[tuple[T, R], None, None]:
    """Each item with what `function(item)` returns, the next one's worked out in a thread while the caller uses this one's.

    What a call raises is raised when its item's turn comes. A thread lives for one call, and none is left when this ends.
    """
    left = iter(items)
    try:
        item = next(left)
    except StopIteration:
        return
    result = function(item)  # there is nothing yet to do meanwhile
    for following in left:
        future: Future[R] = Future()
        thread = Thread(target=_settle, args=(future, function, following), name="neurotest-ahead")
        thread.start()
        try:
            yield item, result
        finally:
            thread.join()
        item, result = following, future.result()
    yield item, result


def _settle(future: Future[R], function: Callable[[T], R], item: T) -> None:
    try:
        future.set_result(function(item))
    except BaseException as error:
        future.set_exception(error)
