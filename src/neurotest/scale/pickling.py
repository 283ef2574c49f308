"""Objects on their way to a worker: what can be opened again where it arrives travels as its description.

A class says so with `__reduce_for_worker__`, which gives what `__reduce__` would. It is not `__reduce__` because copies made in
one process must stay copies.
"""

from __future__ import annotations

import io
import pickle
from typing import Any

from neurotest.errors import BadInput


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
