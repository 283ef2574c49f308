"""The complete CIFAR-10, brought from its binary version: `data_batch_1.bin` to `data_batch_5.bin` and `test_batch.bin`.

Here it lies as train.npz and test.npz (x: uint8, channels last; y). The pinned SHA-256 is of the content, so it does not
matter in which of these forms a copy comes. The version "for Python" is a pickle, which could run code: it is not read.
"""

from __future__ import annotations

import gzip
import tarfile
import zlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from http.client import HTTPException
from pathlib import Path
from typing import IO

import numpy as np

from neurotest import files
from neurotest.data.npz import open_npz
from neurotest.data.source import Array, ArraySource, Source, Wanted
from neurotest.data.webdataset import BoundedHeader
from neurotest.errors import BadInput
from neurotest.zoo import embedded

NAME = "cifar10"
ADDRESS = "https://www.cs.toronto.edu/~kriz/"
ARCHIVE = "cifar-10-binary.tar.gz"
IMAGE = (3, 32, 32)
RECORD = 1 + 3 * 32 * 32  # label, then the red, green and blue planes
PER_FILE = 10_000
BATCHES = {"train": tuple(f"data_batch_{number}.bin" for number in range(1, 6)), "test": ("test_batch.bin",)}
FILES = tuple(name for names in BATCHES.values() for name in names)
# Of all pixels (image by image, red, green, blue, row by row), then all labels.
SHA256 = {
    "train": "1e91790dbaf241617ca1f29a9aba08eb9a62df84cc90676b47edd05ad2ab3c94",
    "test": "9a4c74f5c8b6f2c4e13d3a1dfb43a5a8cda8a9da515e99fd620d2013a1a6287a",
}
Arrays = tuple[Array, Array]  # images (n, 3, 32, 32), labels (n,)
Progress = Callable[[int, int], None]


class _Wrong(Exception):
    """Why a copy is not CIFAR-10."""


def read(split: str, wanted: Wanted, *, spec: str) -> Source:
    """`zoo:cifar10-full/SPLIT` from the user's data folder."""
    file = files.data_dir() / NAME / f"{split}.npz"
    if not file.is_file():
        message = f"{spec}: the complete set is not in {file.parent}: run `neurotest data get {NAME}` (or --from DIR)."
        raise BadInput("not-found", "data", message)
    x, y = _from_npz(file, wanted)
    return ArraySource(x, y, spec=spec, classes=embedded.family(NAME).classes)


def get(folder: Path | None, download: Callable[[], AbstractContextManager[IO[bytes]]], progress: Progress | None = None) -> Path:
    """Bring both splits to the data folder, from `folder` or by `download`; what is there and right is left alone."""
    place = files.data_dir() / NAME
    missing = [split for split in BATCHES if not _present(place / f"{split}.npz", split)]
    if not missing:
        return place
    origin = f"{ADDRESS}{ARCHIVE}" if folder is None else str(folder)
    try:
        if folder is None:
            with download() as stream:
                arrays = _from_tar(stream)
        else:
            arrays = _from_folder(folder)
        for number, split in enumerate(missing, start=1):
            _keep(place / f"{split}.npz", split, arrays[split])
            if progress is not None:
                progress(number, len(missing))
    except (_Wrong, tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile, HTTPException) as error:
        message = f"{origin}: {error or 'it breaks off'}; nothing was kept of it. Try again, or another copy."
        raise BadInput("download-failed", "", message) from error
    return place


def _present(file: Path, split: str) -> bool:
    try:
        return file.is_file() and embedded.digest(*_from_npz(file, Wanted())) == SHA256[split]
    except BadInput:
        return False


def _keep(file: Path, split: str, arrays: Arrays) -> None:
    digest = embedded.digest(*arrays)
    if digest != SHA256[split]:
        raise _Wrong(f"the {split} images have SHA-256 {digest}, expected {SHA256[split]}: damaged, or not CIFAR-10")
    x, y = arrays
    with files.atomic_write(file) as part, open(part, "wb") as out:
        np.savez(out, x=x.transpose(0, 2, 3, 1), y=y.astype(np.uint8))


def _from_npz(file: Path, wanted: Wanted) -> Arrays:
    source = open_npz(f"{file}#x,y,nhwc", wanted)
    if source.shape != IMAGE or source.dtype != np.uint8 or source.labels is None:
        message = f"{file} holds something else than CIFAR-10: delete it and run `neurotest data get {NAME}`."
        raise BadInput("damaged", "", message)
    return source.read(np.arange(len(source))), source.labels


def _from_folder(folder: Path) -> dict[str, Arrays]:
    """train.npz and test.npz, the six binary files, or the archive that holds them."""
    if not folder.is_dir():
        message = f"--from {folder}: there is no such folder; name the one that holds {ARCHIVE}, or train.npz and test.npz."
        raise BadInput("not-found", "from", message)
    for place in (folder, folder / NAME, folder / "cifar-10-batches-bin"):
        if all((place / f"{split}.npz").is_file() for split in BATCHES):
            return {split: _from_npz(place / f"{split}.npz", Wanted()) for split in BATCHES}
        if all((place / name).is_file() for name in FILES):
            return _joined({name: _records((place / name).read_bytes(), name) for name in FILES})
        if (place / ARCHIVE).is_file():
            with open(place / ARCHIVE, "rb") as stream:
                return _from_tar(stream)
    message = f"--from {folder}: neither {ARCHIVE} nor its .bin files nor train.npz and test.npz are there."
    raise BadInput("not-found", "files", message)


def _from_tar(stream: IO[bytes]) -> dict[str, Arrays]:
    """Read the archive as it comes; nothing is unpacked to disk, and no more than it should hold is read."""
    batches: dict[str, Arrays] = {}
    size = 0
    with tarfile.open(fileobj=stream, mode="r|gz", tarinfo=BoundedHeader) as archive:
        for member in archive:
            size += member.size
            if size > 2 * len(FILES) * PER_FILE * RECORD:
                raise _Wrong("the archive holds more than it should")
            name = member.name.rpartition("/")[2]
            content = archive.extractfile(member) if name in FILES and member.isfile() else None
            if content is not None:
                batches[name] = _records(content.read(), name)
            if len(batches) == len(FILES):
                break
    if lacking := sorted(set(FILES) - set(batches)):
        raise _Wrong(f"the archive lacks {', '.join(lacking)}")
    return _joined(batches)


def _records(content: bytes, name: str) -> Arrays:
    if len(content) != PER_FILE * RECORD:
        raise _Wrong(f"{name} has {len(content)} bytes, expected {PER_FILE * RECORD}")
    rows = np.frombuffer(content, np.uint8).reshape(PER_FILE, RECORD)
    return rows[:, 1:].reshape(-1, *IMAGE), rows[:, 0]


def _joined(parts: dict[str, Arrays]) -> dict[str, Arrays]:
    return {
        split: (np.concatenate([parts[n][0] for n in names]), np.concatenate([parts[n][1] for n in names]))
        for split, names in BATCHES.items()
    }
