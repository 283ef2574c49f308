"""Where every process of neurotest is started: none of them looks for modules in the current folder.

`python -c`, and with it multiprocessing's spawn, puts the current folder first on the module path. Somebody else's files may lie
there: a `signal.py` in a run that was sent would run in place of Python's own.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

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


@contextmanager
def current_folder(folder: str) -> Iterator[None]:
    """Be in another folder for a moment. A Ray puts the one it is started in on the module path of every worker."""
    before = os.getcwd()
    with _lock:
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
