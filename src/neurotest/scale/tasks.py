"""What runs inside a worker: it keeps what tasks share, does one task after the other, and answers with bytes."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable

from neurotest.errors import NeurotestError
from neurotest.scale.pickling import pack, unpack

KEPT = 2  # shared objects that stay loaded
DONE, FAILED = "done", "failed"


class RemoteError(Exception):
    """What went wrong in a worker, with the traceback from there."""


class TaskRunner:
    """Does tasks; `fetch` gives the bytes of a shared object by its key."""

    def __init__(self) -> None:
        self._shared: dict[str, object] = {}

    def do(self, key: str, fetch: Callable[[], bytes], message: bytes) -> bytes:
        try:
            function, task = unpack(message)
            return pack((DONE, function(self._load(key, fetch), task)))
        except Exception as error:
            return pack((FAILED, _portable(error)))

    def _load(self, key: str, fetch: Callable[[], bytes]) -> object:
        if key not in self._shared:
            while len(self._shared) >= KEPT:
                del self._shared[next(iter(self._shared))]
            self._shared[key] = unpack(fetch())
        return self._shared[key]


def _portable(error: Exception) -> Exception:
    """Ours as it is; others with their traceback, because that of another process is not kept."""
    if isinstance(error, NeurotestError):
        try:
            if isinstance(unpack(pack(error)), type(error)):
                return error
        except Exception:
            pass
    if isinstance(error, MemoryError):
        return MemoryError(str(error))
    return RemoteError("".join(traceback.format_exception(error)))


def settle(threads: int) -> None:
    """How a worker computes: with its share of the processors, and keeping memory from pass to pass as a command does.

    NumPy and SciPy have threads of their own, one per processor unless told otherwise: with them two workers on two processors
    would have four, waiting for each other.
    """
    import torch
    from threadpoolctl import threadpool_limits

    from neurotest.memory import keep_freed

    keep_freed()
    torch.set_num_threads(threads)
    threadpool_limits(threads)  # libraries that are loaded
    os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = str(threads)  # and those that will be
