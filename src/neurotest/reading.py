"""Reading what a user brings: one place turns whatever a file makes its decoder raise into a sentence.

    with reading(path, "a profile"):
        about = json.loads(path.read_text())

Bugs of our own pass: an error that only a wrong program makes, raised by a line of ours, is no fault of the file.
"""

from __future__ import annotations

import errno
import io
import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from neurotest.errors import BadInput, NeurotestError
from neurotest.memory import check_memory
from neurotest.memory import size as size_text

LONGEST_PATH, LONGEST_NAME = 4096, 255  # bytes, as file systems have it
LONGEST_REASON = 200  # characters of a decoder's own words
LARGEST_TEXT = 1 << 26  # bytes of a text file
UNKNOWN = 1 << 20  # bytes that are read of a file that says no size
ALWAYS, TIMES = 256 << 20, 128  # bytes that any file may hold unpacked; beyond that, how often what it takes on the disk
# What a line of ours raises because it is wrong, not because of what it read.
BUGS = (TypeError, AttributeError, NameError, LookupError, AssertionError, ImportError, NotImplementedError, ZeroDivisionError)


@contextmanager
def reading(path: str | os.PathLike[str], kind: str, *, untyped: bool = False, hint: str = "") -> Iterator[None]:
    """Around the reading of a user's file: what goes wrong is one sentence that names the file and its kind.

    kind: with its article, `a numpy archive`. untyped: the block takes apart values of which nothing is known, so a missing key
    or another type is the file's fault; keep such blocks small. hint: the next step, a sentence.
    """
    try:
        yield
    except NeurotestError:
        raise
    except MemoryError as error:
        message = f"{path}: {kind} that does not fit into memory{hint and '; '}{hint or '.'}"
        raise BadInput("too-large", "memory", message) from error
    except Exception as error:
        if not (untyped and isinstance(error, (TypeError, LookupError, AttributeError))) and _ours(error):
            raise
        missing = isinstance(error, FileNotFoundError | NotADirectoryError)
        next_step = hint or ("Check the path." if missing else "It is damaged or something else.")
        message = f"{path} cannot be read as {kind} ({reason(error)}). {next_step}"
        raise BadInput("not-found" if missing else "unreadable", "", message) from error


def _ours(error: BaseException) -> bool:
    """Whether it is our mistake: raised by our own line, and of a kind that data do not cause by themselves."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    module = "" if trace is None else str(trace.tb_frame.f_globals.get("__name__", ""))
    return isinstance(error, BUGS) and module.partition(".")[0] == "neurotest"


def reason(error: BaseException) -> str:
    """A decoder's words: one line, printable, not too long."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if isinstance(error, UnicodeError):
        return "no text in UTF-8"
    words = f"{'no JSON: ' if isinstance(error, json.JSONDecodeError) else ''}{' '.join(str(error).split())}"
    words = "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in words[: 2 * LONGEST_REASON])
    if not words or isinstance(error, (KeyError, RecursionError)):
        words = f"{type(error).__name__}{words and ': '}{words}"
    return words if len(words) <= LONGEST_REASON else words[:LONGEST_REASON] + "..."


def user_path(text: str | os.PathLike[str], what: str = "") -> Path:
    """The path a user typed, with its home folder; what cannot be the name of a file is refused here.

    what: how the sentence begins, by default the text itself.
    """
    if not isinstance(text, str | os.PathLike):
        raise BadInput("wrong-type", "path", f"{what or text!r:.200}: a path is text, not a {type(text).__name__}.")
    typed = os.fspath(text)
    shown = what or (typed if len(typed) <= LONGEST_REASON else typed[:LONGEST_REASON] + "...")
    if "\0" in typed:
        raise BadInput("syntax", "path", f"{ascii(shown)[1:-1]}: a path holds no NUL character; check what was typed.")
    try:
        path = Path(typed).expanduser()
        encoded = os.fsencode(path)
    except RuntimeError:
        user = typed.partition("/")[0]
        message = f"{shown}: there is no user {user[1:]!r} here; write ./{user} if a folder is called so."
        raise BadInput("unknown-name", "user", message) from None
    except UnicodeError:
        message = f"{ascii(shown)[1:-1]}: no path, it holds half a character; check what was typed."
        raise BadInput("syntax", "encoding", message) from None
    if len(encoded) >= LONGEST_PATH or any(len(name) > LONGEST_NAME for name in encoded.split(b"/")):
        message = f"{shown}: longer than a path can be ({LONGEST_PATH} bytes, {LONGEST_NAME} for one name)."
        raise BadInput("too-large", "path", message)
    return path


def resolved(path: str | os.PathLike[str]) -> Path:
    """The absolute path without links. A loop of links stays as it is, and cannot be opened; `Path.resolve` would raise."""
    return Path(os.path.realpath(path))


_untrusted: ContextVar[str | None] = ContextVar("untrusted", default=None)


@contextmanager
def untrusted_run(whose: str | None) -> Iterator[None]:
    """Around work with what somebody else wrote: networks and files that it names are not opened, but for those of the zoo.

    whose: the run, how the sentence begins; None: it is this user's own.
    """
    before = _untrusted.set(whose)
    try:
        yield
    finally:
        _untrusted.reset(before)


def refuse_untrusted(name: object, what: str) -> None:
    """To be called before anything is opened that a setting names."""
    whose = _untrusted.get()
    if whose is not None and not all(part.strip().startswith("zoo:") for part in str(name).split("+")):
        raise BadInput("untrusted", "", f"{whose} is an untrusted run and names {what}, which is not opened: start a new run.")


def regular(path: Path, what: str, limit: int) -> None:
    """Refuse what is no plain file (a pipe would never end) or larger than a file of its kind can sensibly be."""
    about = path.stat()
    if not stat.S_ISREG(about.st_mode):
        raise BadInput("not-a-file", "", f"{path} is a folder, a pipe or a device; {what} is a file.")
    if about.st_size > limit:
        raise BadInput("too-large", "", f"{path} has {about.st_size / 1e6:.0f} MB: no {what.partition(' ')[2]} is that large.")


def read_bytes(path: Path, kind: str, *, limit: int = LARGEST_TEXT) -> bytes:
    """What a user's file holds. Files that the system makes up as they are read (`/proc`) may have no end and say no size."""
    with reading(path, kind):
        regular(path, kind, limit)
        with open(path, "rb", opener=_without_waiting) as file:
            most = min(limit, os.fstat(file.fileno()).st_size or UNKNOWN)  # memory for all of the limit would be asked for
            content = file.read(most + 1) or b""
        if len(content) > most:
            raise BadInput("too-large", "", f"{path} has more than {most:,} bytes: no {kind.partition(' ')[2]} is that large.")
        return content


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def read_text(path: Path, kind: str, *, limit: int = LARGEST_TEXT, hint: str = "") -> str:
    """The text of a user's file, which is UTF-8; a byte order mark is left out."""
    with reading(path, kind, hint=hint):
        return io.TextIOWrapper(io.BytesIO(read_bytes(path, kind, limit=limit)), encoding="utf-8-sig").read()


def read_json(path: Path, kind: str, *, hint: str = "") -> Any:
    """What a JSON file holds; nothing is known of its types."""
    text = read_text(path, kind, hint=hint)
    with reading(path, kind, hint=hint):
        return json.loads(text)


def on_disk(file: str | os.PathLike[str] | int) -> int:
    """Bytes of a file that are really there: holes, which read as zeros, are left out."""
    handle = file if isinstance(file, int) else os.open(file, os.O_RDONLY | getattr(os, "O_BINARY", 0))
    try:
        place, at, end, data = os.lseek(handle, 0, os.SEEK_CUR), 0, os.fstat(handle).st_size, 0
        try:
            while at < end:
                start = os.lseek(handle, at, os.SEEK_DATA)
                at = os.lseek(handle, start, os.SEEK_HOLE)
                data += at - start
        except (OSError, AttributeError) as error:  # Windows has no SEEK_DATA
            data = data if getattr(error, "errno", None) == errno.ENXIO else end  # only a hole follows, or nobody can tell
        os.lseek(handle, place, os.SEEK_SET)
        return data
    finally:
        if handle is not file:
            os.close(handle)


def check_unpacked(what: str, size: int, stored: int, *, always: int = ALWAYS, times: int = TIMES) -> None:
    """Refuse, before memory is spent, `size` bytes that a file of `stored` bytes on the disk unpacks to, if they are too many."""
    if size > max(always, times * stored):
        message = (
            f"{what}: {size_text(size)} out of {size_text(stored)} on the disk: more than {size_text(always)} are read only if "
            f"they are at most {times} times as large as on the disk. Save it uncompressed and without holes, or in parts."
        )
        raise BadInput("too-large", "unpacked", message)
    if size > always:
        check_memory(size, what, "read a part of it, or close other programs")
