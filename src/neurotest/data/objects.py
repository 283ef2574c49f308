"""Inputs that a Python program holds: arrays, tensors, pairs with labels, datasets, loaders, columns of paths."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from neurotest.audio import SUFFIXES
from neurotest.data.source import (
    IN_MEMORY,
    Array,
    ArraySource,
    Source,
    Wanted,
    as_inputs,
    content_ids,
    number_classes,
    shape_text,
)
from neurotest.errors import BadInput
from neurotest.reading import reason

if TYPE_CHECKING:
    from PIL import Image

    from neurotest.data.audio import AudioFile, Held
    from neurotest.data.folder import ImageFile

INPUT_KEYS = ("image", "img", "audio", "pixel_values", "x", "input", "inputs", "file", "path", "filename")
LABEL_KEYS = ("label", "labels", "y", "target", "class", "fine_label")
EXPECTED = (
    "an array or tensor (count, ...), a pair (inputs, labels), a torch Dataset or DataLoader, a Dataset of Hugging Face, a "
    "column of paths, or text such as dir:FOLDER"
)


class _Indexed(Protocol):
    """A dataset: `dataset[i]`."""

    def __getitem__(self, index: Any, /) -> Any: ...


AnyData = Source | str | os.PathLike[str] | Iterable[Any] | _Indexed


def from_object(thing: Any, wanted: Wanted) -> Source:
    """The source that an object stands for. A loader that shuffles is read in the order of its dataset."""
    if (array := _as_array(thing)) is not None:
        return _held(array, None, wanted)
    if isinstance(thing, tuple) and len(thing) == 2 and not _is_input(thing[0]):
        return _pair(*thing, wanted)
    dataset = getattr(thing, "dataset", None)
    if dataset is not None and hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__"):
        thing = dataset  # a DataLoader
    elif dataset is not None:
        return _pair(*_batches(thing, wanted), wanted)
    if isinstance(thing, Mapping) or not (hasattr(thing, "__getitem__") and hasattr(thing, "__len__")):
        raise BadInput("wrong-type", "data", f"data of type {type(thing).__name__}: expected {EXPECTED}.")
    if not len(thing):
        raise BadInput("empty", "data", f"data of type {type(thing).__name__} is empty; there is nothing to test.")
    return _dataset(thing, None, wanted)


def _as_array(thing: Any) -> Array | None:
    """Numbers as a numpy array; None for anything else."""
    if hasattr(thing, "detach"):  # a tensor, wherever it lies
        tensor = thing.detach().cpu()
        return np.asarray(tensor if str(tensor.dtype) != "torch.bfloat16" else tensor.float())
    if not hasattr(thing, "__array__") or _is_image(thing):
        return None
    array = np.asarray(thing)
    return None if array.dtype.kind in "OUS" else array


def _is_image(thing: Any) -> bool:
    return hasattr(thing, "convert") and hasattr(thing, "mode") and hasattr(thing, "size")


def _is_input(thing: Any) -> bool:
    """Whether something is one input, not many."""
    return isinstance(thing, (str, os.PathLike)) or _is_image(thing)


def _held(x: Array, labels: Any, wanted: Wanted) -> Source:
    grey = x.ndim == 3 and x.dtype != np.int16 and (wanted.shape is None or len(wanted.shape) == 3)
    numbers, classes = _numbered(labels, len(x))
    return ArraySource(x[:, None] if grey else x, numbers, classes=classes)


def _pair(inputs: Any, labels: Any, wanted: Wanted) -> Source:
    """Inputs and their labels, which may be class names."""
    if (array := _as_array(inputs)) is not None:
        return _held(array, labels, wanted)
    if not hasattr(inputs, "__getitem__") or not hasattr(inputs, "__len__") or isinstance(inputs, Mapping):
        message = f"inputs of type {type(inputs).__name__}: expected an array, a tensor, images or a column of paths."
        raise BadInput("wrong-type", "inputs", message)
    return _dataset(inputs, labels, wanted)


def _numbered(labels: Any, count: int) -> tuple[Array | None, tuple[str, ...] | None]:
    """Class numbers; names are numbered in their order as text, and kept as the classes."""
    if labels is None:
        return None, None
    array = _as_array(labels)
    values = np.asarray(list(labels), dtype=object) if array is None else array
    if values.dtype.kind in "OUS" and len(values) and all(isinstance(value, str) for value in values):
        return number_classes([str(value) for value in values])
    if values.dtype.kind == "O":
        try:
            values = np.asarray([int(value) for value in values])
        except (TypeError, ValueError) as error:
            message = f"labels: {error}; expected class numbers or class names, one for each of {count} inputs."
            raise BadInput("wrong-type", "labels", message) from None
    return values, None


def _batches(loader: Iterable[Any], wanted: Wanted) -> tuple[Array, Array | None]:
    """Everything that a loader of a stream gives, held in memory."""
    inputs: list[Array] = []
    labels: list[Array] = []
    count = 0
    for batch in loader:
        x, y = _split(batch)
        if (array := _as_array(x)) is None:
            message = f"the loader gives batches of {type(x).__name__}: expected tensors (count, ...)."
            raise BadInput("wrong-type", "batches", message)
        inputs.append(array)
        labels += [] if y is None else [np.asarray(_as_array(y))]
        count += len(array)
        if count * array[0].nbytes > 8 * IN_MEMORY:
            message = f"the loader gives more than {8 * IN_MEMORY >> 30} GiB and cannot be indexed: pass limit=, or a Dataset."
            raise BadInput("too-large", "limit", message)
        if wanted.first is not None and count >= wanted.first:
            break
    if not inputs:
        raise BadInput("empty", "loader", "the loader gives nothing; there is nothing to test.")
    return np.concatenate(inputs), np.concatenate(labels) if labels else None


def _split(item: Any) -> tuple[Any, Any]:
    """The input of a dataset's item, and its label or None."""
    if isinstance(item, Mapping) and not (_is_audio(item) and _label_key(item) is None):
        image = next((key for key in INPUT_KEYS if key in item), None)
        if image is None:
            message = f"the items have the keys {', '.join(map(str, item))}: expected one of {', '.join(INPUT_KEYS)}."
            raise BadInput("unknown-option", "keys", message)
        label = _label_key(item)
        return item[image], None if label is None else item[label]
    if isinstance(item, (tuple, list)) and item and not isinstance(item[0], (int, float)):
        return item[0], item[1] if len(item) > 1 else None
    return item, None


def _label_key(item: Any) -> str | None:
    return next((key for key in LABEL_KEYS if key in item), None) if isinstance(item, Mapping) else None


def _dataset(items: Any, labels: Any, wanted: Wanted) -> Source:
    """A dataset's inputs in its order; its labels unless others are given."""
    items = items.tolist() if hasattr(items, "tolist") else items  # a column of pandas: positions, not its index
    count = len(items) if wanted.first is None else min(len(items), wanted.first)
    item = _first(items)
    first, label = _split(item)
    if labels is None and label is not None:
        labels = _labels(items, item, count)
    numbers, classes = _numbered(labels, count)
    numbers = None if numbers is None else numbers[:count]
    classes = classes or _classes(items)
    if _is_input(first) or _is_audio(first):
        named = classes if numbers is None or classes else tuple(str(n) for n in range(int(numbers.max()) + 1))
        about: dict[str, Any] = {"spec": "", "classes": named if numbers is not None else None, "notes": {}}
        given = [None] * count if numbers is None else [int(number) for number in numbers]
        return (_clips if _is_audio(first) else _images)(items, given, first, wanted, about)
    array = _one(first, 0)
    size = array.nbytes
    if count * size <= IN_MEMORY:
        return ArraySource(np.stack([_one(_split(items[i])[0], i, array.shape) for i in range(count)]), numbers, classes=classes)
    return DatasetSource(items, count, array, numbers, classes=classes)


def _first(items: Any) -> Any:
    try:
        return items[0]
    except ImportError as error:  # Hugging Face decodes audio by a package of its own
        message = (
            f"the first item cannot be decoded ({reason(error)}). Audio of Hugging Face is read without further packages after "
            'dataset.cast_column("audio", datasets.Audio(decode=False)).'
        )
        raise BadInput("unreadable", "item", message) from error


def _labels(items: Any, item: Any, count: int) -> list[Any] | None:
    """The labels that come with the items; of a table its column alone is read, so that no image is decoded for them."""
    key = _label_key(item)
    form = getattr(items, "format", None)
    changed = isinstance(form, Mapping) and form.get("type") == "custom"  # a function of the user makes the items of all columns
    if key in (getattr(items, "column_names", None) or ()) and hasattr(items, "select_columns") and not changed:
        labels = list(items.select_columns([key])[:count][key])
    else:
        labels = [_split(items[i])[1] for i in range(count)]
    return None if any(one is None for one in labels) else labels


def _classes(items: Any) -> tuple[str, ...] | None:
    """Class names as torchvision's and Hugging Face's datasets know them."""
    features = getattr(items, "features", None)
    if isinstance(features, Mapping):
        label = next((features[key] for key in LABEL_KEYS if key in features), None)
        names = getattr(label, "names", None)
    else:
        names = getattr(items, "classes", None)
    usable = isinstance(names, Sequence) and not isinstance(names, str) and all(isinstance(name, str) for name in names)
    return tuple(names) if usable and names else None


def _is_audio(thing: Any) -> bool:
    """Whether something is one audio clip as Hugging Face gives it (decoded, a decoder, a file in bytes), or the path of one."""
    if isinstance(thing, (str, os.PathLike)):
        return os.fspath(thing).lower().endswith(SUFFIXES)
    if not isinstance(thing, Mapping):
        return hasattr(thing, "get_all_samples")
    if thing.keys() == {"bytes", "path"}:
        content, path = thing["bytes"], thing["path"]
        return _is_audio(path or "") if content is None else content[8:12] == b"WAVE" or content[:4] in (b"fLaC", b"OggS")
    return thing.keys() >= {"array", "sampling_rate"}


def _one(thing: Any, index: int, shape: tuple[int, ...] | None = None) -> Array:
    array = _as_array(thing)
    if array is None:
        message = f"input {index} is a {type(thing).__name__}: expected a tensor, an array, an image, audio or a path."
        raise BadInput("wrong-type", "input", message)
    if shape is not None and array.shape != shape:
        message = f"input {index} has shape {array.shape}, the first one {shape}: all must have one size; resize them first."
        raise BadInput("wrong-shape", "input", message)
    checked: Array = as_inputs(array[None], f"input {index}")[0]
    return checked


class DatasetSource(Source):
    """A dataset too large for memory: read again whenever it is used. One that changes what it gives is refused."""

    def __init__(self, items: Any, count: int, first: Array, labels: npt.ArrayLike | None, **about: Any) -> None:
        super().__init__(count, first.shape, first.dtype, labels, **about)
        self._items, self._at = items, np.arange(count)
        again = _one(_split(items[0])[0], 0)
        if content_ids(first[None])[0] != content_ids(again[None])[0]:
            message = f"the dataset gives another {shape_text(first.shape)} input each time: turn off its random augmentation."
            raise BadInput("changed", "dataset", message)

    def _rows(self, index: npt.NDArray[np.int64]) -> Array:
        rows = [_one(_split(self._items[number])[0], number, self.shape) for number in self._at[index].tolist()]
        return np.stack(rows) if rows else np.empty((0, *self.shape), self.dtype)

    def _keep(self, index: npt.NDArray[np.int64]) -> None:
        self._at = self._at[index]


# -- images and audio, as items of a dataset or as a column of paths


def _images(items: Any, labels: Sequence[int | None], first: Any, wanted: Wanted, about: dict[str, Any]) -> Source:
    """The items that have a label, or None, as a source; `first` is the input of the first one."""
    from neurotest.data.folder import open_images

    return open_images([_file(items, i, label, first) for i, label in enumerate(labels)], wanted, [], about)


def _clips(items: Any, labels: Sequence[int | None], first: Any, wanted: Wanted, about: dict[str, Any]) -> Source:
    from neurotest.data.audio import open_audio

    return open_audio([_clip(items, i, label, first) for i, label in enumerate(labels)], wanted, [], about)


def _file(items: Any, index: int, label: int | None, first: Any) -> ImageFile:
    from neurotest.data.folder import ImageFile

    # In a dataset beside an image are images, which are not decoded to look at them; a list may hold anything.
    alike = _is_image(first) and not isinstance(items, (list, tuple))
    thing = None if alike else _split(items[index])[0]
    if isinstance(thing, (str, os.PathLike)):
        return ImageFile(Path(thing).expanduser(), str(thing), label)
    return ImageFile(Path(f"item {index}"), f"item {index}", label, image=partial(_image, items, index))


def _image(items: Any, index: int) -> Image.Image:
    image: Image.Image = _split(items[index])[0].copy()
    return image


def _clip(items: Any, index: int, label: int | None, first: Any) -> AudioFile:
    from neurotest.data.audio import AudioFile

    if isinstance(first, (str, os.PathLike)):
        path = _split(items[index])[0]
        return AudioFile(Path(path).expanduser(), str(path), label)
    return AudioFile(Path(f"item {index}"), f"item {index}", label, held=partial(_samples, items, index))


def _samples(items: Any, index: int) -> Held:
    from neurotest.data.audio import MAX_FILE

    try:
        thing = _split(items[index])[0]
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
    array = np.asarray(samples if (known := _as_array(samples)) is None else known)
    if array.dtype not in (np.int16, np.int32) and array.dtype.kind != "f":
        raise ValueError(f"samples of type {array.dtype}, not in floating point or 16 bits")
    if array.ndim not in (1, 2):
        raise ValueError(f"samples of shape {array.shape}, not (frames,) or (channels, frames)")
    whole = array.dtype.kind == "i"
    return np.atleast_2d(array.astype(np.float64) / (1 << 8 * array.dtype.itemsize - 1 if whole else 1)).T
