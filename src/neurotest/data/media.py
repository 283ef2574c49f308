"""Pictures and sounds that a Python program holds, as items of a dataset or as a column of paths."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from neurotest.data.folder import Picture, open_files
from neurotest.data.objects import as_array, is_picture, split
from neurotest.data.sound import MAX_FILE, Clip, Held, open_clips
from neurotest.data.source import Array, Source, Wanted
from neurotest.reading import reason

if TYPE_CHECKING:
    from PIL import Image


def pictures(items: Any, labels: Sequence[int | None], first: Any, wanted: Wanted, about: dict[str, Any]) -> Source:
    """The items that have a label, or None, as a source; `first` is the input of the first one."""
    return open_files([_file(items, i, label, first) for i, label in enumerate(labels)], wanted, [], about)


def sounds(items: Any, labels: Sequence[int | None], first: Any, wanted: Wanted, about: dict[str, Any]) -> Source:
    return open_clips([_clip(items, i, label, first) for i, label in enumerate(labels)], wanted, [], about)


def _file(items: Any, index: int, label: int | None, first: Any) -> Picture:
    # In a dataset beside a picture are pictures, which are not decoded to look at them; a list may hold anything.
    alike = is_picture(first) and not isinstance(items, (list, tuple))
    thing = None if alike else split(items[index])[0]
    if isinstance(thing, (str, os.PathLike)):
        return Picture(Path(thing).expanduser(), str(thing), label)
    return Picture(Path(f"item {index}"), f"item {index}", label, image=partial(_picture, items, index))


def _picture(items: Any, index: int) -> Image.Image:
    picture: Image.Image = split(items[index])[0].copy()
    return picture


def _clip(items: Any, index: int, label: int | None, first: Any) -> Clip:
    if isinstance(first, (str, os.PathLike)):
        path = split(items[index])[0]
        return Clip(Path(path).expanduser(), str(path), label)
    return Clip(Path(f"item {index}"), f"item {index}", label, held=partial(_sound, items, index))


def _sound(items: Any, index: int) -> Held:
    try:
        thing = split(items[index])[0]
        if hasattr(thing, "get_all_samples"):  # a decoder of torchcodec
            decoded = thing.get_all_samples()
            return _frames(decoded.data), int(decoded.sample_rate)
        if "array" in thing:
            return _frames(thing["array"]), int(thing["sampling_rate"])
        if thing["bytes"]:
            return thing["bytes"]  # type: ignore[no-any-return]
        path = Path(thing["path"]).expanduser()
        if path.stat().st_size > MAX_FILE:
            raise ValueError(f"larger than {MAX_FILE >> 20} MiB")
        return path.read_bytes()
    except Exception as error:  # decoders raise nearly anything on a damaged file
        raise ValueError(reason(error)) from error


def _frames(samples: Any) -> Array:
    """(frames, channels), full scale at 1, of (frames,) or (channels, frames)."""
    array = np.asarray(samples if (known := as_array(samples)) is None else known)
    if array.dtype not in (np.int16, np.int32) and array.dtype.kind != "f":
        raise ValueError(f"samples of type {array.dtype}, not in floating point or 16 bits")
    if array.ndim not in (1, 2):
        raise ValueError(f"samples of shape {array.shape}, not (frames,) or (channels, frames)")
    whole = array.dtype.kind == "i"
    return np.atleast_2d(array.astype(np.float64) / (1 << 8 * array.dtype.itemsize - 1 if whole else 1)).T
