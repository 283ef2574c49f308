"""Inputs that follow no rule, kept as what was added to their seeds: enough to make them again, and no image of anybody."""

from __future__ import annotations

import base64
import binascii
import zlib

import numpy as np
from numpy.typing import NDArray

LEVEL = 9


def difference(seed: NDArray[np.generic], changed: NDArray[np.generic]) -> str:
    """What was added to an 8-bit seed, as text."""
    assert seed.dtype == changed.dtype == np.uint8
    added = changed.astype("<i2") - seed.astype("<i2")
    return base64.b85encode(zlib.compress(added.tobytes(), LEVEL)).decode()


def restored(seed: NDArray[np.generic], text: str) -> NDArray[np.uint8]:
    """The changed input; a text that does not fit the seed is a ValueError, however much it would unpack to."""
    if seed.dtype != np.uint8:
        raise ValueError(f"a difference of 8-bit data, and the seeds are {seed.dtype}")
    size = 2 * seed.size
    try:
        unpacker = zlib.decompressobj()
        raw = unpacker.decompress(base64.b85decode(text), size + 1)
    except (ValueError, binascii.Error, zlib.error) as error:
        raise ValueError("a difference that cannot be unpacked") from error
    if len(raw) != size:
        raise ValueError(f"a difference of another size than {' x '.join(map(str, seed.shape))}")
    changed = seed.astype(np.int32) + np.frombuffer(raw, "<i2").reshape(seed.shape)
    if changed.min(initial=0) < 0 or changed.max(initial=0) > 255:
        raise ValueError("a difference that leaves the 8 bits of its seed")
    return np.asarray(changed, np.uint8)
