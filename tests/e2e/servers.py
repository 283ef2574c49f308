"""Servers as users start them: a process, the address it prints, requests over a socket, and an end, kind or not."""

from __future__ import annotations

import http.client
import json
import os
import queue
import random
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from tests import commands
from tests.commands import Command
from tests.waiting import LIMIT, until


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def free_port() -> int:
    """One of our own: what is handed out by default goes to whoever comes first, also while a server is being started again."""
    for port in random.sample(range(20000, 32000), 100):
        with socket.socket() as trial:
            if trial.connect_ex(("127.0.0.1", port)):
                return port
    raise AssertionError("no port is free")


class Server:
    """One process of `neurotest label` or `neurotest serve`."""

    def __init__(self, *arguments: object, cwd: Path, port: int | None = None, program: Path | None = None) -> None:
        """program: a Python script that is started as it stands; else a process that has torch imported runs the command."""
        words = (*arguments, "--port", free_port() if port is None else port, "--json", "--no-browser", "-q")
        self.errors = open(cwd / "server-errors.txt", "ab")  # noqa: SIM115 - as long as the process
        self.process: subprocess.Popen[str] | Command
        if program is None:
            self.process = commands.start(*words, cwd=cwd, stderr=self.errors)
        else:
            source = Path(__file__).parents[2] / "src"
            environment = {**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}
            command = list(map(str, (sys.executable, program, *words)))
            self.process = subprocess.Popen(
                command, cwd=cwd, env=environment, stdout=subprocess.PIPE, stderr=self.errors, text=True
            )
        lines: queue.Queue[str] = queue.Queue()
        assert self.process.stdout is not None
        threading.Thread(target=lambda: lines.put(self.process.stdout.readline()), daemon=True).start()
        line = lines.get(timeout=LIMIT)
        assert line, (cwd / "server-errors.txt").read_text()
        self.started = json.loads(line)
        assert "url" in self.started, self.started
        address = urlsplit(self.started["url"])
        assert address.port is not None
        self.port, self.token, self.url = address.port, address.query.removeprefix("token="), self.started["url"]

    def ask(
        self, path: str, body: Any = None, *, method: str | None = None, raw: bytes | None = None, token: bool = True,
        **headers: str,
    ) -> Answer:  # fmt: skip
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LIMIT)
        content = raw if raw is not None else None if body is None else json.dumps(body).encode()
        usual = {"Authorization": f"Bearer {self.token}"} if token else {}
        if body is not None:
            usual["Content-Type"] = "application/json"
        try:
            sent = {**usual, **{name.replace("_", "-"): value for name, value in headers.items()}}
            connection.request(method or ("GET" if content is None else "POST"), path, content, sent)
            response = connection.getresponse()
            return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
        finally:
            connection.close()

    def stop(self) -> int:
        """Ctrl-C."""
        self.process.send_signal(signal.SIGINT)
        return self._ended()

    def kill(self) -> int:
        """No goodbye."""
        self.process.kill()
        return self._ended()

    def _ended(self) -> int:
        code = self.process.wait(LIMIT)
        self.errors.close()
        return code

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *about: object) -> None:
        if self.process.poll() is None:
            self.kill()


def ended(server: Server, job: dict[str, Any]) -> dict[str, Any]:
    """The job of a live page once it is done or has failed."""

    def asked() -> dict[str, Any] | None:
        now: dict[str, Any] = server.ask(f"/api/jobs/{job['id']}").json
        return None if now["state"] in ("waiting", "running") else now

    now = until(asked, f"the end of job {job['id']}")
    assert now is not None
    return now
