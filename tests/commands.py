"""`python -m neurotest WORDS` as a process that does not import torch again: each is forked from one that has done so.

A command that `start` gives has a folder, variables, streams, signals and an exit code of its own, as one that
`subprocess.Popen` starts. Tests of the start itself (the module path, what is imported, the encoding) start Python themselves.
"""

from __future__ import annotations

import atexit
import functools
import gc
import importlib
import json
import os
import pkgutil
import resource
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).resolve().parents[1]
PATH = (ROOT / "src", ROOT / "lab" / "src", ROOT)
Stream = IO[bytes] | int | None  # a file, subprocess.PIPE, or None: what is written there is not read


class Command:
    """A process that runs a command; named and used as `subprocess.Popen`."""

    def __init__(self, request: Mapping[str, Any], stdout: Stream, stderr: Stream) -> None:
        self.args = request["words"]
        self.returncode: int | None = None
        self.stdout, out = _ends(stdout)
        self.stderr, err = _ends(stderr)
        self._status, status = os.pipe()
        with tempfile.TemporaryFile() as content:
            content.write(json.dumps(request).encode())
            content.seek(0)
            socket.send_fds(_server(), [b"x"], [content.fileno(), status, out, err])
        for number in (out, err, status):
            os.close(number)
        line = b""
        while not line.endswith(b"\n"):
            line += os.read(self._status, 1)
        self.pid = int(line)

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self._status], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
            self.returncode = int(os.read(self._status, 20))
            os.close(self._status)
        return self.returncode

    def poll(self) -> int | None:
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout: float | None = None) -> tuple[Any, Any]:
        """What it wrote, once it has ended: text, or None for a stream that was not asked for."""
        end = None if timeout is None else time.monotonic() + timeout
        texts: list[Any] = [None, None]

        def read(number: int, stream: IO[str]) -> None:
            texts[number] = stream.read()

        streams = [(number, stream) for number, stream in enumerate((self.stdout, self.stderr)) if stream is not None]
        threads = [threading.Thread(target=read, args=pair, daemon=True) for pair in streams]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(None if end is None else max(0, end - time.monotonic()))
        self.wait(None if end is None else max(0, end - time.monotonic()))
        for _, stream in streams:
            stream.close()
        return texts[0], texts[1]

    def __enter__(self) -> Command:
        return self

    def __exit__(self, *about: object) -> None:
        self.wait()


def _ends(stream: Stream) -> tuple[IO[str] | None, int]:
    """What the command writes to goes to a file, to a pipe whose end is ours, or nowhere."""
    if stream is None:
        return None, os.open(os.devnull, os.O_WRONLY)
    if isinstance(stream, int):
        assert stream == subprocess.PIPE
        ours, theirs = os.pipe()
        return open(ours, encoding="utf-8"), theirs
    return None, os.dup(stream.fileno())


def start(
    *words: object, cwd: Path | str, module: str = "neurotest", stdin: str = "", stdout: Stream = subprocess.PIPE,
    stderr: Stream = subprocess.PIPE, variables: Mapping[str, str] | None = None, session: bool = False,
    file_size: int | None = None,
) -> Command:  # fmt: skip
    """Start it. variables: beside those of this process. session: it leads one. file_size: bytes that a file may have."""
    request = {
        "words": list(map(str, words)), "cwd": str(cwd), "module": module, "stdin": stdin, "session": session,
        "file_size": file_size, "variables": {**os.environ, "OMP_NUM_THREADS": "1", **(variables or {})},
    }  # fmt: skip
    return Command(request, stdout, stderr)


def run(*words: object, timeout: float | None = None, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run it to its end."""
    command = start(*words, **options)
    out, err = command.communicate(timeout)
    return subprocess.CompletedProcess(command.args, command.wait(), out, err)


@functools.cache
def _server() -> socket.socket:
    """The connection to the process that commands are forked from: one for as long as this process lives."""
    ours, theirs = socket.socketpair()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, PATH)), "OMP_NUM_THREADS": "1"}
    with open(os.devnull, "r+b") as nothing:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "tests.commands", str(theirs.fileno())], cwd="/", env=environment, stdin=nothing,
            stdout=nothing, pass_fds=[theirs.fileno()],
        )  # fmt: skip
    theirs.close()

    def end() -> None:
        ours.close()  # it ends when nobody is connected
        process.wait()

    atexit.register(end)
    return ours


# -- in that process


def serve(connection: socket.socket) -> None:
    """Fork a command for every request: the parent of each waits for it and says how it ended."""
    _import_all()
    while True:
        message, numbers, _, _ = socket.recv_fds(connection, 1, 4)
        if not message:
            return
        if os.fork() == 0:
            connection.close()
            _watch(numbers)
            return
        for number in numbers:
            os.close(number)
        with suppress(ChildProcessError):  # those that have ended
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def _import_all() -> None:
    """What commands import, except for what is not installed here."""
    import torch  # noqa: F401

    import neurotest

    for module in pkgutil.walk_packages(neurotest.__path__, "neurotest.", onerror=lambda name: None):
        if not module.name.endswith("__main__"):
            with suppress(Exception):
                importlib.import_module(module.name)
    gc.collect()
    gc.freeze()


def _watch(numbers: list[int]) -> None:
    """In a process between the two: what runs the command returns from here, what waits for it does not."""
    content, status, *streams = numbers
    child = os.fork()
    if child == 0:
        os.close(status)
        with open(content, "rb") as text:
            request = json.load(text)
        for number, stream in enumerate(streams, 1):
            os.dup2(stream, number)
            os.close(stream)
        _become(request)
        return
    for number in (content, *streams):
        os.close(number)
    os.write(status, b"%d\n" % child)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with suppress(BrokenPipeError):
        os.write(status, b"%d" % code)
    os._exit(0)


def _become(request: Mapping[str, Any]) -> None:
    if request["session"]:
        os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where the tests run in the background
    if request["file_size"] is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (request["file_size"],) * 2)
    if request["stdin"]:
        with tempfile.TemporaryFile() as text:
            text.write(request["stdin"].encode())
            text.seek(0)
            os.dup2(text.fileno(), 0)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["variables"])
    sys.argv[:] = ["neurotest", *request["words"]]
    runpy.run_module(request["module"], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
