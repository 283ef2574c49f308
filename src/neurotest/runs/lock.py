"""One writer per run: an advisory lock on RUN/.lock that dies with its process."""

from __future__ import annotations

import errno
import os
import stat
import time
from contextlib import suppress
from io import FileIO
from pathlib import Path

from neurotest import locks
from neurotest.errors import BadInput
from neurotest.runs import handles

NAME = ".lock"
TRIES = 10
PAUSE = 0.05


class Lock:
    """Valid from `take` to `release`, or until the process ends, however it ends."""

    def __init__(self, file: FileIO) -> None:
        self._file = file

    @classmethod
    def take(cls, run: Path) -> Lock:
        """Lock the run for writing, or say who has it."""
        # A listing holds the lock for an instant while it looks, so one refusal is not yet an answer.
        for attempt in range(TRIES):
            if attempt:
                time.sleep(PAUSE)
            if (lock := cls.attempt(run)) is not None:
                return lock
        owner = ""
        with suppress(OSError), _open(run, os.O_RDONLY) as file:
            owner = file.read(20).decode("ascii", "replace").strip()
        who = f" (process {owner})" if owner.isdigit() else ""
        raise BadInput(
            "busy", "", f"{run} is being written by another process{who}: wait until it ends, or choose another --out."
        )

    @classmethod
    def attempt(cls, run: Path) -> Lock | None:
        """Lock the run if nobody has it."""
        try:
            file = _open(run, os.O_RDWR | os.O_CREAT)
        except OSError as error:
            raise BadInput(
                "not-writable", "lock", f"cannot lock {run} for writing: {error.strerror}. Use a place you may write to."
            ) from error
        try:
            # Somebody may have removed the run between our open and our lock: then this lock guards nothing.
            if locks.lock(file.fileno()) and os.fstat(file.fileno()).st_ino == os.stat(run / NAME, follow_symlinks=False).st_ino:
                file.truncate(0)
                file.write(f"{os.getpid()}\n".encode())
                return cls(file)
        except FileNotFoundError:
            pass
        except OSError as error:
            file.close()
            raise BadInput(
                "not-writable", "lock", f"cannot lock {run} for writing: {error.strerror}. Free some space or choose a place."
            ) from error
        file.close()
        return None

    def release(self) -> None:
        if not self._file.closed:
            locks.unlock(self._file.fileno())
        self._file.close()

    def before_removal(self) -> None:
        """Let go where a file that is open cannot be removed; elsewhere the lock is held to the end."""
        if not locks.REMOVABLE:
            self.release()


def _open(run: Path, flags: int) -> FileIO:
    # No link and no pipe: a run somebody sent may point its lock at a file of ours, or let us wait for ever.
    folder = handles.KIND(run)
    try:
        number = folder.open(NAME, flags)
    finally:
        folder.close()
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise OSError(errno.EINVAL, f"{NAME} is no plain file")
    return FileIO(number, "r+" if flags & os.O_RDWR else "r")


def is_locked(run: Path) -> bool:
    """Whether somebody is writing the run now; looking changes nothing."""
    try:
        file = _open(run, os.O_RDONLY)
    except OSError:
        return False
    with file:
        free = locks.lock(file.fileno(), shared=True)
        if free:
            locks.unlock(file.fileno())
    return not free
