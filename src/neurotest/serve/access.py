"""Who may speak to the server: whoever has the address that was printed, and then the browser that opened it."""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
from dataclasses import dataclass, field
from pathlib import Path

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
    place = files.cache_dir() / "serve" / run_id
    try:
        text = place.read_text()
        if re.fullmatch(rf"[0-9a-f]{{{2 * BYTES}}}", text):
            return text
    except (OSError, UnicodeDecodeError):
        pass
    return _keep(place, _new())


def _keep(place: Path, secret: str) -> str:
    part = place.with_name(f".{place.name}.{os.getpid()}.part")
    try:
        place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_NOFOLLOW", 0), 0o600), "w") as file:
            file.write(secret)
        os.replace(part, place)
    except OSError:
        return secret
    return secret
