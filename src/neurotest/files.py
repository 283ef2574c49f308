"""Files appear whole or not at all; everything that is cached lives in one place."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from neurotest.errors import BadInput


def cache_dir() -> Path:
    """Where neurotest keeps what it can make again (`NEUROTEST_CACHE`, else `~/.cache/neurotest`)."""
    return Path(os.environ.get("NEUROTEST_CACHE") or Path.home() / ".cache" / "neurotest")


def data_dir() -> Path:
    """Where complete data sets lie (`NEUROTEST_DATA`, else `data` in the cache)."""
    return Path(os.environ.get("NEUROTEST_DATA") or cache_dir() / "data")


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """A temporary path beside `path`; when the block ends well it is synced and renamed, otherwise removed."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield part
        with open(part, "rb") as file:
            os.fsync(file.fileno())
        os.replace(part, path)
    except OSError as error:
        raise BadInput(f"cannot write {path}: {error.strerror or error}. Choose another place or free some space.") from error
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


def write_bytes(path: Path, content: bytes) -> None:
    with whole(path) as part:
        part.write_bytes(content)


def write_text(path: Path, content: str) -> None:
    write_bytes(path, content.encode())


def write_json(path: Path, content: Any) -> None:
    write_text(path, json.dumps(content, indent=1, allow_nan=False) + "\n")


def inside(root: Path, relative: str) -> Path:
    """`root / relative`, refused when it is absolute or leaves `root` (a run somebody sent may try)."""
    try:
        path = (root / relative).resolve()
    except (ValueError, OSError, RuntimeError):  # a null character, a name too long, links in a circle
        raise BadInput(f"path {relative!r} is no path inside {root}: refused.") from None
    if Path(relative).is_absolute() or not path.is_relative_to(root.resolve()):
        raise BadInput(f"path {relative!r} leaves {root}: refused.")
    return path
