"""Work ahead in threads: the same order, the same errors, a few results at a time."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from tests.waiting import LIMIT

import neurotest
from neurotest.data.ahead import FEW_ITEMS, ahead, one_ahead

pytestmark = pytest.mark.plain


@given(count=st.integers(0, 60), threads=st.integers(1, 4))
def test_order_and_results_are_those_of_a_plain_loop(count: int, threads: int) -> None:
    items = list(range(count))
    assert [(item, result()) for item, result in ahead(lambda n: n * n, items, threads=threads)] == [(n, n * n) for n in items]


def test_an_error_belongs_to_its_item() -> None:
    def odd(n: int) -> int:
        if n % 2:
            raise ValueError(n)
        return n

    for item, result in ahead(odd, range(3 * FEW_ITEMS), threads=2):
        if item % 2:
            with pytest.raises(ValueError, match=str(item)):
                result()
        else:
            assert result() == item


def test_no_more_is_done_than_is_asked_for_soon() -> None:
    begun: list[int] = []
    lock = threading.Lock()

    def note(n: int) -> int:
        with lock:
            begun.append(n)
        return n

    results = ahead(note, range(10 * FEW_ITEMS), threads=2)
    assert next(results)[1]() == 0
    results.close()  # type: ignore[attr-defined]
    assert len(begun) <= 6


def waiting() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "neurotest-ahead"]


@given(st.lists(st.integers()))
def test_one_ahead_gives_what_a_plain_loop_gives(items: list[int]) -> None:
    assert list(one_ahead(lambda n: n * n, items)) == [(n, n * n) for n in items]
    assert not waiting()


def test_the_next_one_begins_while_this_one_is_used_and_no_other_does() -> None:
    begun = [threading.Event() for _ in range(4)]

    def note(n: int) -> int:
        begun[n].set()
        return n

    for n, _ in one_ahead(note, range(4)):
        if n < 3:
            assert begun[n + 1].wait(LIMIT)
        assert not any(later.is_set() for later in begun[n + 2 :])


def test_what_one_ahead_raises_comes_in_its_turn() -> None:
    def third(n: int) -> int:
        if n == 2:
            raise ValueError("the third")
        return n

    got: list[int] = []
    with pytest.raises(ValueError, match="the third"):
        got.extend(n for n, _ in one_ahead(third, range(5)))
    assert got == [0, 1]
    assert not waiting()


def test_whoever_stops_early_leaves_no_thread() -> None:
    release = threading.Event()
    results = one_ahead(lambda n: release.wait(LIMIT) if n else True, range(3))
    assert next(results) == (0, True)
    assert len(waiting()) == 1
    release.set()
    results.close()
    assert not waiting()


def test_a_folder_reads_the_same_with_and_without_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(0)
    for number in range(2 * FEW_ITEMS):
        Image.fromarray(random.integers(0, 256, (8, 8, 3), dtype=np.uint8)).save(tmp_path / f"{number:03d}.png")
    (tmp_path / "010.png").write_bytes(b"damaged")
    sources = []
    for threads in (1, 4):
        monkeypatch.setattr("neurotest.data.ahead.THREADS", threads)
        monkeypatch.setattr("os.cpu_count", lambda: 4)
        sources.append(neurotest.data(f"dir:{tmp_path}"))
    assert len(sources[0]) == 2 * FEW_ITEMS - 1
    assert sources[0].digest() == sources[1].digest()
    assert [one.file for one in sources[1].skipped] == ["010.png"]
