"""Tasks in, results out: in order, once each, whatever happens to a worker."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch
from tests.refusals import refused
from tests.waiting import only_hanging_takes_time

from neurotest.executor import Executor, Lost, Serial, current, using
from neurotest.scale import pool
from neurotest.scale.opening import open_executor
from neurotest.scale.pool import AHEAD, WorkerPool
from neurotest.scale.tasks import DONE, RemoteError, pack, unpack

pytestmark = pytest.mark.plain


def test_one_worker_does_everything_here() -> None:
    assert list(Serial().run(lambda shared, task: shared * task, 3, range(4))) == [(0, 0), (1, 3), (2, 6), (3, 9)]
    assert isinstance(open_executor(), Serial)
    assert isinstance(open_executor(1), Serial)


def test_results_come_in_the_order_of_the_tasks(parallel: Executor, helpers: ModuleType, tmp_path: Path) -> None:
    for place in ("ordered", "as they come"):
        (tmp_path / place).mkdir()
    assert list(parallel.run(helpers.add, 10, range(9))) == [(n, 10 + n) for n in range(9)]
    ordered = parallel.run(helpers.slow_first, (str(tmp_path / "ordered"), 4), range(5))
    assert [n for n, _ in ordered] == [0, 1, 2, 3, 4]
    as_they_come = parallel.run(helpers.slow_first, (str(tmp_path / "as they come"), 4), range(5), ordered=False)
    assert [n for n, _ in as_they_come] == [1, 2, 3, 4, 0]
    assert list(parallel.run(helpers.add, 0, [])) == []


def test_a_task_that_takes_long_does_not_let_the_others_pile_up(parallel: Executor, helpers: ModuleType, tmp_path: Path) -> None:
    """Tasks are made when they are needed: of a million only some exist at any time."""
    taken = 0

    def tasks() -> Iterator[int]:
        nonlocal taken
        for number in range(1000):
            taken = number
            yield number

    results = parallel.run(helpers.slow_first, (str(tmp_path), AHEAD * parallel.workers), tasks())
    assert next(results) == (0, 0)
    assert taken < 30
    results.close()  # type: ignore[attr-defined]


def test_what_a_task_raises_is_raised_here(parallel: Executor, helpers: ModuleType) -> None:
    with refused("other"):
        list(parallel.run(helpers.refuse, None, [0]))
    with pytest.raises(RemoteError, match=r"(?s)scale_helpers.*IndexError"):
        list(parallel.run(helpers.fail, None, [5]))
    assert list(parallel.run(helpers.add, 1, [1])) == [(1, 2)]


def test_a_worker_that_is_killed_costs_its_task_one_try(parallel: Executor, helpers: ModuleType, tmp_path: Path) -> None:
    assert list(parallel.run(helpers.die_once, str(tmp_path), range(6))) == [(n, n * n) for n in range(6)]


def test_a_task_that_kills_every_worker_is_given_up_and_named(parallel: Executor, helpers: ModuleType) -> None:
    results = dict(parallel.attempt(helpers.die, None, range(4)))
    assert isinstance(results.pop(1), Lost)
    assert results == {0: 0, 2: 2, 3: 3}
    with refused("worker-lost"):
        list(parallel.run(helpers.die, None, range(4)))


def test_a_worker_that_hangs_is_given_up(parallel: Executor, helpers: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    only_hanging_takes_time(parallel, lambda task: task == 1, monkeypatch)
    results = dict(parallel.attempt(helpers.hang, None, range(3), timeout=2))
    assert results[1] == Lost("no answer within 2 seconds")
    assert (results[0], results[2]) == (0, 2)


class Sleeper:
    """A worker that needs a while to start and none for its tasks."""

    def __init__(self) -> None:
        self.looks, self.started, self.message = 0, False, b""

    def send(self, key: str, message: bytes) -> None:
        self.message = message

    def answer(self) -> bytes | None:
        if not self.started:
            self.started = True
            return None
        function, task = unpack(self.message)
        return pack((DONE, function(0, task)))

    def end(self) -> None:
        self.message = b""


class Sleepers(WorkerPool[Sleeper]):
    """By a clock of its own: a tenth of a second passes with every look."""

    name = "sleepers"
    now = 0.0

    def start(self) -> Sleeper:
        return Sleeper()

    def wait(self, workers: list[Sleeper], seconds: float) -> list[Sleeper]:
        self.now += 0.1
        for worker in workers:
            worker.looks += 1
        return [worker for worker in workers if worker.looks > 5]

    def publish(self, key: str, content: bytes) -> None:
        assert unpack(content) == 0

    def withdraw(self, key: str) -> None:
        assert key.startswith("shared")


def test_starting_is_not_hanging(helpers: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that takes longer to start than a task may take is waited for: a busy machine must not lose tasks."""
    sleepers = Sleepers(2)
    monkeypatch.setattr(pool, "time", SimpleNamespace(monotonic=lambda: sleepers.now))
    assert list(sleepers.attempt(helpers.add, 0, range(5), timeout=0.2)) == [(n, n) for n in range(5)]


def test_workers_share_the_threads(parallel: Executor, helpers: ModuleType) -> None:
    expected = max(1, torch.get_num_threads() // 2)
    assert {count for _, count in parallel.run(helpers.threads, None, range(4))} == {expected}


def test_the_executor_of_a_block_ends_with_it(helpers: ModuleType) -> None:
    before = set(multiprocessing.active_children())
    assert isinstance(current(), Serial)
    with using(open_executor(2)) as executor:
        assert current() is executor
        pids = {pid for _, pid in executor.run(helpers.ident, None, range(8))}
        assert len(pids) <= 2
    assert isinstance(current(), Serial)
    assert set(multiprocessing.active_children()) <= before


@pytest.mark.parametrize("workers", [0, -1, 5000])
def test_bad_numbers_are_refused(workers: int) -> None:
    with refused("out-of-range", "workers"):
        open_executor(workers)


def test_without_ray_the_option_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with refused("not-installed", "ray"):
        open_executor(2, "local")


def test_what_cannot_travel_is_said(parallel: Executor) -> None:
    with refused("unsupported", "workers"):
        list(parallel.run(lambda shared, task: task, None, [1]))
