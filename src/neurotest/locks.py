"""A lock on an open file that ends with its process: `flock` where Python has fcntl, the byte locks of Windows elsewhere."""

from __future__ import annotations

import errno
import importlib
import os
import time
from contextlib import suppress
from typing import Any


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


fcntl = _module("fcntl")
msvcrt: Any = None if fcntl else _module("msvcrt")
# Windows neither removes nor renames a file that is open.
REMOVABLE = fcntl is not None
# Windows lets nobody else read a byte that is locked: lock one far behind the number of the process that the file holds.
BYTE = 1 << 30
PAUSE = 0.05  # seconds between two attempts, where the system itself does not wait


def lock(file: int, *, shared: bool = False) -> bool:
    """Lock the file if nobody else has, and say whether it worked.

    shared: several may have it at once. Windows has no such locks: two that only look may keep each other out for an instant.
    """
    if fcntl:
        try:
            fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
    if msvcrt is None:
        raise OSError(errno.ENOSYS, "this Python has neither fcntl nor msvcrt, so files cannot be locked")
    try:
        _windows(file, msvcrt.LK_NBLCK)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EDEADLK):
            return False
        raise
    return True


def wait(file: int) -> None:
    """Lock the file as soon as nobody else has it."""
    if fcntl:
        fcntl.flock(file, fcntl.LOCK_EX)
        return
    while not lock(file):
        time.sleep(PAUSE)


def unlock(file: int) -> None:
    """Let go at once; closing the file does it too, but Windows may take its time."""
    if msvcrt is not None:
        with suppress(OSError):
            _windows(file, msvcrt.LK_UNLCK)


def _windows(file: int, mode: int) -> None:
    at = os.lseek(file, 0, os.SEEK_CUR)
    os.lseek(file, BYTE, os.SEEK_SET)
    try:
        msvcrt.locking(file, mode, 1)
    finally:
        os.lseek(file, at, os.SEEK_SET)
