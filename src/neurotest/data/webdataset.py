"""Samples in tar files, as WebDataset writes them: `webdataset:FILES.tar`, `webdataset:data-{000..012}.tar#jpg,cls`."""

from __future__ import annotations

import json
import os
import tarfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from neurotest import registry
from neurotest.data.records import Content, Format, Ints, RecordSource, array_of, find_files
from neurotest.data.source import Source, Wanted, number_classes
from neurotest.data.spec import split_names
from neurotest.errors import BadInput
from neurotest.reading import reason, resolved

PICTURES = ("png", "jpg", "jpeg", "webp")
INPUTS = (*PICTURES, "npy")
LABELS = ("cls", "json")
LABEL_KEYS = ("label", "cls", "class", "y", "target")
MAX_LABEL = 1 << 20  # bytes of a file of one
LONGEST_LABEL = 4096  # characters
MAX_INPUT = 128 << 20
MAX_HEADER = 1 << 20
KIND = "webdataset"


@registry.register(
    "data source", "webdataset", paper="", cost="the headers of the tar files are read once, samples when needed; ~100 bytes each"
)
def _open_webdataset(rest: str, wanted: Wanted) -> Source:
    """Tar files of samples `NAME.jpg` and `NAME.cls` (a class number) or `NAME.json` (with a key `label`): one file, a folder, a
    pattern or `{000..012}`; `#jpg,cls` says which parts are meant."""
    where, names = split_names(rest, KIND)
    parts = [name.lower() for name in names]
    what = f"{KIND}:{where}"
    if len(parts) > 2:
        message = f"{KIND}:{rest}: expected #IMAGE or #IMAGE,LABEL with the endings of the parts, such as #jpg,cls."
        raise BadInput("syntax", "data", message)
    files = find_files(where, ".tar", KIND)
    inputs = (parts[0],) if parts else INPUTS
    labels = (parts[1],) if len(parts) > 1 else () if parts else LABELS
    index = _Index.of(files, inputs, labels, wanted.first, what)
    content = index.content(0)
    form = Format.of(content, wanted, f"{what}, {index.names[0]}")
    numbers, classes = index.labels(what)
    return TarSource(index, form, numbers, spec=f"{KIND}:{rest}", classes=classes)


@dataclass(frozen=True)
class _Place:
    file: int
    offset: int
    size: int
    ending: str


class _Index:
    """Where every sample lies. Open files are not part of a copy, and do not travel."""

    def __init__(self, files: Sequence[str], names: list[str], places: list[_Place], labels: list[_Place | None]) -> None:
        self.files, self.names = list(files), np.asarray(names, dtype=object)
        self.endings = sorted({place.ending for place in places})
        codes = {ending: i for i, ending in enumerate(self.endings)}
        self.places: Ints = np.array([(p.file, p.offset, p.size, codes[p.ending]) for p in places], np.int64)  # (n, 4)
        self._labels = labels
        self._open: dict[int, Any] = {}
        self._lock = threading.Lock()  # a pass reads ahead in a thread: a file must not be closed that another one reads

    @classmethod
    def of(cls, files: list[Path], inputs: Sequence[str], labels: Sequence[str], first: int | None, what: str) -> _Index:
        names: list[str] = []
        places: list[_Place] = []
        classes: list[_Place | None] = []
        for number, file in enumerate(files):
            for key, parts in _samples(file, number, f"{what} ({file.name})"):
                found = [parts[ending] for ending in inputs if ending in parts]
                if not found:
                    continue
                if len(found) > 1:
                    both = " and ".join(place.ending for place in found[:2])
                    message = f"{what}: {key} has both {both}: say which is the input, {KIND}:FILES#{found[0].ending}"
                    raise BadInput("ambiguous", "input", message)
                names.append(key)
                places.append(found[0])
                classes.append(next((parts[ending] for ending in labels if ending in parts), None))
                if first is not None and len(names) >= first:
                    return cls([str(resolved(f)) for f in files], names, places, classes)
        if not names:
            message = f"{what} holds no samples with a part {', '.join(inputs)}: name the input, {KIND}:FILES#ENDING"
            raise BadInput("empty", "samples", message)
        return cls([str(resolved(file)) for file in files], names, places, classes)

    def __getstate__(self) -> dict[str, Any]:
        return {**{name: value for name, value in vars(self).items() if name != "_lock"}, "_open": {}, "_labels": []}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _lock=threading.Lock())

    def take(self, numbers: Ints) -> _Index:
        part = _Index.__new__(_Index)
        part.__setstate__({**self.__getstate__(), "names": self.names[numbers], "places": self.places[numbers]})
        return part

    def content(self, number: int) -> Content:
        file, offset, size, code = self.places[number].tolist()
        content = self._bytes(file, offset, size)
        return array_of(content, str(self.names[number])) if self.endings[code] == "npy" else content

    def _bytes(self, file: int, offset: int, size: int) -> bytes:
        with self._lock:
            if file not in self._open:
                while len(self._open) >= 8:
                    self._open.pop(next(iter(self._open))).close()
                try:
                    self._open[file] = open(self.files[file], "rb")  # noqa: SIM115
                except OSError as error:
                    message = f"{self.files[file]} can no longer be read ({reason(error)}): leave it alone meanwhile."
                    raise BadInput("unreadable", "file", message) from error
            content = os.pread(self._open[file].fileno(), size, offset)
        if len(content) != size:
            message = f"{self.files[file]} has become shorter since it was opened: leave it alone meanwhile."
            raise BadInput("changed", "file", message)
        return content

    def labels(self, what: str) -> tuple[npt.NDArray[np.int64] | None, tuple[str, ...] | None]:
        """All labels, or none; a sample without one among others is refused."""
        missing = [i for i, place in enumerate(self._labels) if place is None]
        if len(missing) == len(self._labels):
            return None, None
        if missing:
            message = f"{what}: {self.names[missing[0]]} has no label and others do: complete them, or name the input alone."
            raise BadInput("missing", "labels", message)
        values = [self._label(place, f"{what}, {name}") for place, name in zip(self._labels, self.names, strict=True) if place]
        if all(isinstance(value, int) for value in values):
            return np.array(values, np.int64), None
        return number_classes([str(value) for value in values])

    def _label(self, place: _Place, what: str) -> int | str:
        if place.size > MAX_LABEL:
            raise BadInput("too-large", "label", f"{what}: its label has {place.size} bytes: expected a class number or name.")
        text = self._bytes(place.file, place.offset, place.size)
        try:
            words = text.decode().strip()
            value = json.loads(words) if place.ending == "json" else words
        except ValueError as error:
            message = f"{what}: its {place.ending} cannot be read ({reason(error)}): repair or leave it out."
            raise BadInput("unreadable", "label", message) from error
        if isinstance(value, dict):
            value = next((value[key] for key in LABEL_KEYS if key in value), None)
        if isinstance(value, str) and value.lstrip("-").isdecimal() and len(value) < 18:
            value = int(value)
        if not isinstance(value, int | str) or isinstance(value, bool) or len(str(value)) > LONGEST_LABEL:
            keys = ", ".join(LABEL_KEYS)
            message = f"{what}: its {place.ending} holds no label: expected a class number or name (in JSON under {keys})."
            raise BadInput("missing", "label", message)
        return value


def _samples(file: Path, number: int, what: str) -> Iterator[tuple[str, dict[str, _Place]]]:
    """Samples in the order of the file: parts with one name that follow each other."""
    size = file.stat().st_size
    key, parts = None, dict[str, _Place]()
    for member in _members(file, what):
        if not member.isreg():
            continue
        folder, _, base = member.name.rpartition("/")
        stem, _, ending = base.partition(".")
        name = f"{folder}/{stem}" if folder else stem
        if name != key:
            if key is not None:
                yield key, parts
            key, parts = name, {}
        if member.offset_data + member.size > size or member.size > MAX_INPUT:
            cut = "is cut off" if member.size <= MAX_INPUT else "is too large"
            raise BadInput("damaged", "member", f"{what}: {member.name} {cut}; fetch the file again.")
        parts[ending.lower()] = _Place(number, member.offset_data, member.size, ending.lower())
    if key is not None:
        yield key, parts


class BoundedHeader(tarfile.TarInfo):
    """A header that is followed by a small one at most: names and notes that are longer than others are read into memory."""

    @classmethod
    def frombuf(cls, buf: Any, encoding: str, errors: str) -> BoundedHeader:
        header = super().frombuf(buf, encoding, errors)
        if header.type not in (*tarfile.REGULAR_TYPES, tarfile.DIRTYPE) and header.size > MAX_HEADER:
            raise tarfile.HeaderError(f"a header of {header.size:,} bytes, {MAX_HEADER:,} are allowed")
        return header


def _members(file: Path, what: str) -> Iterator[tarfile.TarInfo]:
    try:
        with tarfile.open(file, "r:", tarinfo=BoundedHeader) as archive:
            while (member := archive.next()) is not None:
                yield member
                archive.members = []  # type: ignore[attr-defined]  # it would keep every header
    except (tarfile.TarError, EOFError, OSError, ValueError) as error:
        packed = _begins(file) == b"\x1f\x8b"
        hint = f"damaged or cut off ({reason(error)}): fetch it again"
        hint = "it is compressed: unpack it to a plain .tar first" if packed else hint
        raise BadInput("damaged", "archive", f"{what} is no tar file that can be read; {hint}.") from error


def _begins(file: Path) -> bytes:
    with suppress(OSError), open(file, "rb") as stream:
        return stream.read(2)
    return b""


class TarSource(RecordSource):
    """Samples of tar files."""

    def __init__(self, index: _Index, form: Format, labels: npt.ArrayLike | None, **about: Any) -> None:
        super().__init__(len(index.names), form, labels, **about)
        self._index = index

    def fetch(self, numbers: Ints) -> Iterator[tuple[int, Content]]:
        return ((place, self._index.content(int(number))) for place, number in enumerate(numbers))

    def record_names(self, numbers: Ints) -> list[str]:
        return [str(name) for name in self._index.names[numbers]]

    def _keep(self, index: Ints) -> None:
        """What is cut off does not travel to workers."""
        self._index = self._index.take(self._at[index])
        self._at = np.arange(len(index))
