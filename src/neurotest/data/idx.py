"""The format MNIST is published in: `idx:FOLDER/PREFIX`."""

from __future__ import annotations

import gzip
import math
import os
from pathlib import Path
from typing import IO, cast

import numpy as np

from neurotest import registry
from neurotest.arrays import AGAIN, ARRAYS
from neurotest.data.npz import check_size, fill
from neurotest.data.source import Array, ArraySource, Source, Wanted
from neurotest.errors import BadInput, near
from neurotest.reading import on_disk, reading, user_path

IMAGES, LABELS = "-images-idx3-ubyte", "-labels-idx1-ubyte"
BYTE = 0x08  # the only value type of the image sets


@registry.register("data source", "idx", paper="", cost="the images are held in memory")
def _open_idx(rest: str, wanted: Wanted) -> Source:
    """The MNIST format: `idx:FOLDER/PREFIX` reads PREFIX-images-idx3-ubyte and, if there, PREFIX-labels-idx1-ubyte (or .gz)."""
    prefix = user_path(rest, f"idx:{rest}")
    if not prefix.name:
        raise BadInput("missing", "files", f"idx:{rest} names no files: write idx:FOLDER/PREFIX. {_prefixes(prefix)}")
    return read_pair(prefix, wanted, spec=f"idx:{rest}")


def read_pair(prefix: Path, wanted: Wanted, *, spec: str, classes: tuple[str, ...] | None = None) -> Source:
    images = find_file(prefix, IMAGES)
    if images is None:
        message = f"{spec}: there is no {prefix.name}{IMAGES}[.gz] in {prefix.parent}. {_prefixes(prefix)}"
        raise BadInput("not-found", "files", message)
    count, x = _read(images, 3, wanted.first)
    labels = None
    if (file := find_file(prefix, LABELS)) is not None:
        label_count, labels = _read(file, 1, wanted.first)
        if label_count != count:
            message = f"{spec}: {file.name} has {label_count} labels, {images.name} {count} images; each needs exactly one."
            raise BadInput("wrong-count", "labels", message)
    return ArraySource(x[:, None], labels, spec=spec, classes=classes)


def find_file(prefix: Path, ending: str) -> Path | None:
    """The plain or the gzipped file, if there is one."""
    if not prefix.name:  # the root of the disk, or the current folder
        return None
    places = (prefix.with_name(prefix.name + ending), prefix.with_name(prefix.name + ending + ".gz"))
    return next((place for place in places if os.path.isfile(place)), None)  # a name too long for a file is none


def prefixes(folder: Path) -> list[str]:
    """What can stand after `idx:FOLDER/`."""
    if not folder.is_dir():
        return []
    return sorted({file.name.split(IMAGES)[0] for file in folder.iterdir() if file.name.endswith((IMAGES, IMAGES + ".gz"))})


def _prefixes(prefix: Path) -> str:
    if not prefix.parent.is_dir():
        return f"{prefix.parent} is no folder; check the path (it is relative to {Path.cwd()})."
    inside = [f"idx:{prefix}/{name}" for name in prefixes(prefix)]
    return f"Did you mean {inside[0]}?" if inside else near(prefix.name, prefixes(prefix.parent))


def _read(path: Path, dimensions: int, first: int | None) -> tuple[int, Array]:
    """How many items the file holds, and the first of them."""
    packed = path.suffix == ".gz"
    what = f"idx:{path}"
    with reading(what, ARRAYS, hint=AGAIN), cast(IO[bytes], gzip.open(path)) if packed else open(path, "rb") as stream:
        head = 4 + 4 * dimensions
        shape = _header(stream.read(head), dimensions, what)
        size = math.prod(shape)
        stored = path.stat().st_size if packed else path.stat().st_size - head
        rows = shape[0] if first is None else min(first, shape[0])
        check_size(what, size, stored, compressed=packed, needed=size // shape[0] * rows, disk=on_disk(path))
        array = fill(stream, np.empty((rows, *shape[1:]), np.uint8), shape[1:], np.dtype(np.uint8), what)
        if rows == shape[0] and stream.read(1):  # asking once more also makes gzip compare its checksum
            message = f"{what} is longer than its header says: damaged, or not what its name says. Fetch it again."
            raise BadInput("damaged", "size", message)
    return shape[0], array


def _header(head: bytes, dimensions: int, what: str) -> tuple[int, ...]:
    numbers = np.frombuffer(head, ">u4") if len(head) == 4 + 4 * dimensions else np.zeros(1, np.uint32)
    if numbers[0] != BYTE << 8 | dimensions:
        message = f"{what} does not start as an idx file of {dimensions} dimension(s) of bytes: damaged or another format."
        raise BadInput("damaged", "header", message)
    shape = tuple(int(side) for side in numbers[1:])
    if 0 in shape:
        raise BadInput("empty", "", f"{what} is empty (shape {shape}); there is nothing to test.")
    return shape
