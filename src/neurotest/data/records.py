"""Inputs in files that hold many: found by an index, decoded when they are read, and never all in memory."""

from __future__ import annotations

import glob
import io
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from neurotest.arrays import read_content, read_header
from neurotest.data.ahead import ahead
from neurotest.data.folder import MAX_FILE, ImageFile, decode_image, open_image
from neurotest.data.source import Array, Source, Wanted, as_inputs, shape_text
from neurotest.errors import BadInput
from neurotest.images import Preprocess, Unusable
from neurotest.reading import user_path

if TYPE_CHECKING:
    from PIL import Image

Content = bytes | Array  # an encoded image, or values
Ints = npt.NDArray[np.int64]


def find_files(where: str, suffix: str, prefix: str) -> list[Path]:
    """The files that a path, a folder or a pattern stands for, in the order of their names."""
    path = user_path(where, f"{prefix}:{where}")
    if path.is_dir():
        files = sorted(path.glob(f"**/*{suffix}"))
    elif path.is_file():
        return [path]
    else:
        files = [file for pattern in _braces(str(path)) for file in _matching(pattern)]
    files = [file for file in files if not file.is_dir()]
    if not files:
        message = f"{prefix}:{where}: there is no {suffix} file; check the path (it is relative to {Path.cwd()})."
        raise BadInput("not-found", "files", message)
    if others := [file for file in files if not file.is_file()]:
        message = f"{prefix}:{others[0]} is a pipe, a device or a link to nothing; {suffix} files are read: remove it."
        raise BadInput("not-a-file", "files", message)
    return files


def _matching(pattern: str) -> list[Path]:
    """The files of a pattern, in the order of their names. `**` follows no links to folders, which may lead in circles."""
    parts = [part if part == "**" else re.sub(r"\*\*+", "*", part) for part in Path(pattern).parts]
    if "**" not in parts:
        return [Path(name) for name in sorted(glob.glob(pattern))]
    first = parts.index("**")
    roots = sorted(glob.glob(str(Path(*parts[:first])))) if first else [""]
    inner = "/".join([*parts[first:], "*"] if parts[-1] == "**" else parts[first:])
    below = ((Path(root), file) for root in roots for file in Path(root).glob(inner))
    spelled = {part for part in parts if part.startswith(".")}  # what is hidden is left out, unless the pattern names it
    hidden = ((file, {name for name in file.relative_to(root).parts if name.startswith(".")}) for root, file in below)
    return sorted({file for file, names in hidden if names <= spelled})


def _braces(pattern: str) -> list[str]:
    """Shards as WebDataset writes them.

    >>> _braces("train-{08..10}.tar")
    ['train-08.tar', 'train-09.tar', 'train-10.tar']
    """
    head, opened, rest = pattern.partition("{")
    inner, closed, tail = rest.partition("}")
    first, dots, last = inner.partition("..")
    if not (opened and closed and dots and first.isdecimal() and last.isdecimal() and int(first) <= int(last) < 10**7):
        return [pattern]
    return [head + str(n).zfill(len(first)) + end for n in range(int(first), int(last) + 1) for end in _braces(tail)]


class Format:
    """How contents become inputs of one shape and type."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any], preprocess: Preprocess | None) -> None:
        self.shape, self.dtype = shape, dtype
        self.preprocess = preprocess  # None: values, no images

    @classmethod
    def of(cls, content: Content, wanted: Wanted, name: str) -> Format:
        """The format of all inputs, from the first and from what the target expects."""
        if not isinstance(content, bytes):
            checked = as_inputs(content[None], name)[0]
            shape = _arranged(checked, wanted.shape, name).shape
            return cls(shape, checked.dtype, None)
        image = _opened(content, name)
        channels = 1 if wanted.preprocess.grey or image.mode in ("1", "L", "I;16", "LA") else 3
        size: tuple[int, ...] = image.size[::-1]
        if wanted.shape is not None:
            if len(wanted.shape) != 3 or wanted.shape[0] not in (1, 3):
                expected = shape_text(wanted.shape)
                message = f"{name} is an image of 1 or 3 channels, the target expects {expected}; save values instead."
                raise BadInput("unsuitable", "channels", message)
            channels, size = wanted.shape[0], wanted.shape[1:]
        if wanted.preprocess.fits_any_size:
            size = wanted.preprocess.output(None if wanted.shape is None else size)  # type: ignore[arg-type]
        return cls((channels, *size), np.dtype(np.uint8), wanted.preprocess)

    def input(self, content: Content, name: str) -> Array:
        if self.preprocess is None:
            if isinstance(content, bytes):
                raise BadInput("conflict", "image", f"{name} is an image, the first input holds values: keep them apart.")
            values = _arranged(as_inputs(content[None], name)[0], self.shape, name)
            if values.shape != self.shape or values.dtype != self.dtype:
                message = (
                    f"{name} holds {shape_text(values.shape)} {values.dtype}, the first input {shape_text(self.shape)} "
                    f"{self.dtype}: all must be alike; resize or leave it out."
                )
                raise BadInput("wrong-shape", "input", message)
            return values
        if not isinstance(content, bytes):
            raise BadInput("conflict", "values", f"{name} holds values, the first input is an image: keep them apart.")
        image = ImageFile(Path(name), name, None, image=partial(_opened, content, name))
        try:
            return decode_image(image, self.shape, self.preprocess).x
        except Unusable as error:
            resize = f"; --resize {self.shape[1]} fits images of any size" if "expected" in str(error) else ""
            raise BadInput("unreadable", "input", f"{name} cannot be used ({error}): repair or leave it out{resize}.") from error


def _opened(content: bytes, name: str) -> Image.Image:
    from PIL import Image

    if len(content) > MAX_FILE:
        message = f"{name} has {len(content):,} bytes; an image has at most {MAX_FILE >> 20} MiB: shrink or leave it out."
        raise BadInput("too-large", "file", message)
    try:
        return open_image(content)
    except Unusable as error:
        raise BadInput("unreadable", "image", f"{name} cannot be used ({error}): repair or leave it out.") from error
    except Image.DecompressionBombError as error:
        raise BadInput("too-large", "pixels", f"{name}: too many pixels to be decoded (a bomb?); remove or shrink it.") from error
    except Exception as error:
        raise BadInput("unsupported", "image", f"{name} is not a PNG, JPEG or WebP image: repair or leave it out.") from error


def _arranged(values: Array, shape: tuple[int, ...] | None, name: str) -> Array:
    """A flat list in the shape of an input; a grey image gets its channel."""
    if shape is None or values.shape == shape:
        return values
    if values.ndim == 1 and values.size == int(np.prod(shape)):
        return values.reshape(shape)
    return values[None] if (1, *values.shape) == shape else values


def array_of(content: bytes, name: str) -> Array:
    """The array in a `.npy`; its header is checked against what there is before anything is allocated."""
    stream = io.BytesIO(content)
    header = read_header(stream, name)
    if header.nbytes != len(content) - stream.tell():
        message = f"{name}: its header promises {header.nbytes} bytes, it holds {len(content) - stream.tell()}: damaged?"
        raise BadInput("damaged", "size", message)
    return read_content(stream, header, name)


class RecordSource(Source):
    """Inputs that are fetched by their number whenever they are read: a subclass says `fetch` and `record_names`."""

    def __init__(self, count: int, form: Format, labels: npt.ArrayLike | None, **about: Any) -> None:
        super().__init__(count, form.shape, form.dtype, labels, **about)
        self._form, self._at = form, np.arange(count)

    @property
    def decodes(self) -> bool:
        return True

    def fetch(self, numbers: Ints) -> Iterator[tuple[int, Content]]:
        """The contents of records one after the other, in any order, each with its place among the numbers."""
        raise NotImplementedError

    def record_names(self, numbers: Ints) -> list[str]:
        """What people call these records."""
        raise NotImplementedError

    def keys(self, index: npt.ArrayLike) -> list[str]:
        return self.record_names(self._at[self._checked(index)])

    def _rows(self, index: Ints) -> Array:
        rows = np.empty((len(index), *self.shape), self.dtype)
        numbers = self._at[index]
        for (i, _), decoded in ahead(partial(self._input, numbers), self.fetch(numbers), count=len(numbers)):
            rows[i] = decoded()
        return rows

    def _input(self, numbers: Ints, record: tuple[int, Content]) -> Array:
        place, content = record
        try:
            return self._form.input(content, "")
        except BadInput:  # again, with its name in the sentence
            (name,) = self.record_names(numbers[place : place + 1])
            return self._form.input(content, f"{self.what}, {name}")

    def _keep(self, index: Ints) -> None:
        self._at = self._at[index]
