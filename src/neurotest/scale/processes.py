"""Workers that are processes of this machine."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import tempfile
import threading
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path

from neurotest import interrupts
from neurotest.scale.pool import WorkerDied, WorkerPool
from neurotest.scale.start import pipe, start_process
from neurotest.scale.tasks import TaskRunner, settle


class Process:
    """One process and the pipe to it."""

    def __init__(self, folder: Path, threads: int) -> None:
        self.pipe, theirs = pipe()
        self._process = start_process(_work, theirs, str(folder), threads)
        theirs.close()

    def send(self, key: str, message: bytes) -> None:
        try:
            self.pipe.send_bytes(key.encode())
            self.pipe.send_bytes(message)
        except OSError as error:
            raise WorkerDied(self._why()) from error

    def answer(self) -> bytes | None:
        try:
            return self.pipe.recv_bytes() or None
        except (EOFError, OSError) as error:
            raise WorkerDied(self._why()) from error

    def _why(self) -> str:
        self._process.join(1)
        code = self._process.exitcode
        if code is not None and code < 0:
            with suppress(ValueError):
                return f"ended by {signal.Signals(-code).name}"
        guard = ' (a script that starts workers needs `if __name__ == "__main__":`)' if code == 1 else ""
        return f"ended with exit code {code}{guard}"

    def end(self) -> None:
        self._process.kill()
        self._process.join()
        self.pipe.close()


class Processes(WorkerPool[Process]):
    """So many processes, each with so many threads. What tasks share lies in a file that each of them reads once."""

    name = "processes"

    def __init__(self, workers: int, threads: int) -> None:
        super().__init__(workers)
        self.threads = threads
        self._folder = Path(tempfile.mkdtemp(prefix="neurotest-workers-"))

    def start(self) -> Process:
        return Process(self._folder, self.threads)

    def wait(self, workers: list[Process], seconds: float) -> list[Process]:
        ready = wait([worker.pipe for worker in workers], seconds)
        return [worker for worker in workers if worker.pipe in ready]

    def publish(self, key: str, content: bytes) -> None:
        (self._folder / key).write_bytes(content)

    def withdraw(self, key: str) -> None:
        (self._folder / key).unlink(missing_ok=True)

    def close(self) -> None:
        super().close()
        shutil.rmtree(self._folder, ignore_errors=True)


def _work(connection: Connection, folder: str, threads: int) -> None:
    _begin(threads)
    connection.send_bytes(b"")  # started
    runner = TaskRunner()
    while True:
        try:
            key = connection.recv_bytes().decode()
            message = connection.recv_bytes()
        except (EOFError, OSError):
            return
        file = Path(folder) / key
        connection.send_bytes(runner.do(key, file.read_bytes, message))


def _begin(threads: int) -> None:
    """In a new process: Ctrl-C is for whoever started it, and it does not stay when that one is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def follow() -> None:
        parent.join()
        os._exit(interrupts.EXIT)

    threading.Thread(target=follow, daemon=True).start()
    settle(threads)
