"""Keeping a long campaign small."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from contextlib import suppress

EVERY = 32  # batches


@functools.cache
def _trim() -> Callable[[int], int] | None:
    with suppress(OSError, AttributeError):
        trim: Callable[[int], int] = ctypes.CDLL("libc.so.6").malloc_trim
        return trim
    return None


def give_back(batch: int) -> None:
    """Now and then return freed memory to the system: batches of changing sizes leave holes that glibc keeps otherwise."""
    if batch % EVERY == 0 and (trim := _trim()) is not None:
        trim(0)
