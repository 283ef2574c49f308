"""`python without_posix.py COMMAND...`: neurotest as far as possible as on a Windows machine, on Linux.

Modules and names that Windows lacks are taken away; `msvcrt` is a stand-in of ours; a file that is open is neither removed nor
replaced; a file that is open for reading only is not synced. Paths, processes and SQLite stay those of Linux: only Windows itself
shows what they do there.
"""

from __future__ import annotations

import errno
import fcntl
import importlib.abc
import os
import shutil
import signal
import subprocess  # noqa: F401  # takes a Python with msvcrt for Windows: imported before that is there
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

HIDDEN = {"fcntl", "resource", "termios", "pwd", "grp", "pty", "tty", "syslog"}
OF_OS = (
    "O_NOFOLLOW", "O_DIRECTORY", "O_CLOEXEC", "O_NONBLOCK", "O_NOCTTY", "SEEK_DATA", "SEEK_HOLE", "fwalk", "fork", "forkpty",
    "getuid", "geteuid", "mkfifo", "sysconf", "killpg", "setsid", "statvfs", "fchmod", "fchown", "sched_getaffinity",
)  # fmt: skip
OF_SIGNAL = ("SIGHUP", "SIGALRM", "SIGKILL", "SIGUSR1", "setitimer", "alarm", "ITIMER_REAL")


class Hide(importlib.abc.MetaPathFinder):
    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name in HIDDEN:
            raise ImportError(f"No module named {name!r}", name=name)
        return None


def stand_in() -> ModuleType:
    """Locks as Windows has them: exclusive, of bytes that nobody else can read meanwhile."""
    module: Any = ModuleType("msvcrt")
    module.LK_UNLCK, module.LK_LOCK, module.LK_NBLCK = 0, 1, 2

    def locking(file: int, mode: int, size: int) -> None:
        assert os.lseek(file, 0, os.SEEK_CUR) >= os.fstat(file).st_size, "others could not read the file any more"
        assert mode in (module.LK_UNLCK, module.LK_NBLCK)
        try:
            fcntl.flock(file, fcntl.LOCK_UN if mode == module.LK_UNLCK else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise PermissionError(errno.EACCES, "Permission denied") from None

    module.locking = locking
    return module


def refuse_open_files() -> None:
    here = os.getcwd() + os.sep

    def is_open(path: Any) -> bool:
        try:
            status = os.lstat(path)
        except OSError:
            return False
        for number in os.listdir("/proc/self/fd"):
            try:
                if os.path.samestat(os.fstat(int(number)), status):
                    return True
            except OSError:
                continue
        return False

    def guarded(name: str) -> Any:
        real = getattr(os, name)

        def call(*paths: Any, **options: Any) -> Any:
            assert not options, f"os.{name} with {options}"
            for path in paths:
                if os.path.abspath(os.fsdecode(path)).startswith(here) and is_open(path):
                    raise PermissionError(errno.EACCES, "it is open", os.fspath(path))
            return real(*paths)

        return call

    for name in ("unlink", "remove", "rmdir", "replace", "rename"):
        setattr(os, name, guarded(name))


def hide() -> None:
    sys.modules["msvcrt"] = stand_in()
    sys.meta_path.insert(0, Hide())
    for name in HIDDEN:
        sys.modules.pop(name, None)
    os.supports_dir_fd, os.supports_fd = set(), set()
    shutil._use_fd_functions = False  # type: ignore[attr-defined]  # what it finds by these when it is imported
    for module, names in ((os, OF_OS), (signal, OF_SIGNAL)):
        for name in names:
            if hasattr(module, name):
                delattr(module, name)
    sync = os.fsync

    def fsync(file: int) -> None:
        os.write(file, b"")  # refused where the file is open for reading only
        sync(file)

    os.fsync = fsync
    refuse_open_files()


if __name__ == "__main__":
    hide()
    if sys.argv[1] == "-c":
        exec(sys.argv[2])
    else:
        from neurotest.cli.app import main

        main()
