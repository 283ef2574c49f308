"""Arrays out of `.npy` and `.npz` files that nobody vouches for: what a header promises is checked before memory is spent."""

from __future__ import annotations

import ast
import io
import math
import mmap
import os
import re
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from neurotest.errors import BadInput
from neurotest.reading import check_unpacked, on_disk, reading, regular

Array = NDArray[Any]

# How `reading` calls them, and the next step.
ARRAYS = "arrays of numbers"
AGAIN = "It is damaged, or too large: make or fetch it again, or read a part with a slice such as [:1000]."
MAGIC = b"\x93NUMPY"
MAX_HEADER = 10_000  # characters; numpy's own limit
MAX_SIDES = 32
MAX_BRACKETS = 8  # of a header; two are usual
CHUNK = 1 << 20
LARGEST_ARRAY = 1 << 36  # bytes of a file of its own
DEFLATE = 1032  # deflate cannot expand more than this, so a larger claim is false
NUMBERS = re.compile(r"[<>|=]?(b1|[iu][1248]|f(2|4|8))")
TEXT = re.compile(rf"{NUMBERS.pattern}|[<>|=]?[US][1-9][0-9]{{0,5}}")
# What numpy writes. Of bzip2 and lzma nobody can say how large the content is before it is unpacked.
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
OTHERS = {zipfile.ZIP_BZIP2: "bzip2", zipfile.ZIP_LZMA: "lzma"}


class Header(NamedTuple):
    """What a `.npy` says of itself."""

    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype[Any]

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


def read_header(stream: IO[bytes], what: str, *, text: bool = False) -> Header:
    """The header of a `.npy`; what is no plain array of numbers (or, with `text`, of text) is refused."""
    start = stream.read(8)
    if not start.startswith(MAGIC) or len(start) < 8:
        raise BadInput("unsupported", "", f"{what} is no numpy array: it does not start as a .npy does.")
    version = (start[6], start[7])
    if version not in ((1, 0), (2, 0)):  # 3.0 exists only for record types, which are no inputs
        message = f"{what} is stored in npy format {version}; save it as a plain array of numbers."
        raise BadInput("unsupported", "version", message)
    width = 2 if version == (1, 0) else 4
    length = int.from_bytes(stream.read(width), "little")
    if length > MAX_HEADER:
        raise BadInput("too-large", "header", f"{what} has a header of {length} characters, {MAX_HEADER} are allowed: damaged?")
    content = stream.read(length)
    try:
        if sum(content.count(bracket) for bracket in b"([{") > MAX_BRACKETS:  # deep nesting is too much for Python's own parser
            raise ValueError
        header = ast.literal_eval(content.decode("latin-1").strip())
        shape, fortran, kind = header["shape"], header["fortran_order"], header["descr"]
    except (ValueError, SyntaxError, TypeError, KeyError, RecursionError, MemoryError):
        message = f"{what} has a header that cannot be read: damaged? Make or fetch it again."
        raise BadInput("damaged", "header", message) from None
    if isinstance(kind, str) and kind.lstrip("<>|=").startswith("O"):
        message = f"{what} holds pickled Python objects, which could run code: refused; save plain numbers."
        raise BadInput("untrusted", "", message)
    if not (isinstance(kind, str) and (TEXT if text else NUMBERS).fullmatch(kind)):
        raise BadInput("unsupported", "dtype", f"{what} has the type {str(kind)[:80]!r}; save it as a plain array of numbers.")
    sides = isinstance(shape, tuple) and all(type(side) is int and side >= 0 for side in shape)
    if not sides or len(shape) > MAX_SIDES or not isinstance(fortran, bool):
        raise BadInput("wrong-shape", "", f"{what} has the shape {str(shape)[:80]}; save it as a plain array of numbers.")
    return Header(shape, fortran, np.dtype(kind))


def open_archive(file: BinaryIO | Path, what: str) -> zipfile.ZipFile:
    """A numpy archive whose members are compressed as numpy does it, so that no member can be larger than its size allows."""
    with reading(what, ARRAYS, hint=AGAIN):
        archive = zipfile.ZipFile(file)
    try:
        _check_members(archive, what)
    except BadInput:
        archive.close()
        raise
    return archive


def _check_members(archive: zipfile.ZipFile, what: str) -> None:
    for info in archive.infolist():
        if info.flag_bits & 1:
            raise BadInput("unsupported", "encryption", f"{what} is encrypted; save it with np.savez_compressed.")
        if info.compress_type not in METHODS:
            method = OTHERS.get(info.compress_type, f"method {info.compress_type}")
            message = (
                f"{what}: {info.filename[:80]!r} is compressed by {method}; numpy writes stored and deflate: save it again with "
                "np.savez_compressed."
            )
            raise BadInput("unsupported", "compression", message)
        expanded = info.compress_size if info.compress_type == zipfile.ZIP_STORED else info.compress_size * DEFLATE
        if info.file_size > expanded:
            message = (
                f"{what}: {info.filename[:80]!r} promises {info.file_size} bytes, the {info.compress_size} in the file cannot "
                "hold them: damaged? Make or fetch it again."
            )
            raise BadInput("damaged", "size", message)


def check_member(archive: zipfile.ZipFile, name: str, size: int, what: str) -> None:
    """Refuse an array that would take much more memory than the archive takes on the disk. size: bytes that are read of it."""
    stored = archive.getinfo(f"{name}.npy").compress_size
    if isinstance(archive.fp, io.BufferedReader):
        stored = min(stored, on_disk(archive.fp.fileno()))
    check_unpacked(what, size, stored)


@contextmanager
def opened(archive: zipfile.ZipFile, name: str, what: str, *, text: bool = False) -> Iterator[tuple[IO[bytes], Header]]:
    """The content of one array after its header, which must promise what the archive holds."""
    with reading(what, ARRAYS, hint=AGAIN):
        info = archive.getinfo(f"{name}.npy")
        with archive.open(info) as stream:
            header = read_header(stream, what, text=text)
            rest = info.file_size - stream.tell()
            if header.nbytes != rest:
                message = f"{what}: its header promises {header.nbytes} bytes, the file holds {rest}: damaged? Fetch it again."
                raise BadInput("damaged", "size", message)
            yield stream, header


def read_npz(
    stream: BinaryIO, what: str, *, largest: int, names: Iterable[str] | None = None, text: bool = False
) -> dict[str, Array]:
    """The arrays of an archive by name, all or those that are named; together at most `largest` bytes."""
    arrays: dict[str, Array] = {}
    with open_archive(stream, what) as archive:
        have = [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]
        left = largest
        for name in have if names is None else names:
            if name not in have:
                raise BadInput("damaged", name, f"{what} has no array {name!r}: it is damaged.")
            with opened(archive, name, f"{what}: {name}", text=text) as (content, header):
                left -= header.nbytes
                if left < 0:
                    raise BadInput("too-large", "", f"{what} holds more than the {largest} bytes that are read at once: refused.")
                check_member(archive, name, header.nbytes, f"{what}: {name}")
                arrays[name] = read_content(content, header, f"{what}: {name}")
    return arrays


def read_content(stream: IO[bytes], header: Header, what: str) -> Array:
    """The array after its header, a piece at a time: memory is used for what is really there."""
    content = np.empty(header.nbytes, dtype=np.uint8)
    at = 0
    while at < len(content):
        piece = stream.read(min(CHUNK, len(content) - at))
        if not piece:
            message = f"{what} ends early: {header.nbytes} bytes were promised, {at} are there; fetch it again."
            raise BadInput("damaged", "size", message)
        content[at : at + len(piece)] = np.frombuffer(piece, dtype=np.uint8)
        at += len(piece)
    stream.read(1)  # at its end an archive compares the checksum
    return _shaped(content, header)


def _shaped(content: Array, header: Header) -> Array:
    array = content.view(header.dtype) if len(content) else np.empty(0, header.dtype)
    return array.reshape(header.shape[::-1]).T if header.fortran else array.reshape(header.shape)


def read_npy(path: Path, what: str, *, largest: int = LARGEST_ARRAY) -> Array:
    """The array in a `.npy` that a user names, as a map of the file."""
    with reading(path, "an array of numbers"):
        regular(path, "an array of numbers", largest)
        with open(path, "rb") as stream:
            return map_npy(stream, what, largest=largest)


def map_npy(stream: BinaryIO, what: str, *, largest: int) -> Array:
    """The array of a `.npy`, read from the file as it is used. The file may be closed afterwards."""
    with reading(what, ARRAYS, hint=AGAIN):
        size = os.fstat(stream.fileno()).st_size
        header = read_header(stream, what)
        at = stream.tell()
        if header.nbytes != size - at or header.nbytes > largest:
            message = f"{what}: its header promises {header.nbytes} bytes, {size - at} are there and {largest} are allowed."
            raise BadInput("damaged", "size", message)
        if not header.nbytes:
            return _shaped(np.empty(0, np.uint8), header)
        pages = mmap.mmap(stream.fileno(), size, access=mmap.ACCESS_READ)
        return _shaped(np.frombuffer(pages, np.uint8, header.nbytes, at), header)
