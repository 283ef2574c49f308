"""Was this run made by this user on this machine, with this very configuration?

A run that somebody sends names a target; using it could run their code. So every run leaves a record outside itself,
in the cache, with a digest of what it was started with: a copy made elsewhere has no record here, and a run of ours that
comes back changed no longer fits its record.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

from neurotest import files
from neurotest.errors import BadInput
from neurotest.runs.rows import dumps


def _record(run_id: str) -> Path | None:
    # The id comes out of the run and becomes part of a path: nothing but our own spelling is let through.
    return files.cache_dir() / "runs" / run_id if re.fullmatch(r"[0-9a-f]{32}", run_id) else None


def _digest(run_id: str, command: str, config: Any) -> str:
    return hashlib.blake2b(dumps([run_id, command, config]).encode(), digest_size=32).hexdigest()


def keep(run_id: str, command: str, config: Any) -> None:
    """Leave the record. Without a writable cache there is none, and the run counts as somebody else's."""
    _write(run_id, _digest(run_id, command, config))


def fits(run_id: str, command: str, config: Any) -> bool:
    return hmac.compare_digest(_read(run_id)[0].encode(), _digest(run_id, command, config).encode())


def note(run_id: str, state: object) -> None:
    """Keep in the record, if there is one, what the database looked like when we closed it."""
    if digest := _read(run_id)[0]:
        _write(run_id, digest, str(state))


def untouched(run_id: str, state: object) -> bool:
    """Whether the database is as we left it: then what does not fit in it is our own mistake."""
    return state is not None and _read(run_id)[1:] == [str(state)]


def _read(run_id: str) -> list[str]:
    """The digest, and the state if there is one."""
    record = _record(run_id)
    try:
        return (record.read_text() if record else "").splitlines() or [""]
    except (OSError, UnicodeDecodeError):
        return [""]


def _write(run_id: str, *lines: str) -> None:
    record = _record(run_id)
    if record is not None:
        with suppress(BadInput):
            files.write_text(record, "".join(f"{line}\n" for line in lines))


def forget(run_id: str) -> None:
    record = _record(run_id)
    if record is not None:
        with suppress(OSError):
            record.unlink(missing_ok=True)
