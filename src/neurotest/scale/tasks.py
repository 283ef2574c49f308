"""What runs inside a worker: it keeps what tasks share, does one task after the other, and answers with bytes.

What can be opened again where it arrives travels as its description. A class says so with `__reduce_for_worker__`, which gives
what `__reduce__` would. It is not `__reduce__` because copies made in one process must stay copies.
"""

from __future__ import annotations

import io
import os
import pickle
import traceback
from collections.abc import Callable
from typing import Any

from neurotest.errors import BadInput, NeurotestError


class _Pickler(pickle.Pickler):
    def reducer_override(self, thing: Any) -> Any:
        ship = None if isinstance(thing, type) else getattr(type(thing), "__reduce_for_worker__", None)
        return NotImplemented if ship is None else ship(thing)


def pack(thing: Any) -> bytes:
    """The object as bytes for a worker."""
    stream = io.BytesIO()
    try:
        _Pickler(stream, protocol=pickle.HIGHEST_PROTOCOL).dump(thing)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise BadInput(
            "unsupported",
            "workers",
            f"the work cannot be sent to a worker ({error}): name the target and the data by a spec that workers can open "
            "(py:FILE:CALLABLE, npz:FILE, dir:FOLDER), or use one worker.",
        ) from error
    return stream.getvalue()


def unpack(content: bytes) -> Any:
    return pickle.loads(content)


SHARED_OBJECTS_LOADED = 2  # shared objects that stay loaded
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
            while len(self._shared) >= SHARED_OBJECTS_LOADED:
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
