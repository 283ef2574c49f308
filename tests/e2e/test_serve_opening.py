"""How a page is opened, and who gets a connection: a browser that does not return, command lines that others read, silence."""

from __future__ import annotations

import contextlib
import http.client
import os
import queue
import re
import signal
import socket
import stat
import threading
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from tests import commands
from tests.commands import Command
from tests.e2e.servers import Server, free_port
from tests.unit.serve.subjects import adaptive_run, campaign
from tests.waiting import LIMIT

pytest.importorskip("fastapi", reason="the pages need fastapi: pip install 'neurotest[serve]'")
pytest.importorskip("uvicorn", reason="the pages need uvicorn: pip install 'neurotest[serve]'")
pytestmark = pytest.mark.plain
# Says what it was given, then waits until somebody writes into a pipe, as a browser in a terminal waits for its user.
BROWSER = """#!/bin/sh
printf '%s\\n' "$@" > "$TOLD.part"
mv "$TOLD.part" "$TOLD"
read line < "$PIPE"
"""
SILENT = 300


def get(port: int, path: str, **headers: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT)
    with contextlib.closing(connection):
        connection.request("GET", path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        return answer.status, answer.read()


def first_line(process: Command) -> str:
    lines: queue.Queue[str] = queue.Queue()
    assert process.stdout is not None
    threading.Thread(target=lambda: lines.put(process.stdout.readline()), daemon=True).start()  # type: ignore[union-attr]
    return lines.get(timeout=LIMIT)


@pytest.mark.parametrize("command", ["label", "serve"])
def test_a_browser_that_does_not_return_holds_nothing_up_and_is_told_no_token(tmp_path: Path, command: str) -> None:
    run = adaptive_run(tmp_path) if command == "label" else campaign(tmp_path)
    browser, told, pipe = (tmp_path / name for name in ("browser", "told", "pipe"))
    browser.write_text(BROWSER)
    browser.chmod(0o755)
    os.mkfifo(pipe)
    variables = {"BROWSER": str(browser), "TOLD": str(told), "PIPE": str(pipe)}
    process = commands.start(command, run.name, "--port", free_port(), cwd=tmp_path, stderr=None, variables=variables)
    try:
        address = urlsplit(re.findall(r"http://\S+", first_line(process))[0])
        token = address.query.removeprefix("token=")
        assert address.port is not None
        assert get(address.port, "/", authorization=f"Bearer {token}")[0] == 200  # whatever the browser does
        with open(pipe, "w") as waiting:  # opens when the browser reads: it has been started
            word = told.read_text().strip()
            page = Path(unquote(urlsplit(word).path))
            assert word.startswith("file://")
            assert token not in word
            assert token in page.read_text()
            assert stat.S_IMODE(page.stat().st_mode) == 0o600
            assert stat.S_IMODE(page.parent.stat().st_mode) == 0o700
            for _ in range(2):  # the address that was printed goes on working
                assert get(address.port, f"/?{address.query}")[0] == 303
            process.send_signal(signal.SIGINT)
            process.wait(LIMIT)
            assert not page.parent.exists()
            waiting.write("end\n")
    finally:
        process.kill()
        process.wait()


def test_silent_connections_do_not_keep_the_owner_out(tmp_path: Path) -> None:
    adaptive_run(tmp_path)
    with Server("label", "run", cwd=tmp_path) as server, contextlib.ExitStack() as stack:
        headers = {"Authorization": f"Bearer {server.token}"}
        before = http.client.HTTPConnection("127.0.0.1", server.port, timeout=LIMIT)
        stack.callback(before.close)
        before.request("GET", "/api/about", headers=headers)
        assert before.getresponse().read()
        socket_before = before.sock
        silent = [stack.enter_context(socket.create_connection(("127.0.0.1", server.port), LIMIT)) for _ in range(SILENT)]
        for one in silent[::2]:
            with contextlib.suppress(OSError):  # it may have been ended already
                one.sendall(b"GET / HTTP/1.1\r\nHost: ")
        assert [server.ask("/api/about").status for _ in range(5)] == [200] * 5
        before.request("GET", "/api/about", headers=headers)
        assert before.getresponse().status == 200
        assert before.sock is socket_before  # the connection that was there has been kept
        for one in silent:  # all of them are ended: those that were too many at once, the others when their time is up
            with contextlib.suppress(ConnectionResetError):
                assert one.recv(1) == b""
