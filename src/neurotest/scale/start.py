"""Where every process of neurotest is started: none of them looks for modules in the current folder.

`python -c`, and with it multiprocessing's spawn, puts the current folder first on the module path. Somebody else's files may lie
there: a `signal.py` in a run that was sent would run in place of Python's own.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import IO, Any

_SPAWN = multiprocessing.get_context("spawn")  # a fork would take locks and open connections along
_SAFE_PATH = "PYTHONSAFEPATH"
_lock = threading.Lock()


def pipe(duplex: bool = True) -> tuple[Connection, Connection]:
    """Both ends of a connection; one is for the process that is started next."""
    return _SPAWN.Pipe(duplex)


def start_process(function: Callable[..., None], *arguments: Any, name: str | None = None) -> BaseProcess:
    """A new Python process that calls a function; it does not outlive this one."""
    process = _SPAWN.Process(target=function, args=arguments, name=name, daemon=True)
    with _safe_path():  # also for the process in which multiprocessing counts semaphores
        process.start()
    return process


def run_python(*arguments: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """`python ARGUMENTS` to its end."""
    return subprocess.run([sys.executable, "-P", *arguments], capture_output=True, text=True, env=env, check=False)


def start_module(module: str, stdin: IO[bytes], stdout: IO[bytes]) -> subprocess.Popen[bytes]:
    """A new Python process that calls `main` of a module of this very neurotest, wherever else another one is installed.

    Unlike `start_process` it works in scripts without `if __name__ == "__main__":`, and in workers.
    """
    code = f"import sys; sys.path.insert(0, sys.argv[1]); import neurotest; del sys.path[0]; from {module} import main; main()"
    command = [sys.executable, "-P", "-c", code, str(Path(__file__).resolve().parents[2])]
    return subprocess.Popen(command, stdin=stdin, stdout=stdout, stderr=subprocess.DEVNULL)


def wait(process: subprocess.Popen[bytes], check: Callable[[], None]) -> int:
    """How a process ended. check: called while it runs; what it raises ends the waiting."""
    while True:
        check()
        with suppress(subprocess.TimeoutExpired):
            return process.wait(0.5)


def limit_process(*, seconds: int, memory: int) -> None:
    """From now on this process may use so many seconds of the processor and bytes of addresses; if it crashes, it leaves no file.

    Seconds of the processor, because those of the clock say how busy the machine is.
    """
    try:
        import resource
    except ImportError:  # not on Windows, where nothing limits it
        return
    used = resource.getrusage(resource.RUSAGE_SELF)

    def lower(kind: int, most: int) -> None:
        soft, hard = resource.getrlimit(kind)  # of whoever started this: an ordinary user may not raise either
        resource.setrlimit(kind, (min([most, *(limit for limit in (soft, hard) if limit >= 0)]), hard))

    lower(resource.RLIMIT_CPU, math.ceil(used.ru_utime + used.ru_stime) + seconds)
    lower(resource.RLIMIT_CORE, 0)
    with suppress(OSError, ValueError):  # nothing tells how much it has
        now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        lower(resource.RLIMIT_AS, now + memory)


@contextmanager
def current_folder(folder: str) -> Iterator[None]:
    """Be in another folder for a moment. A Ray puts the one it is started in on the module path of every worker."""
    with _lock:
        before = os.getcwd()
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)


@contextmanager
def _safe_path() -> Iterator[None]:
    with _lock:
        before = os.environ.get(_SAFE_PATH)
        os.environ[_SAFE_PATH] = "1"
        try:
            yield
        finally:
            if before is None:
                del os.environ[_SAFE_PATH]
            else:
                os.environ[_SAFE_PATH] = before
