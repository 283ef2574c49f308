"""Reading arrays from files nobody vouches for: sizes are checked against the file before memory is allocated."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from lzma import LZMAError
from pathlib import Path
from typing import IO, Any
from zipfile import BadZipFile

import numpy as np

from neurotest.data.source import CHUNK, Array, shape_text
from neurotest.errors import BadInput

MAX_BYTES = 8 << 30
DEFLATE = 1032  # deflate cannot expand more than this, so a larger claim is false


def existing_file(path: Path, source: str) -> Path:
    if path.is_dir():
        raise BadInput(f"{source}:{path} is a folder; {source}: reads a file. For a folder of images write dir:{path}")
    if not path.is_file():
        raise BadInput(f"{source}:{path}: there is no such file; check the path (it is relative to {Path.cwd()}).")
    return path


@contextmanager
def readable(what: str) -> Iterator[None]:
    """Turn whatever a damaged file makes its decoder raise into one sentence."""
    try:
        yield
    except (OSError, EOFError, ValueError, RuntimeError, NotImplementedError, zlib.error, LZMAError, BadZipFile) as error:
        raise BadInput(
            f"{what} cannot be read ({error or type(error).__name__}): damaged or cut off? Make or fetch it again."
        ) from error
    except MemoryError as error:
        raise BadInput(f"{what} does not fit into memory; read a part of it with a slice such as [:1000].") from error


def check_size(what: str, promised: int, stored: int, *, compressed: bool, needed: int) -> None:
    """`promised` bytes by the header, `stored` in the file, `needed` in memory."""
    possible = promised <= stored * DEFLATE if compressed else promised == stored
    if not possible:
        raise BadInput(
            f"{what}: its header promises {promised} bytes, the file holds {stored}: damaged or cut off? Fetch it again."
        )
    if needed > MAX_BYTES:
        raise BadInput(
            f"{what}: {needed} bytes are more than the {MAX_BYTES} read at once; read a part with a slice such as [:1000]."
        )


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
            raise BadInput(
                f"{what} ends early: {len(out)} rows of {shape_text(row_shape)} {dtype} were promised; make or fetch it again."
            )
        rows = np.frombuffer(content, dtype=dtype).reshape(count, *row_shape)
        with np.errstate(over="ignore", invalid="ignore"):  # ArraySource refuses what is not finite
            out[i : i + count] = rows if arrange is None else arrange(rows)
    return out
