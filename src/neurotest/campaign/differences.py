"""Inputs that follow no rule, kept as what was added to their seeds: enough to make them again, and no image of anybody."""

from __future__ import annotations

import base64
import binascii
import zlib

import numpy as np
from numpy.typing import NDArray

LEVEL = 9
WIDER = {np.dtype(np.uint8): "<i2", np.dtype(np.int16): "<i4"}  # what holds every difference


def difference(seed: NDArray[np.generic], changed: NDArray[np.generic]) -> str:
    """What was added to a seed of 8 or 16 bits, as text."""
    assert seed.dtype == changed.dtype
    added = changed.astype(WIDER[seed.dtype]) - seed.astype(WIDER[seed.dtype])
    return base64.b85encode(zlib.compress(added.tobytes(), LEVEL)).decode()


def restored(seed: NDArray[np.generic], text: str) -> NDArray[np.generic]:
    """The changed input; a text that does not fit the seed is a ValueError, however much it would unpack to."""
    if seed.dtype not in WIDER:
        raise ValueError(f"a difference of data of 8 or 16 bits, and the seeds are {seed.dtype}")
    wider = np.dtype(WIDER[seed.dtype])
    limits = np.iinfo(np.uint8) if seed.dtype == np.uint8 else np.iinfo(np.int16)
    size = wider.itemsize * seed.size
    try:
        unpacker = zlib.decompressobj()
        raw = unpacker.decompress(base64.b85decode(text), size + 1)
    except (ValueError, binascii.Error, zlib.error) as error:
        raise ValueError("a difference that cannot be unpacked") from error
    if len(raw) != size:
        raise ValueError(f"a difference of another size than {' x '.join(map(str, seed.shape))}")
    changed = seed.astype(np.int64) + np.frombuffer(raw, wider).reshape(seed.shape)
    if changed.min(initial=0) < limits.min or changed.max(initial=0) > limits.max:
        raise ValueError(f"a difference that leaves the {8 * seed.dtype.itemsize} bits of its seed")
    return np.asarray(changed, seed.dtype)
