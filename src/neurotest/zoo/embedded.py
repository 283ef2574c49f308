"""Data that comes with the package: parts of MNIST and Fashion-MNIST, losslessly packed.

A file is xz over the pixels of its images, column by column, followed by one byte per label. scripts/embed_data.py makes
the files; of the ways it compares this is the smallest, and 10,000 images are unpacked in about 0.3 s.
"""

from __future__ import annotations

import functools
import hashlib
import lzma
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from neurotest.errors import BadInput, near
from neurotest.zoo import CLASSES, DATASETS

DATA = Path(__file__).parent / "data"
SIDE = 28
Uint8 = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Part:
    """One split: how many images, in which files (equal shares, in order), and the SHA-256 of pixels and labels."""

    count: int
    files: tuple[str, ...]
    sha256: str


PARTS: dict[str, dict[str, Part]] = {}


def classes(name: str) -> tuple[str, ...]:
    return next(CLASSES[word] for word, dataset in DATASETS.items() if dataset == name)


def load(name: str, split: str) -> tuple[Uint8, npt.NDArray[np.int64], tuple[str, ...]]:
    """Images (n, 1, 28, 28) uint8, labels (n,) and class names of an embedded split; the arrays are read-only and shared."""
    if name not in PARTS:
        raise BadInput(f"no data set {name!r} is embedded. {near(name, PARTS)}")
    if split not in PARTS[name]:
        raise BadInput(f"{name} has no split {split!r}. {near(split, PARTS[name])}")
    part = PARTS[name][split]
    for file in part.files:
        if not (DATA / file).is_file():
            raise BadInput(
                f"zoo:{name}/{split}: the embedded file {file} was removed from this installation. Install neurotest again, "
                f"or run `neurotest data get {name}` and use zoo:{name}-full/{split}"
            )
    x, y = _unpacked(tuple(DATA / file for file in part.files), part.count // len(part.files))
    return x, y, classes(name)


@functools.lru_cache(maxsize=4)
def _unpacked(paths: tuple[Path, ...], each: int) -> tuple[Uint8, npt.NDArray[np.int64]]:
    parts = [unpack(path, each) for path in paths]
    x = np.concatenate([pixels for pixels, _ in parts])[:, None]  # (n, 1, 28, 28)
    y = np.concatenate([labels for _, labels in parts]).astype(np.int64)
    x.flags.writeable = y.flags.writeable = False
    return x, y


def pack(x: Uint8, y: Uint8, **options: Any) -> bytes:
    """Images (n, 28, 28) and labels (n,) as the content of a file."""
    columns = np.ascontiguousarray(x.transpose(0, 2, 1))  # neighbours in a column resemble each other most
    settings = {"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "lc": 4, "lp": 0, "pb": 0, "dict_size": 1 << 24}
    return lzma.compress(columns.tobytes() + y.tobytes(), format=lzma.FORMAT_XZ, filters=[settings | options])


def unpack(path: Path, count: int) -> tuple[Uint8, Uint8]:
    size = count * (SIDE * SIDE + 1)
    decoder = lzma.LZMADecompressor(format=lzma.FORMAT_XZ)
    try:
        content = decoder.decompress(path.read_bytes(), max_length=size)
        if len(content) == size and not decoder.eof:  # the checksum stands behind the last byte
            content += decoder.decompress(b"", max_length=1)
    except (OSError, EOFError, lzma.LZMAError) as error:
        raise BadInput(f"the embedded file {path.name} is damaged ({error}): install neurotest again.") from error
    if len(content) != size or not decoder.eof:
        raise BadInput(f"the embedded file {path.name} is damaged: install neurotest again.")
    columns, labels = np.split(np.frombuffer(content, np.uint8), [count * SIDE * SIDE])
    return columns.reshape(count, SIDE, SIDE).transpose(0, 2, 1), labels


def digest(x: npt.ArrayLike, y: npt.ArrayLike) -> str:
    """SHA-256 of the pixels, row by row, and the labels, one byte each: what the data cards give."""
    pixels, labels = np.ascontiguousarray(x, np.uint8), np.ascontiguousarray(y, np.uint8)
    return hashlib.sha256(pixels.tobytes() + labels.tobytes()).hexdigest()
