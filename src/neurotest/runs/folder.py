"""The files of a run. Every one of them is opened here: inside the run, no link at any level, a plain file of bounded size.

A run may be anybody's. A link in it would make us copy a reader's own file into a report, or write to one; a pipe would make us
wait for ever. So files are opened name by name from a handle of the run's folder (`handles.py`), and looked at before they are
read.
"""

from __future__ import annotations

import errno
import io
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, BinaryIO

from neurotest.errors import BadInput
from neurotest.files import SPELLED, alive
from neurotest.runs import handles
from neurotest.runs.handles import Handle

LARGEST = 1 << 33  # bytes of a file, unless its reader allows less
DEEPEST = 4  # folders in folders that a run has at most
# What is being written, by which process, and whether it is the owner of the run's lock or somebody beside it.
PART = re.compile(r"\.(?P<name>.+)\.(?P<process>[0-9]+)(?P<beside>\.beside)?\.part(-journal|-wal|-shm)?")

_declared: list[re.Pattern[str]] = []
_declared_folders: set[str] = set()


def declare(pattern: str, *folders: str) -> re.Pattern[str]:
    """Declare names of files that neurotest itself puts into runs (relative, a regular expression); no others can be written.

    folders: those that are made for them.
    """
    compiled = re.compile(pattern)
    _declared.append(compiled)
    _declared_folders.update(folders)
    return compiled


def _is_declared(name: str) -> bool:
    return any(pattern.fullmatch(name) for pattern in _declared)


class Folder:
    """The folder of a run, and what this process has put into it."""

    def __init__(self, path: Path, *, owner: bool = False, created: tuple[Path, ...] = (), anything: bool = False) -> None:
        self.path = path
        self.owner = owner  # whether this process holds the run's lock
        self.created = created  # what was made for the run: itself, and folders around it
        self.anything = anything  # it is no run: files of any name may be written
        self.written: set[str] = set()
        self.folders: list[str] = []  # made by this process, outer ones first

    def file(self, name: str) -> RunFile:
        """A file of the run by its relative name; a name that leads out of it is refused."""
        parts = name.split("/")
        if name.startswith("/") or ".." in parts:
            raise BadInput("untrusted", "path", f"path {name[:200]!r} leaves {self.path}: refused.")
        if not all(parts) or "." in parts or "\0" in name or len(parts) > DEEPEST or len(name.encode("utf-8", "replace")) > 1000:
            raise BadInput("syntax", "path", f"path {name[:200]!r} is not a path inside {self.path}: refused.")
        if handles.KIND.strict and ("\\" in name or ":" in name):  # on Windows these lead elsewhere
            raise BadInput("untrusted", "path", f"path {name[:200]!r} leaves {self.path}: refused.")
        return RunFile(self, name)

    @contextmanager
    def handle(self, parts: list[str], *, make: bool = False) -> Iterator[Handle]:
        """A handle of a folder inside the run, reached without following links."""
        handle = handles.KIND(self.path)  # the run itself may be named by a link: whoever opens it chose that
        try:
            for depth, part in enumerate(parts):
                inner = self._enter(handle, part, "/".join(parts[: depth + 1]), make)
                handle.close()
                handle = inner
            yield handle
        finally:
            handle.close()

    def _enter(self, handle: Handle, part: str, name: str, make: bool) -> Handle:
        if make:
            with suppress(FileExistsError):
                handle.make(part)
                self.folders.append(name)
        try:
            return handle.enter(part)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENOTDIR):
                raise BadInput(
                    "untrusted", "folder", f"{self.path / name} is a link or no folder: refused, a run holds its own files."
                ) from None
            raise

    def names(self) -> Iterator[str]:
        """Every plain file in the run, relative; links and what they lead to are left out."""
        return self._names([])

    def _names(self, outer: list[str]) -> Iterator[str]:
        folders = []
        with self.handle(outer) as handle:
            for entry in handle.entries():
                if entry.is_file(follow_symlinks=False):
                    yield "/".join([*outer, entry.name])
                elif entry.is_dir(follow_symlinks=False) and len(outer) < DEEPEST - 1:
                    folders.append(entry.name)
        for name in folders:
            with suppress(OSError, BadInput):  # it went, or became a link
                yield from self._names([*outer, name])

    def sweep(self) -> None:
        """Remove what a process that died was writing. Only the owner of the run's lock may do that."""
        for name in list(self.names()):
            part = PART.fullmatch(name.rpartition("/")[2])
            if part and not (part["beside"] and alive(int(part["process"]))):
                self.file(name).remove()

    def clear(self) -> None:
        """Remove every file that neurotest put here, but for the database and the lock; what a person put here stays."""
        self.sweep()
        for name in list(self.names()):
            if _is_declared(name):
                self.file(name).remove()
        for folder in _declared_folders:
            self.remove_folder(folder)

    def withdraw(self) -> None:
        """Remove what this process has put here."""
        for name in self.written:
            self.file(name).remove()
        for name in reversed(self.folders):
            self.remove_folder(name)

    def remove(self) -> None:
        """Remove the folder, and those around it that were made for it, as far as they are empty."""
        with suppress(OSError):
            for path in self.created:
                os.rmdir(path)

    def remove_folder(self, name: str) -> None:
        """Remove a folder if nothing is left in it."""
        *outer, last = name.split("/")
        with suppress(OSError, BadInput), self.handle(outer) as handle:
            handle.remove_folder(last)


@dataclass(frozen=True)
class RunFile:
    """One file of a run."""

    folder: Folder
    name: str  # relative to the run

    @property
    def path(self) -> Path:
        """Where it is, to be shown and never to be opened."""
        return self.folder.path / self.name

    def __str__(self) -> str:
        return str(self.path)

    @property
    def base(self) -> str:
        return self.name.rpartition("/")[2]

    def beside(self, base: str) -> RunFile:
        """The file of this name in the same folder."""
        return self.folder.file(self.name.removesuffix(self.base) + base)

    @property
    def _outer(self) -> list[str]:
        return self.name.split("/")[:-1]

    def status(self) -> os.stat_result | None:
        """What the file system says of it; None if there is no plain file."""
        try:
            with self.folder.handle(self._outer) as handle:
                status = handle.status(self.base)
        except (OSError, ValueError, BadInput):
            return None
        return status if stat.S_ISREG(status.st_mode) else None

    def exists(self) -> bool:
        return self.status() is not None

    def open(self, largest: int = LARGEST) -> BinaryIO:
        """The file for reading, at most `largest` bytes of it."""
        try:
            with self.folder.handle(self._outer) as handle:
                number = handle.open(self.base, os.O_RDONLY)
        except FileNotFoundError:
            raise BadInput("not-found", "", f"{self} does not exist: the run has lost it.") from None
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise BadInput("untrusted", "link", f"{self} is a link: refused, a run holds its own files.") from None
            raise BadInput("unreadable", "", f"{self} cannot be opened: {error.strerror or error}.") from error
        status = os.fstat(number)
        if stat.S_ISREG(status.st_mode) and status.st_size <= largest:
            return os.fdopen(number, "rb")
        os.close(number)
        if not stat.S_ISREG(status.st_mode):
            raise BadInput("not-a-file", "", f"{self} is not a plain file: refused.")
        raise BadInput("too-large", "", f"{self} has {status.st_size:,} bytes, {largest:,} are allowed: refused.")

    def read(self, largest: int = LARGEST) -> bytes:
        with self.open(largest) as file:
            return file.read(os.fstat(file.fileno()).st_size)  # read(largest) would ask for so much memory first

    @contextmanager
    def writing(self) -> Iterator[BinaryIO]:
        """A new file that gets this name, synced, when the block ends well, and is removed otherwise."""
        assert self.folder.anything or _is_declared(self.name), f"{self.name} is no declared name of a file in a run"
        with self._part() as (handle, part):
            number = handle.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL)
            with os.fdopen(number, "w+b") as file:
                yield file
                file.flush()
                os.fsync(number)
        self.folder.written.add(self.name)

    @contextmanager
    def replacing(self) -> Iterator[Path]:
        """The same as a path, for what opens its file itself; only in the run's own folder, and under its lock."""
        with self._part() as (handle, part):
            yield self.path.with_name(part)
            number = handle.open(part, os.O_RDWR)  # Windows syncs no file that is open for reading only
            try:
                os.fsync(number)
            finally:
                os.close(number)

    @contextmanager
    def _part(self) -> Iterator[tuple[Handle, str]]:
        part = f".{self.base}.{os.getpid()}{'' if self.folder.owner else '.beside'}.part"
        try:
            with self.folder.handle(self._outer, make=True) as handle:
                self._remove_stale(handle, part)
                try:
                    yield handle, part
                    handle.rename(part, self.base)
                finally:
                    with suppress(OSError):
                        handle.remove(part)
        except OSError as error:
            raise BadInput(
                "not-writable", "", f"cannot write {self}: {error.strerror or error}. Choose another place or free some space."
            ) from error

    def _remove_stale(self, handle: Handle, part: str) -> None:
        """Of processes that died: one with our number, and any that wrote beside the owner, who sweeps up after the others."""
        names = [part]
        if not self.folder.owner:
            parts = [match for entry in handle.entries() if (match := PART.fullmatch(entry.name))]
            names += [p[0] for p in parts if p["beside"] and p["name"] == self.base and not alive(int(p["process"]))]
        for name in names:
            with suppress(FileNotFoundError):
                handle.remove(name)

    def write(self, content: bytes | str) -> None:
        with self.writing() as file:
            file.write(content.encode("utf-8", SPELLED) if isinstance(content, str) else content)

    @contextmanager
    def writing_text(self, errors: str = "strict") -> Iterator[IO[Any]]:
        """The same for rows of CSV."""
        with self.writing() as file:
            text = io.TextIOWrapper(file, encoding="utf-8", errors=errors, newline="")
            try:
                yield text
            finally:
                text.detach()

    def remove(self) -> None:
        """Remove it, if it is there."""
        with suppress(OSError, BadInput), self.folder.handle(self._outer) as handle:
            handle.remove(self.base)

    def rename(self, base: str) -> None:
        """Give it another name in the same folder."""
        with self.folder.handle(self._outer) as handle:
            handle.rename(self.base, base)
