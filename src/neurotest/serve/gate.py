"""Who may speak to the server, and what stands in front of every request.

Whoever has the address that was printed, and then the browser that opened it. Every request needs the right host, no foreign
page, a token or its cookie, and a small body. Connections without the token get a few places, for seconds.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import os
import re
import secrets
import time
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs

from uvicorn.protocols.http.h11_impl import H11Protocol

from neurotest import files

BYTES = 32


def _new() -> str:
    return secrets.token_hex(BYTES)


@dataclass(frozen=True)
class Access:
    """token: in the address, new with every start. secret: what the cookie is made of; it outlives the server, so that open tabs
    go on after a restart."""

    port: int
    token: str = field(default_factory=_new)
    secret: str = field(default_factory=_new)

    @classmethod
    def of(cls, run_id: str, port: int) -> Access:
        """For the server of a run; the secret lies in the user's cache, never in the run."""
        return cls(port, secret=_kept(run_id))

    @property
    def hosts(self) -> frozenset[str]:
        """What a browser on this machine calls the server; any other name was made to point here by somebody else."""
        return frozenset(f"{name}:{self.port}" for name in ("127.0.0.1", "localhost"))

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    @property
    def url(self) -> str:
        return f"{self.address}?token={self.token}"

    @property
    def cookie_name(self) -> str:
        return f"neurotest-{self.port}"  # cookies do not tell ports apart

    @property
    def cookie(self) -> str:
        return hmac.new(self.secret.encode(), self.cookie_name.encode(), hashlib.sha256).hexdigest()

    def knows_token(self, text: str) -> bool:
        return hmac.compare_digest(text.encode("utf-8", "replace"), self.token.encode())

    def knows_cookie(self, text: str) -> bool:
        return hmac.compare_digest(text.encode("utf-8", "replace"), self.cookie.encode())


def _kept(run_id: str) -> str:
    """The secret of a run's servers, made on first use; without a writable cache a new one each time."""
    if not re.fullmatch(r"[0-9a-f]{32}", run_id):
        return _new()
    place, secret = files.cache_dir() / "serve" / run_id, _new()
    with suppress(OSError, UnicodeDecodeError):
        text = place.read_text()
        if re.fullmatch(rf"[0-9a-f]{{{2 * BYTES}}}", text):
            return text
    part = place.with_name(f".{place.name}.{os.getpid()}.part")
    with suppress(OSError):
        place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_NOFOLLOW", 0), 0o600), "w") as file:
            file.write(secret)
        os.replace(part, place)
    return secret


Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

LARGEST = 1 << 16  # bytes of a request's body
PER_SECOND, BURST = 100.0, 400.0  # requests of those who may speak
KNOCKS_PER_SECOND, KNOCKS = 2.0, 20.0  # and of those who may not
ADMIT = "admit"  # in the state of a request: what is called when whoever asks is known
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; media-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
ONWARD = b'<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0; url=/"><a href="/">neurotest</a>\n'
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}


class _Bucket:
    """So many requests per second, after a first burst."""

    def __init__(self, per_second: float, burst: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.per_second, self.burst, self.clock = per_second, burst, clock
        self.left, self.at = burst, clock()

    def take(self) -> bool:
        now = self.clock()
        self.left, self.at = min(self.burst, self.left + (now - self.at) * self.per_second), now
        if self.left < 1:
            return False
        self.left -= 1
        return True


class _Refused(Exception):
    """A request that goes no further."""

    def __init__(self, status: int, reason: str, **headers: str) -> None:
        super().__init__(reason)
        self.status, self.reason, self.headers = status, reason, headers


class Gate:
    """The application behind the checks."""

    def __init__(self, app: App, access: Access, *, guests: _Bucket | None = None, users: _Bucket | None = None) -> None:
        self.app, self.access = app, access
        self.guests = guests or _Bucket(KNOCKS_PER_SECOND, KNOCKS)
        self.users = users or _Bucket(PER_SECOND, BURST)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":  # nobody here speaks over a socket that stays open
            await send({"type": "websocket.close", "code": 1008})
            return
        shielded = _with_headers(send)
        try:
            headers = _headers(scope)
            self._refuse_foreign(scope["method"], headers)
            if (entrance := self._entrance(scope)) is not None:
                _admit(scope)
                await _enter(shielded, headers, entrance)
                return
            self._refuse_strangers(scope, headers)
            body = await _body(headers, receive)
            _refuse_forms(scope["method"], headers, body)
        except _Refused as refusal:
            content = json.dumps({"detail": refusal.reason}).encode()
            await _answer(shielded, refusal.status, content, {"content-type": "application/json", **refusal.headers})
            return
        await self.app(scope, _replayed(body, receive), shielded)

    def _refuse_foreign(self, method: str, headers: dict[str, str]) -> None:
        if headers.get("host") not in self.access.hosts:
            raise _Refused(400, f"This server is called {self.access.address} and nothing else.")
        origins = {f"http://{host}" for host in self.access.hosts}
        if "origin" in headers and headers["origin"] not in origins:
            raise _Refused(403, "A page of another site asked: refused.")
        if method not in ("GET", "HEAD") and headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
            raise _Refused(403, "A page of another site asked: refused.")

    def _entrance(self, scope: Scope) -> str | None:
        """The cookie for whoever comes with the token; None for a request without one."""
        tokens = parse_qs(scope.get("query_string", b"").decode("latin-1")).get("token")
        if scope["method"] != "GET" or scope["path"] != "/" or not tokens:
            return None
        if not self.access.knows_token(tokens[0]):
            self._turn_away()
        return f"{self.access.cookie_name}={self.access.cookie}; Path=/; HttpOnly; SameSite=Strict"

    def _refuse_strangers(self, scope: Scope, headers: dict[str, str]) -> None:
        kind, _, bearer = headers.get("authorization", "").partition(" ")
        if not (kind.lower() == "bearer" and self.access.knows_token(bearer.strip())) and not self._has_cookie(headers):
            self._turn_away()
        _admit(scope)
        if not self.users.take():
            raise _Refused(429, "Too many requests: wait a second.", **{"retry-after": "1"})

    def _has_cookie(self, headers: dict[str, str]) -> bool:
        try:
            morsel = SimpleCookie(headers.get("cookie", "")).get(self.access.cookie_name)
        except CookieError:
            return False
        return morsel is not None and self.access.knows_cookie(morsel.value)

    def _turn_away(self) -> None:
        if not self.guests.take():
            raise _Refused(429, "Too many requests without the token: wait.", **{"retry-after": "1"})
        raise _Refused(
            401, "Open the address that neurotest printed when it started: it holds the token.", **{"www-authenticate": "Bearer"}
        )


def _admit(scope: Scope) -> None:
    """Tell the connection, where it is one of the server's (`Connection`), that whoever speaks there is known."""
    scope.get("state", {}).get(ADMIT, lambda: None)()


async def _enter(send: Send, headers: dict[str, str], cookie: str) -> None:
    """Go on to the page. A browser that comes from another page, our own file, does not send a strict cookie after a redirect:
    there a page of ours leads on."""
    if headers.get("sec-fetch-site") == "cross-site":
        await _answer(send, 200, ONWARD, {"content-type": "text/html; charset=utf-8", "set-cookie": cookie})
    else:
        await _answer(send, 303, b"", {"location": "/", "set-cookie": cookie})


def _headers(scope: Scope) -> dict[str, str]:
    """By name; one that comes twice is refused where it decides anything."""
    headers: dict[str, str] = {}
    for raw, value in scope["headers"]:
        name = raw.decode("latin-1").lower()
        if name in headers and name in ("host", "origin", "authorization", "content-length", "content-type"):
            raise _Refused(400, f"The header {name} came twice.")
        headers[name] = f"{headers[name]}; {text}" if (text := value.decode("latin-1")) and name in headers else text
    return headers


async def _body(headers: dict[str, str], receive: Receive) -> bytes:
    """All of it, at most LARGEST bytes."""
    too_large = _Refused(413, f"A request has at most {LARGEST:,} bytes.", connection="close")
    length = headers.get("content-length", "0")
    if not length.isascii() or not length.isdigit() or len(length) > 12:
        raise _Refused(400, "The header content-length is no number.")
    if int(length) > LARGEST:
        raise too_large
    body, more = b"", True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _Refused(400, "The request ended early.")
        body += message.get("body", b"")
        more = message.get("more_body", False)
        if len(body) > LARGEST:
            raise too_large
    return body


def _refuse_forms(method: str, headers: dict[str, str], body: bytes) -> None:
    """What a form of another page can send is no JSON."""
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if method not in ("GET", "HEAD") and body and kind != "application/json":
        raise _Refused(415, "Send JSON: content-type application/json.")


def _replayed(body: bytes, receive: Receive) -> Receive:
    waiting = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return waiting.pop() if waiting else await receive()

    return again


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            own = {raw.decode("latin-1").lower() for raw, _ in message.get("headers", ())}
            added = [(name.encode(), value.encode()) for name, value in HEADERS.items() if name not in own]
            message = {**message, "headers": [*message.get("headers", ()), *added]}
        await send(message)

    return sending


async def _answer(send: Send, status: int, body: bytes, headers: dict[str, str]) -> None:
    pairs = [(name.encode(), value.encode()) for name, value in {**headers, "content-length": str(len(body))}.items()]
    await send({"type": "http.response.start", "status": status, "headers": pairs})
    await send({"type": "http.response.body", "body": body})


STRANGER_SECONDS = 10.0  # for the first request with the token or its cookie
STRANGERS = 128  # connections that have not sent one yet; a new one ends the oldest
CONNECTION_BURST = STRANGERS // 2  # connections accepted at once, so that none is ended before its request is read
OWNERS = 200  # connections that have


class Connection(H11Protocol):
    """One connection, a stranger's until the gate has seen the token."""

    def __init__(self, config: Any, server_state: Any, app_state: dict[str, Any], _loop: Any = None) -> None:
        super().__init__(config, server_state, {**app_state, ADMIT: self.admit}, _loop)
        self.admitted = False
        self.made = 0.0
        self.deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.made = self.loop.time()
        self.deadline = self.loop.call_later(STRANGER_SECONDS, transport.abort)
        strangers = [one for one in self.connections if isinstance(one, Connection) and not one.admitted]
        for stranger in sorted(strangers, key=lambda one: one.made)[:-STRANGERS]:
            stranger.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_deadline()
        super().connection_lost(exc)

    def admit(self) -> None:
        self.admitted = True
        self._end_deadline()

    def _end_deadline(self) -> None:
        if self.deadline is not None:
            self.deadline.cancel()
            self.deadline = None
