"""What both pages share: the application, its files, its errors, and the socket it listens on."""

from __future__ import annotations

import errno
import mimetypes
import os
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from importlib import resources
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response

from neurotest import __version__
from neurotest.errors import BadInput, spelled
from neurotest.serve.gate import CONNECTION_BURST, OWNERS, STRANGERS, Access, Connection, Gate
from neurotest.serve.models import Missing, Problem, Taken

STATIC = (
    "base.css", "page.css", "api.js", "chart.js", "classes.js", "grid.js", "label.js", "live.js", "media.js", "quantity.js",
)  # fmt: skip
KINDS = {".js": "text/javascript", ".css": "text/css", ".html": "text/html"}
PNG: dict[int | str, dict[str, Any]] = {200: {"content": {"image/png": {}}, "description": "an image"}}
WAV: dict[int | str, dict[str, Any]] = {200: {"content": {"audio/wav": {}}, "description": "audio"}}
PORTS = range(8731, 8741)  # tried in turn, so that a server that starts again is found where it was
LEADING = """<!doctype html><meta charset="utf-8"><title>neurotest</title><meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0; url={url}"><a href="{url}">neurotest</a>
"""
REFUSALS: dict[int | str, dict[str, Any]] = {
    number: {"model": Problem, "description": words}
    for number, words in {
        400: "what was asked for does not fit the run, or the request is malformed", 401: "the token is missing",
        403: "a page of another site asked", 404: "there is no such thing", 409: "somebody else has it",
        413: "the body is too large", 415: "the body is no JSON", 422: "a value does not fit", 429: "too many requests",
    }.items()
}  # fmt: skip


def application(title: str, page: str, summary: str) -> FastAPI:
    """An application with its page at `/`, its files, and its description at `/api/openapi.json`."""
    app = FastAPI(
        title=title, version=__version__, description=summary, docs_url=None, redoc_url=None, openapi_url="/api/openapi.json",
        responses=REFUSALS,
    )  # fmt: skip
    for kind, status in ((Missing, 404), (Taken, 409), (BadInput, 400)):
        app.add_exception_handler(kind, _sentence(status))
    app.add_exception_handler(RequestValidationError, _unfit)

    @app.get("/", include_in_schema=False)
    def index() -> Response:
        return _static_file(page)

    @app.get("/static/{name}", include_in_schema=False)
    def static(name: str) -> Response:
        if name not in STATIC:
            raise Missing("not-found", "file", "there is no such file.")
        return _static_file(name)

    return app


def _static_file(name: str) -> Response:
    """A file of this package; `base.css` is the style sheet of the reports."""
    package, place = ("neurotest.report", "templates/style.css") if name == "base.css" else (__package__, f"static/{name}")
    content = (resources.files(str(package)) / place).read_bytes()
    ending = name[name.rindex(".") :]
    return Response(content, media_type=f"{KINDS.get(ending) or mimetypes.types_map[ending]}; charset=utf-8")


def _sentence(status: int) -> Callable[[Request, Exception], JSONResponse]:
    def answer(request: Request, error: Exception) -> JSONResponse:
        return JSONResponse({"detail": spelled(str(error))}, status)

    return answer


def _unfit(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"][1:]) or "the body"
    return JSONResponse({"detail": f"{where}: {first['msg']}"[:500]}, 422)


def listening(port: int | None) -> socket.socket:
    """A socket on this machine's own address: the port that is named, else one of ours, else any that is free."""
    last: OSError | None = None
    for number in (port,) if port is not None else (*PORTS, 0):
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", number))
            listener.listen(128)
            return listener
        except OSError as error:
            listener.close()
            last = error
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                break
    raise BadInput(
        "busy", "port", f"--port {port}: cannot listen there ({last and last.strerror}); leave it out, or name another."
    )


def serve(app: FastAPI, access: Access, listener: socket.socket, *, browser: bool) -> None:
    """Answer until somebody stops it, and open the page."""
    import uvicorn

    config = uvicorn.Config(
        Gate(app, access), log_level="warning", access_log=False, server_header=False, lifespan="off", http=Connection,
        ws="none", loop="asyncio", limit_concurrency=STRANGERS + OWNERS, backlog=CONNECTION_BURST, timeout_keep_alive=30,
        timeout_graceful_shutdown=3, h11_max_incomplete_event_size=1 << 15,
    )  # fmt: skip
    # uvicorn passes an interrupt on when all is closed
    with _opened(access) if browser else nullcontext(), suppress(KeyboardInterrupt):
        uvicorn.Server(config).run(sockets=[listener])


def announce(access: Access, run: str, *, as_json: bool) -> None:
    """Say where the page is."""
    if as_json:
        from neurotest.cli.show import print_json

        print_json({"url": access.url, "port": access.port, "run": run})
    else:
        print(f"{run}: {access.url}\nOpen this address if no page appears. Ctrl-C ends the server; everything is stored.")
    sys.stdout.flush()


@contextmanager
def _opened(access: Access) -> Iterator[None]:
    """The page in a browser, from a thread, since some browsers hold up whoever starts them.

    Every user of the machine can read command lines. So the browser is given a file that only this user can read, and which leads
    to the address with the token.
    """
    try:
        folder = tempfile.TemporaryDirectory(prefix="neurotest-page-", ignore_cleanup_errors=True)  # mode 0700
    except OSError:  # nowhere to put it: the address is on the terminal
        yield
        return
    with folder:
        place = Path(folder.name, "open.html")
        threading.Thread(target=_open, args=(place, access.url), name="neurotest-browser", daemon=True).start()
        yield


def _open(place: Path, url: str) -> None:
    import webbrowser

    with suppress(webbrowser.Error, OSError):
        with open(os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(LEADING.format(url=url))
        webbrowser.open(place.as_uri())
