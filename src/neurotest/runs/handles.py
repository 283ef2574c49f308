"""Folders whose files are reached without following links, on every platform.

Where Python can open files from the handle of a folder (Linux, macOS), `Handle` does, and a link is refused by the system itself.
Elsewhere (Windows) `PathHandle` looks at every name before it opens it and once more afterwards. A link that lies there is
refused as well; one that another process puts there and takes away in between may not be noticed.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

# Windows would change line ends without O_BINARY; it has none of the others.
_NAMES = ("O_NOFOLLOW", "O_CLOEXEC", "O_NONBLOCK", "O_NOCTTY", "O_BINARY", "O_NOINHERIT")
PLAIN = sum(getattr(os, name, 0) for name in _NAMES)
SURROGATE = 0x20000000  # in the tag of what stands for another file on Windows: links, junctions


class Handle:
    """An open folder. Names are those of its own entries; nothing else is reached through it."""

    strict = False  # whether names that mean more than a name on Windows are refused

    def __init__(self, path: Path | str, inside: Handle | None = None) -> None:
        """inside: the folder it is an entry of, then it must not be a link."""
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        if inside is None:
            self._number = os.open(path, flags)
        else:
            self._number = os.open(path, flags | os.O_NOFOLLOW, dir_fd=inside._number)

    def enter(self, name: str) -> Self:
        """The folder of this name; OSError with ELOOP or ENOTDIR if it is a link or something else."""
        return type(self)(name, self)

    def close(self) -> None:
        os.close(self._number)

    def open(self, name: str, flags: int) -> int:
        """A file, which must not be a link; whoever asks has to look whether it is a plain one."""
        return os.open(name, flags | PLAIN, 0o666, dir_fd=self._number)

    def _call(self, function: Callable[..., Any], name: str, **options: Any) -> Any:
        """A function of `os` on an entry of this folder."""
        return function(name, dir_fd=self._number, **options)

    def status(self, name: str) -> os.stat_result:
        status: os.stat_result = self._call(os.stat, name, follow_symlinks=False)
        return status

    def make(self, name: str) -> None:
        self._call(os.mkdir, name)

    def remove(self, name: str) -> None:
        self._call(os.unlink, name)

    def remove_folder(self, name: str) -> None:
        self._call(os.rmdir, name)

    def rename(self, old: str, new: str) -> None:
        os.replace(old, new, src_dir_fd=self._number, dst_dir_fd=self._number)

    def entries(self) -> Iterator[os.DirEntry[str]]:
        with os.scandir(self._number) as entries:
            yield from entries


class PathHandle(Handle):
    """The same by paths."""

    strict = True

    def __init__(self, path: Path | str, inside: Handle | None = None) -> None:
        assert inside is None or isinstance(inside, PathHandle)
        self._inside = inside
        self._path: str = os.path.abspath(path) if inside is None else os.path.join(inside._path, path)
        self._check()
        if not stat.S_ISDIR(os.stat(self._path).st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), self._path)

    def _check(self) -> None:
        """Refuse if this folder, or one around it inside the run, is a link."""
        folder: PathHandle | None = self
        while folder is not None and folder._inside is not None:
            _refuse_link(os.lstat(folder._path), folder._path)
            folder = folder._inside

    def _place(self, name: str) -> str:
        self._check()
        return os.path.join(self._path, name)

    def close(self) -> None:
        pass

    def open(self, name: str, flags: int) -> int:
        place = self._place(name)
        try:
            _refuse_link(os.lstat(place), place)
        except FileNotFoundError:
            if not flags & os.O_CREAT:
                raise
        number = os.open(place, flags | PLAIN, 0o666)
        try:
            status = os.lstat(self._place(name))
            _refuse_link(status, place)
            if status.st_ino != os.fstat(number).st_ino:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), place)
        except BaseException:
            os.close(number)
            raise
        return number

    def _call(self, function: Callable[..., Any], name: str, **options: Any) -> Any:
        return function(self._place(name), **options)

    def rename(self, old: str, new: str) -> None:
        os.replace(self._place(old), self._place(new))

    def entries(self) -> Iterator[os.DirEntry[str]]:
        self._check()
        with os.scandir(self._path) as entries:
            yield from entries


def _refuse_link(status: os.stat_result, place: str) -> None:
    if stat.S_ISLNK(status.st_mode) or getattr(status, "st_reparse_tag", 0) & SURROGATE:
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), place)


def _by_handles() -> bool:
    needed = {os.open, os.stat, os.mkdir, os.unlink, os.rmdir}  # os.replace takes them where os.rename does
    return needed | {os.rename} <= os.supports_dir_fd and os.scandir in os.supports_fd and hasattr(os, "O_NOFOLLOW")


KIND: type[Handle] = Handle if _by_handles() else PathHandle
