"""Embedded data: parts of Fashion-MNIST and, with neurotest-lab, of MNIST and CIFAR-10, losslessly packed.

A file is xz over the pixels of its images, column by column, followed by one byte per label. lab/scripts/embed_data.py makes
the files; of the ways it compares this is the smallest for both grey sets together. Unpacking 10,000 images takes about
0.3 s. Of colour images what is packed are differences, between channels and between neighbours: photographs have no runs.
"""

from __future__ import annotations

import functools
import hashlib
import lzma
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from neurotest.errors import BadInput, near
from neurotest.zoo import FAMILIES, LAB, Family, lab_installed, packaged

GREY = (28, 28)
Uint8 = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Split:
    """One split: how many images, in which files (equal shares, in order), and the SHA-256 of pixels and labels."""

    count: int
    files: tuple[str, ...]
    sha256: str


PARTS: dict[str, dict[str, Split]] = {
    "mnist": {
        "test": Split(10000, ("mnist-test.xz",), "c3f9adf9c66efb572b1f9326c3a511b45910c7173b97be66ceceeeeaef6b802b"),
        "train": Split(5000, ("mnist-train.xz",), "47d921ad3f2875ef61ee1565a06261eb42e205fa9b89340f349dbb60792ff55c"),
    },
    "fashion-mnist": {
        "test": Split(
            10000,
            ("fashion-mnist-test-1.xz", "fashion-mnist-test-2.xz"),
            "9f1ec356a747bfe4ebab3cfb722d3694c9ca737e2570f6f90cf31d7b6fd689d4",
        ),
        "train": Split(5000, ("fashion-mnist-train.xz",), "71f2c3d35f0ffad274d8b5e013ccd03ca043193a80f405068f3ff0bea531521f"),
    },
    "cifar10": {
        "test": Split(1000, ("cifar10-test.xz",), "2c7f1e2769a741f695dfd5f74aa4a4ef08a7d20b9ec8576214dabab76c75c784"),
        "train": Split(1000, ("cifar10-train.xz",), "0f266ad90f33ac092b7adf871ffe3430c013b340bd2b47a7aa342cf17bb5210d"),
    },
}


def family(name: str) -> Family:
    """Shape and classes of a data set."""
    return next(family for family in FAMILIES.values() if family.dataset == name)


def load(name: str, split: str) -> tuple[Uint8, npt.NDArray[np.int64], tuple[str, ...]]:
    """Images (n, c, h, w) uint8, labels (n,) and class names of an embedded split; the arrays are read-only and shared."""
    if name not in PARTS:
        raise BadInput("unknown-name", "data", f"no data set {name!r} is embedded. {near(name, PARTS)}")
    if split not in PARTS[name]:
        raise BadInput("unknown-name", "split", f"{name} has no split {split!r}. {near(split, PARTS[name])}")
    part = PARTS[name][split]
    paths = [path for file in part.files if (path := packaged(f"data/{file}"))]
    if len(paths) < len(part.files):
        why = "its file was removed from this installation" if lab_installed() else f"it may come with neurotest-lab ({LAB})"
        message = f"zoo:{name}/{split} is not here: {why}. Or run `neurotest data get {name}` and use zoo:{name}-full/{split}"
        raise BadInput("not-found", "data", message)
    x, y = _unpacked(tuple(paths), part.count // len(part.files), family(name).shape)
    return x, y, family(name).classes


@functools.lru_cache(maxsize=4)
def _unpacked(paths: tuple[Path, ...], each: int, image: tuple[int, ...]) -> tuple[Uint8, npt.NDArray[np.int64]]:
    parts = [unpack(path, each, image[1:] if image[0] == 1 else image) for path in paths]
    x = np.concatenate([pixels for pixels, _ in parts]).reshape(-1, *image)  # (n, channels, height, width)
    y = np.concatenate([labels for _, labels in parts]).astype(np.int64)
    x.flags.writeable = y.flags.writeable = False
    return x, y


def pack(x: Uint8, y: Uint8) -> bytes:
    """Images, grey (n, h, w) or colour (n, 3, h, w), and labels (n,) as the content of a file."""
    if x.ndim == 4:
        x = _differences(x)
    columns = np.ascontiguousarray(x.swapaxes(-1, -2))  # neighbours in a column resemble each other most
    settings = {"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "lc": 4, "lp": 0, "pb": 0, "dict_size": 1 << 24}
    return lzma.compress(columns.tobytes() + y.tobytes(), format=lzma.FORMAT_XZ, filters=[settings])


def unpack(path: Path, count: int, image: tuple[int, ...] = GREY) -> tuple[Uint8, Uint8]:
    """Images and labels as they were packed; `image` is the shape of one."""
    pixels = math.prod(image)
    size = count * (pixels + 1)
    decoder = lzma.LZMADecompressor(format=lzma.FORMAT_XZ)
    try:
        content = decoder.decompress(path.read_bytes(), max_length=size)
        if len(content) == size and not decoder.eof:  # the checksum stands behind the last byte
            content += decoder.decompress(b"", max_length=1)
    except (OSError, EOFError, lzma.LZMAError) as error:
        message = f"the embedded file {path.name} is damaged ({error}): install neurotest again."
        raise BadInput("damaged", "embedded", message) from error
    if len(content) != size or not decoder.eof:
        raise BadInput("damaged", "embedded", f"the embedded file {path.name} is damaged: install neurotest again.")
    columns, labels = np.split(np.frombuffer(content, np.uint8), [count * pixels])
    if len(image) == 2:
        return columns.reshape(count, *image[::-1]).swapaxes(-1, -2), labels
    channels, height, width = image
    return _summed(columns.reshape(channels, count, width, height).swapaxes(-1, -2)), labels


def _differences(x: Uint8) -> Uint8:
    """(n, 3, h, w) as green, red - green, blue - green, each minus its left neighbour: (3, n, h, w). Bytes wrap around."""
    red, green, blue = x.swapaxes(0, 1)
    planes = np.stack([green, red - green, blue - green])
    planes[..., 1:] -= planes[..., :-1].copy()
    return planes


def _summed(planes: Uint8) -> Uint8:
    """The images that `_differences` came from."""
    green, red, blue = np.cumsum(planes, axis=-1, dtype=np.uint8)
    return np.stack([red + green, green, blue + green], axis=1)


def digest(x: npt.ArrayLike, y: npt.ArrayLike) -> str:
    """SHA-256 of the pixels, row by row, and the labels, one byte each: what the data cards give."""
    pixels, labels = np.ascontiguousarray(x, np.uint8), np.ascontiguousarray(y, np.uint8)
    return hashlib.sha256(pixels.tobytes() + labels.tobytes()).hexdigest()
