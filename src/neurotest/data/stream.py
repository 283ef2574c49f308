"""Reading arrays from files nobody vouches for: sizes are checked against the file before memory is allocated."""

from __future__ import annotations

from collections.abc import Callable
from typing import IO, Any

import numpy as np

from neurotest.arrays import DEFLATE
from neurotest.data.source import CHUNK, Array, shape_text
from neurotest.errors import BadInput
from neurotest.reading import check_unpacked

MAX_BYTES = 8 << 30


def check_size(what: str, promised: int, stored: int, *, compressed: bool, needed: int, disk: int) -> None:
    """`promised` bytes by the header, `stored` in the file, `needed` in memory, `disk` on the disk."""
    possible = promised <= stored * DEFLATE if compressed else promised == stored
    if not possible:
        raise BadInput(
            "damaged", "size", f"{what}: its header promises {promised} bytes, the file holds {stored}: damaged? Fetch it again."
        )
    check_needed(what, needed)
    check_unpacked(what, needed, disk)


def check_needed(what: str, needed: int) -> None:
    """Refuse what does not fit into memory at once."""
    if needed > MAX_BYTES:
        raise BadInput(
            "too-large",
            "slice",
            f"{what}: {needed} bytes exceed the {MAX_BYTES} read at once; read a part with a slice such as [:1000].",
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
                "damaged",
                "size",
                f"{what} ends early: {len(out)} rows of {shape_text(row_shape)} {dtype} promised; fetch it again.",
            )
        rows = np.frombuffer(content, dtype=dtype).reshape(count, *row_shape)
        with np.errstate(over="ignore", invalid="ignore"):  # ArraySource refuses what is not finite
            out[i : i + count] = rows if arrange is None else arrange(rows)
    return out
