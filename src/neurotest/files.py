"""Files appear whole or not at all; everything that is cached lives in one place."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from neurotest import locks
from neurotest.errors import BadInput

SPELLED = "backslashreplace"  # a name that is not UTF-8 is written with backslashes rather than refused


def cache_dir() -> Path:
    """Where neurotest keeps what it can make again (`NEUROTEST_CACHE`, else `~/.cache/neurotest`)."""
    return Path(os.environ.get("NEUROTEST_CACHE") or Path.home() / ".cache" / "neurotest")


def data_dir() -> Path:
    """Where complete data sets lie (`NEUROTEST_DATA`, else `data` in the cache)."""
    return Path(os.environ.get("NEUROTEST_DATA") or cache_dir() / "data")


def material_dir() -> Path | None:
    """Where data lie that are no part of the project: the folder `data` of `NEUROTEST_MATERIAL`, if that is set."""
    place = os.environ.get("NEUROTEST_MATERIAL")
    return Path(place) / "data" if place else None


def alive(process: int) -> bool:
    """Whether there is such a process now."""
    if os.name == "nt":
        return _alive_on_windows(process)
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return True


def _alive_on_windows(process: int) -> bool:
    """`os.kill(process, 0)` would send Ctrl-C there."""
    import ctypes

    kernel = ctypes.WinDLL("kernel32", use_last_error=True)  # type: ignore[attr-defined]
    kernel.OpenProcess.restype = ctypes.c_void_p
    handle = kernel.OpenProcess(0x1000, False, ctypes.c_uint32(process)) if process < 1 << 32 else None  # to ask, not to act
    if not handle:
        return process < 1 << 32 and ctypes.get_last_error() == 5  # type: ignore[attr-defined]  # somebody else's
    code = ctypes.c_uint32()
    kernel.GetExitCodeProcess(ctypes.c_void_p(handle), ctypes.byref(code))
    kernel.CloseHandle(ctypes.c_void_p(handle))
    return code.value == 259  # it has no exit code yet


def _part(path: Path) -> Path:
    """A temporary path beside `path`; what processes that died left there goes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    ours = re.compile(rf"\.{re.escape(path.name)}\.([0-9]+)\.part")
    for entry in os.scandir(path.parent):
        part = ours.fullmatch(entry.name)
        if part and not alive(int(part[1])):
            with suppress(OSError):
                shutil.rmtree(entry) if entry.is_dir(follow_symlinks=False) else os.unlink(entry)
    return path.with_name(f".{path.name}.{os.getpid()}.part")


@contextmanager
def one_at_a_time(path: Path) -> Iterator[None]:
    """Work on `path` that only one process does at a time; the others wait. The lock dies with its process."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path.with_name(f".{path.name}.lock"), "w") as file:
        locks.wait(file.fileno())
        try:
            yield
        finally:
            locks.unlock(file.fileno())


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """A temporary path beside `path`; when the block ends well it is synced and renamed, otherwise removed."""
    part = None
    try:
        part = _part(path)
        yield part
        with open(part, "r+b") as file:  # Windows syncs no file that is open for reading only
            os.fsync(file.fileno())
        os.replace(part, path)
    except OSError as error:
        raise BadInput(
            "not-writable", "", f"cannot write {path}: {error.strerror or error}. Choose another place or free some space."
        ) from error
    finally:
        if part is not None:
            with suppress(OSError):
                part.unlink(missing_ok=True)


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """A new folder that gets its name when the block ends well, and is removed otherwise; an empty one may be there already."""
    part = None
    try:
        part = _part(path)
        part.mkdir()
        yield part
        if os.name == "nt":  # where a folder replaces nothing, not even an empty one
            with suppress(OSError):
                os.rmdir(path)
        os.replace(part, path)
    except OSError as error:
        raise BadInput(
            "not-writable", "", f"cannot write {path}: {error.strerror or error}. Choose another place or free some space."
        ) from error
    finally:
        if part is not None:
            shutil.rmtree(part, ignore_errors=True)


def write_bytes(path: Path, content: bytes) -> None:
    with atomic_write(path) as part:
        part.write_bytes(content)


def write_text(path: Path, content: str) -> None:
    write_bytes(path, content.encode("utf-8", SPELLED))


def write_json(path: Path, content: Any) -> None:
    write_text(path, json.dumps(content, indent=1, allow_nan=False) + "\n")
