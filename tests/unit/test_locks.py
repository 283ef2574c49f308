"""Locks of open files, by fcntl and by a stand-in of Windows' msvcrt."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from neurotest import files, locks

pytestmark = pytest.mark.plain


class ByteLocks:
    """One byte of a file belongs to one handle."""

    LK_UNLCK, LK_NBLCK = 0, 2

    def __init__(self) -> None:
        self.held: dict[tuple[int, int], int] = {}

    def locking(self, file: int, mode: int, size: int) -> None:
        byte = os.fstat(file).st_ino, os.lseek(file, 0, os.SEEK_CUR)
        owner = self.held.get(byte)
        if mode == self.LK_UNLCK and owner == file:
            del self.held[byte]
        elif mode == self.LK_NBLCK and owner is None:
            self.held[byte] = file
        else:
            raise OSError(errno.EACCES, "Permission denied")


@pytest.fixture(params=["fcntl", "msvcrt"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "msvcrt":
        monkeypatch.setattr(locks, "fcntl", None)
        monkeypatch.setattr(locks, "msvcrt", ByteLocks())
    return str(request.param)


def test_one_handle_has_the_lock_until_it_lets_go(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "file"
    path.write_text("content")
    with open(path) as first, open(path) as second:
        assert locks.lock(first.fileno())
        assert not locks.lock(second.fileno())
        assert not locks.lock(second.fileno(), shared=True)
        assert (first.read(), second.read()) == ("content", "content")  # where a lock is does not move the file
        locks.unlock(first.fileno())
        if kind == "fcntl":
            first.close()
        assert locks.lock(second.fileno())


def test_work_on_a_path_is_done_by_one_at_a_time(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "PAUSE", 0)
    order: list[str] = []

    def second() -> None:
        with files.one_at_a_time(tmp_path / "x"):
            order.append("second")

    thread = threading.Thread(target=second)
    with files.one_at_a_time(tmp_path / "x"):
        thread.start()
        order.append("first")
    thread.join()
    assert order == ["first", "second"]


def test_any_other_failure_of_windows_is_not_taken_for_a_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(file: int, mode: int, size: int) -> None:
        raise OSError(errno.ENOSPC, "No space")

    monkeypatch.setattr(locks, "fcntl", None)
    monkeypatch.setattr(locks, "msvcrt", SimpleNamespace(LK_NBLCK=2, locking=fails))
    with open(tmp_path / "file", "w") as file, pytest.raises(OSError, match="No space"):
        locks.lock(file.fileno())
    monkeypatch.setattr(locks, "msvcrt", None)
    with open(tmp_path / "file", "w") as file, pytest.raises(OSError, match="neither fcntl nor msvcrt"):
        locks.lock(file.fileno())
