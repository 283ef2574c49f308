"""Places for connections. Whoever has not shown the token gets one of a few, for seconds; the others are the owner's."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from neurotest.serve.gate import ADMIT

SECONDS = 10.0  # for the first request with the token or its cookie
STRANGERS = 128  # connections that have not sent one yet; a new one ends the oldest
BURST = STRANGERS // 2  # connections accepted at once, so that none is ended before its request is read
KNOWN = 200  # connections that have


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
        self.deadline = self.loop.call_later(SECONDS, transport.abort)
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
