"""Arrays in a numpy archive: `npz:FILE#x,y`, `npz:FILE#x`, `npz:FILE#x,y,nhwc`."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import numpy as np

from neurotest import registry
from neurotest.arrays import AGAIN, ARRAYS, DEFLATE, MAGIC, Header, check_member, open_archive, opened
from neurotest.data.source import CHUNK, Array, ArraySource, Source, Wanted, check_input_dtype, shape_text
from neurotest.data.spec import split_names
from neurotest.errors import BadInput, near
from neurotest.levels import levels_of
from neurotest.reading import check_unpacked, reading, user_path


@registry.register("data source", "npz", paper="", cost="the arrays are held in memory; float64 is read as float32")
def open_npz(rest: str, wanted: Wanted) -> Source:
    """Arrays of a numpy archive: `npz:FILE#x,y`; `#x` alone is unlabelled, a last word `nhwc` says that channels come last."""
    file, words = split_names(rest, "npz")
    path = user_path(file, f"npz:{file}")
    what = f"npz:{path}"
    with reading(what, ARRAYS, hint=AGAIN), _open(path) as archive:
        x_name, y_name, nhwc = _choose(archive, words, path)
        with opened(archive, x_name, f"{what}: {x_name}") as (_, header):
            pass
        _check_inputs(header, what, x_name, nhwc)
        _check_label_type(archive, y_name, what)
        y = None if y_name is None else _read(archive, y_name, what, None, keep_type=True)
        if y is not None and y.shape[:1] != header.shape[:1]:
            message = f"{what}: {y_name} has shape {y.shape}, {x_name} {header.shape}; each input needs exactly one label."
            raise BadInput("wrong-count", "labels", message)
        x = _read(archive, x_name, what, wanted.first, nhwc=nhwc)
    grey = x.ndim == 3 and x.dtype != np.int16 and (wanted.shape is None or len(wanted.shape) == 3)
    return ArraySource(x[:, None] if grey else x, None if y is None else y[: len(x)], spec=f"npz:{rest}")


def _check_label_type(archive: zipfile.ZipFile, name: str | None, what: str) -> None:
    if name is None:
        return
    with opened(archive, name, f"{what}: {name}", text=True) as (_, header):
        if header.dtype.kind in "US":
            message = (
                f"{what}: {name} holds text, but labels are class numbers: save np.unique(y, return_inverse=True)[1], and the "
                "names in their order for --classes FILE."
            )
            raise BadInput("wrong-type", "labels", message)


def _open(path: Path) -> zipfile.ZipFile:
    if path.is_dir():
        message = f"npz:{path} is a folder; npz: reads a file. For a folder of images write dir:{path}"
        raise BadInput("not-a-file", "data", message)
    if not path.is_file():
        message = f"npz:{path}: there is no such file; check the path (it is relative to {Path.cwd()})."
        raise BadInput("not-found", "data", message)
    with open(path, "rb") as start:
        magic = start.read(6)
    if magic == MAGIC:
        raise BadInput("unsupported", "array", f"npz:{path} is a single .npy array; save it as np.savez(FILE, x=x, y=y).")
    if not zipfile.is_zipfile(path):
        message = f"npz:{path} is no numpy archive, or it is cut off; make it with np.savez_compressed(FILE, x=x, y=y)."
        raise BadInput("damaged", "archive", message)
    return open_archive(path, f"npz:{path}")


def _choose(archive: zipfile.ZipFile, words: list[str], path: Path) -> tuple[str, str | None, bool]:
    arrays = [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]
    nhwc = len(words) > 1 and words[-1] == "nhwc" and "nhwc" not in arrays
    names = words[:-1] if nhwc else words
    if not words:
        names = [name for name in ("x", "y") if name in arrays]
        if "x" not in names:
            message = f"npz:{path} has no array x, only {', '.join(arrays) or 'no arrays'}: write npz:{path}#IMAGES,LABELS"
            raise BadInput("not-found", "x", message)
    if len(names) > 2:
        message = f"npz:{path}#{','.join(words)}: expected #x, #x,y or #x,y,nhwc with the names of the arrays."
        raise BadInput("syntax", "data", message)
    for name in names:
        if name not in arrays:
            raise BadInput("unknown-name", "array", f"npz:{path} has no array named {name!r}. {near(name, arrays)}")
    return names[0], names[1] if len(names) > 1 else None, nhwc


def _check_inputs(header: Header, what: str, name: str, nhwc: bool) -> None:
    """Everything that can be refused before the array is read."""
    if header.shape[:1] == (0,):
        raise BadInput("empty", "data", f"{what}: {name} is empty (shape {header.shape}); there is nothing to test.")
    if len(header.shape) < 2 or 0 in header.shape:
        message = f"{what}: {name} has shape {header.shape}; expected (count, channels, height, width) or (count, features)."
        raise BadInput("wrong-shape", "data", message)
    if nhwc and len(header.shape) != 4:
        message = f"{what}: nhwc needs (count, height, width, channels), {name} has shape {header.shape}."
        raise BadInput("wrong-shape", "nhwc", message)
    check_input_dtype(header.dtype, f"{what}: {name}", header.shape)


def _read(
    archive: zipfile.ZipFile, name: str, what: str, first: int | None, *, nhwc: bool = False, keep_type: bool = False
) -> Array:
    """The first rows of an array; inputs become uint8, int16 or float32 while they are read, a chunk at a time."""
    what = f"{what}: {name}"
    with opened(archive, name, what) as (stream, header):
        count = header.shape[0] if header.shape else 1
        rows = count if first is None or header.fortran else min(count, first)
        _check_needed(what, header.nbytes // max(1, count) * rows)
        kept = header.dtype if keep_type or levels_of(header.dtype) else np.dtype(np.float32)
        check_member(archive, name, math.prod(header.shape) // max(1, count) * rows * kept.itemsize, what)
        if header.fortran:  # the first axis varies fastest: no rows to read one by one
            flat = fill(stream, np.empty(math.prod(header.shape), kept), (), header.dtype, what)
            array = flat.reshape(header.shape[::-1]).T
            return np.ascontiguousarray(_channels_first(array) if nhwc else array)
        row = header.shape[1:]
        out = np.empty((rows, row[2], *row[:2]) if nhwc else (rows, *row), kept)
        return fill(stream, out, row, header.dtype, what, _channels_first if nhwc else None)


def _channels_first(x: Array) -> Array:
    return x.transpose(0, 3, 1, 2)


# -- sizes are checked against the file before memory is allocated

MAX_BYTES = 8 << 30


def check_size(what: str, promised: int, stored: int, *, compressed: bool, needed: int, disk: int) -> None:
    """`promised` bytes by the header, `stored` in the file, `needed` in memory, `disk` on the disk."""
    possible = promised <= stored * DEFLATE if compressed else promised == stored
    if not possible:
        message = f"{what}: its header promises {promised} bytes, the file holds {stored}: damaged? Fetch it again."
        raise BadInput("damaged", "size", message)
    _check_needed(what, needed)
    check_unpacked(what, needed, disk)


def _check_needed(what: str, needed: int) -> None:
    """Refuse what does not fit into memory at once."""
    if needed > MAX_BYTES:
        message = f"{what}: {needed} bytes exceed the {MAX_BYTES} read at once; read a part with a slice such as [:1000]."
        raise BadInput("too-large", "slice", message)


Arrange = Callable[[Array], Array]


def fill(
    stream: IO[bytes], out: Array, row_shape: tuple[int, ...], dtype: np.dtype[Any], what: str, arrange: Arrange | None = None
) -> Array:
    """Fill `out` row by row from the stream (rows of `row_shape` and `dtype`), converting a chunk at a time."""
    row_bytes = int(np.prod(row_shape, dtype=np.int64)) * dtype.itemsize
    step = max(1, CHUNK // max(1, row_bytes))
    for i in range(0, len(out), step):
        count = min(step, len(out) - i)
        content = stream.read(count * row_bytes)
        if len(content) != count * row_bytes:
            message = f"{what} ends early: {len(out)} rows of {shape_text(row_shape)} {dtype} promised; fetch it again."
            raise BadInput("damaged", "size", message)
        rows = np.frombuffer(content, dtype=dtype).reshape(count, *row_shape)
        with np.errstate(over="ignore", invalid="ignore"):  # ArraySource refuses what is not finite
            out[i : i + count] = rows if arrange is None else arrange(rows)
    return out
