"""Inputs in files of a folder: which files, their labels (class sub-folders, a flat folder, or a table of names), and decoding.

Each file is decoded once to check it, and again whenever it is read where there are too many to keep.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from neurotest.data.ahead import ahead
from neurotest.data.labels import INVALID_WORDS, UNCLEAR_WORDS, Inputs, Key, Label, read_labels
from neurotest.data.source import IN_MEMORY, Array, ArraySource, Skipped, Source, Wanted, content_ids, number_classes
from neurotest.errors import BadInput
from neurotest.images import Unusable
from neurotest.reading import user_path

MOST_CLASSES = 100_000


@dataclass(frozen=True, kw_only=True)
class Kind:
    """What is read from a folder: images by `dir:`, say. others: endings of the same kind of thing that are not read."""

    prefix: str
    things: str
    formats: str
    suffixes: tuple[str, ...]
    others: tuple[str, ...] = ()


@dataclass(frozen=True)
class File:
    """A file; `name` is what people are shown."""

    path: Path
    name: str
    label: int | None


Listing = tuple[list[File], tuple[str, ...] | None, list[str]]


def find(kind: Kind, rest: str, skipped: list[Skipped]) -> tuple[list[File], dict[str, Any]]:
    """What stands behind the colon, `FOLDER` or `FOLDER#LABELS.csv`: its files, and what is said of the source."""
    folder, table = _split(kind, rest)
    files, classes, warned = _listed(kind, folder, skipped) if table is None else _labelled(kind, folder, table, skipped)
    return files, {"spec": f"{kind.prefix}:{rest}", "classes": classes, "notes": {"warnings": warned} if warned else {}}


def _listed(kind: Kind, folder: Path, skipped: list[Skipped]) -> Listing:
    """Files in the order of their names, the classes, and what the user should hear about them."""
    _check_folder(kind, folder)
    subfolders = [entry for entry in _entries(kind, folder) if entry.is_dir()]
    flat = _plain(kind, folder, folder, None, skipped)
    if not subfolders:
        if not flat and not skipped:
            raise BadInput(
                "empty",
                "data",
                f"{kind.prefix}:{folder} holds no {kind.things} and no folders of {kind.things}; {kind.formats} files are read.",
            )
        return flat, None, []
    if flat:
        message = (
            f"{kind.prefix}:{folder} holds both {kind.things} ({flat[0].name}) and folders ({subfolders[0].name}): move one away."
        )
        raise BadInput("ambiguous", "data", message)
    files = [file for label, sub in enumerate(subfolders) for file in _plain(kind, sub, folder, label, skipped)]
    if not files and not skipped:
        message = f"{kind.prefix}:{folder}: no {kind.things} in its {len(subfolders)} folders; {kind.formats} files are read."
        raise BadInput("empty", "folders", message)
    names = tuple(sub.name for sub in subfolders)
    if all(name.isdecimal() for name in names) and sorted(names, key=int) != list(names):
        order = f"class folders are numbered in the order of their names as text ({', '.join(names[:4])}, ...)"
        return files, names, [f"{order}: pad the numbers if that is not meant"]
    return files, names, []


def _check_folder(kind: Kind, folder: Path) -> None:
    if not folder.is_dir():
        state = (
            f"is a file, {kind.prefix}: reads a folder" if folder.exists() else f"does not exist (it is relative to {Path.cwd()})"
        )
        raise BadInput("not-found", "data", f"{kind.prefix}:{folder} {state}; check the path.")


def _split(kind: Kind, rest: str) -> tuple[Path, Path | None]:
    """The folder and the file of labels, which may lie in the folder; the name of a folder may itself hold a #."""
    whole = user_path(rest, f"{kind.prefix}:{rest}")
    where, mark, file = rest.rpartition("#")
    if not mark or whole.is_dir():
        return whole, None
    folder = user_path(where, f"{kind.prefix}:{where}")
    table = user_path(file, f"{kind.prefix}:{rest}: {file or 'no file after #'}")
    if not file.strip():
        message = f"{kind.prefix}:{rest}: no file after #: write {kind.prefix}:FOLDER#LABELS.csv, or {kind.prefix}:FOLDER."
        raise BadInput("syntax", "data", message)
    for place in (table, folder / table):
        if place.is_file():
            return folder, place
    inside = f"neither in {Path.cwd()} nor in {folder}"
    message = f"{kind.prefix}:{rest}: there is no file {table} ({inside}); it holds the columns file and label."
    raise BadInput("not-found", "labels", message)


def _labelled(kind: Kind, folder: Path, table: Path, skipped: list[Skipped]) -> Listing:
    """The files that the table labels, in the order of their names. Names of classes are numbered in their order as text."""
    _check_folder(kind, folder)
    files = list(_tree(kind, folder, folder, skipped))
    if not files:
        raise BadInput("empty", "data", f"{kind.prefix}:{folder} holds no {kind.things}; {kind.formats} files are read.")
    inputs = Inputs(("" for _ in files), (file.name for file in files))
    words: dict[int, Label] = {}
    missing: list[Key] = []
    for key, label in read_labels(table).items():
        if isinstance(key, int):
            message = (
                f"{table} labels positions: for {kind.prefix}: it names files, in a column file (or name, filename, path, image)."
            )
            raise BadInput("missing", "file", message)
        if not (places := inputs.find(key)):
            missing.append(key)
        for place in places:
            if words.setdefault(place, label) != label:
                message = f"{table} labels {files[place].name} twice, as {words[place]!r} and {label!r}: keep one."
                raise BadInput("duplicate", "file", message)
    if not words:
        message = f"{table}: none of its {len(missing)} files is in {folder} (first: {missing[0]}); check both."
        raise BadInput("not-found", "files", message)
    numbers, classes = _class_numbers(words, table)
    without = [file.name for place, file in enumerate(files) if place not in numbers]
    skipped += [Skipped(name, f"no label in {table.name}", named=True) for name in without]
    warned = (
        [f"{len(without)} of {len(files)} files have no label in {table.name} and are left out (first: {without[0]})."]
        if without
        else []
    )
    unread = {one.file for one in skipped}
    if missing := [key for key in missing if key not in unread]:
        warned.append(f"{len(missing)} labels of {table.name} are for files that are not in the folder (first: {missing[0]}).")
    return [replace(files[place], label=number) for place, number in sorted(numbers.items())], classes, warned


def _class_numbers(words: dict[int, Label], table: Path) -> tuple[dict[int, int], tuple[str, ...]]:
    """Class numbers as they are, if all labels are numbers; otherwise names, numbered in their order as text."""
    clear = {place: word for place, word in words.items() if str(word).lower() not in (*UNCLEAR_WORDS, *INVALID_WORDS)}
    if not clear:
        raise BadInput("empty", "labels", f"{table}: no label says a class; write class names or numbers.")
    if all(isinstance(word, int) for word in clear.values()):
        most = max(int(word) for word in clear.values())
        if most >= MOST_CLASSES:
            message = f"{table}: label {most}: class numbers are below {MOST_CLASSES:,}, 0 for the first class."
            raise BadInput("out-of-range", "label", message)
        return {place: int(word) for place, word in clear.items()}, tuple(map(str, range(most + 1)))
    numbers, names = number_classes([str(word) for word in clear.values()])
    return dict(zip(clear, numbers.tolist(), strict=True)), names


def _tree(kind: Kind, folder: Path, root: Path, skipped: list[Skipped]) -> Iterator[File]:
    """All files below a folder, in the order of their names; links to folders are not followed."""
    yield from _plain(kind, folder, root, None, skipped)
    for entry in _entries(kind, folder):
        if entry.is_dir() and not entry.is_symlink():
            yield from _tree(kind, entry, root, skipped)


def _entries(kind: Kind, folder: Path) -> list[Path]:
    try:
        return sorted((entry for entry in folder.iterdir() if not entry.name.startswith(".")), key=lambda entry: entry.name)
    except OSError as error:
        message = f"{kind.prefix}:{folder} cannot be read: {error.strerror}; check its permissions."
        raise BadInput("unreadable", "data", message) from error


def _plain(kind: Kind, folder: Path, root: Path, label: int | None, skipped: list[Skipped]) -> list[File]:
    files = []
    for entry in _entries(kind, folder):
        name, suffix = entry.relative_to(root).as_posix(), entry.suffix.lower()
        if entry.is_dir() and label is not None:
            inner = f"{kind.prefix}:{root} has folders inside class folders ({name})"
            raise BadInput("ambiguous", "folder", f"{inner}; name the one that holds classes, {kind.prefix}:{folder}")
        if suffix in kind.others:
            skipped.append(Skipped(name, f"not {kind.formats.replace(' and ', ' or ')}"))
        elif suffix in kind.suffixes and entry.is_file():
            files.append(File(entry, name, label))
    return files


# -- decoding

F = TypeVar("F", bound=File)
G = TypeVar("G", bound=File, contravariant=True)


class _Decoder(Protocol[G]):
    """Makes an input of a file. threads: how many files at once; None: as many as help."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    things: str
    threads: int | None

    def decode(self, file: G, /) -> tuple[Array, tuple[str, ...]]:
        """The input and what had to be changed to get there; `Unusable` for what cannot be one."""


def refuse(skipped: Sequence[Skipped]) -> None:
    if skipped:
        more = f" (and {len(skipped) - 1} more)" if len(skipped) > 1 else ""
        message = f"{skipped[0].file}: {skipped[0].reason}{more}; repair or remove it, or leave out --strict."
        raise BadInput("unreadable", "strict", message)


def decode_all(files: Sequence[F], decoder: _Decoder[F], wanted: Wanted, skipped: list[Skipped], about: dict[str, Any]) -> Source:
    """Decode each file once: it shows which are damaged and gives the ids; the values are kept if there are not too many."""
    shape, dtype = decoder.shape, decoder.dtype
    enough = len(files) if wanted.first is None else min(wanted.first, len(files))
    keep = enough * int(np.prod(shape)) * dtype.itemsize <= IN_MEMORY
    values = np.empty((enough if keep else 1, *shape), dtype)
    good: list[F] = []
    changed: dict[str, list[str]] = {}  # what was changed to fit, and in which files
    ids: list[npt.NDArray[np.str_]] = []
    for file, decoded in ahead(decoder.decode, files, threads=decoder.threads):
        if len(good) == enough:
            break
        row = values[len(good) if keep else 0]
        try:
            row[...], changes = decoded()
        except Unusable as error:
            skipped.append(Skipped(file.name, str(error)))
            if wanted.strict:
                refuse(skipped)
            continue
        for change in changes:
            changed.setdefault(change, []).append(file.name)
        good.append(file)
        ids.append(content_ids(row[None]))
    skipped.sort(key=lambda one: one.file)
    if not good:
        first, what = skipped[0], about["spec"] or "the data"
        hint = "".join(f" {sentence}" for sentence in about["notes"].get("warnings", ())[:1] if "--" in sentence)
        message = f"{what}: none of its {len(skipped)} {decoder.things} can be used; first {first.file}: {first.reason}.{hint}"
        raise BadInput("empty", "data", message)
    sentences = [
        f"{len(names)} file{'s have' if len(names) > 1 else ' has'} {change} (first: {names[0]})."
        for change, names in changed.items()
    ]
    if sentences:
        about["notes"]["warnings"] = [*about["notes"].get("warnings", ()), *sentences]
    labels = None if about["classes"] is None else np.array([file.label for file in good], np.int64)
    about |= {"skipped": skipped, "names": [file.name for file in good]}
    if keep:
        source: Source = DecodedSource(values[: len(good)], good, decoder, labels, **about)
    else:
        source = FolderSource(good, decoder, labels, **about)
    source._ids = np.concatenate(ids)
    return source


class DecodedSource(ArraySource):
    """Files that were decoded and kept. To a worker they travel as files."""

    def __init__(
        self, x: Array, files: Sequence[F], decoder: _Decoder[F], labels: npt.ArrayLike | None = None, **about: Any
    ) -> None:
        super().__init__(x, labels, **about)
        self._files, self._decoder = list(files), decoder

    def _keep(self, index: npt.NDArray[np.int64]) -> None:
        super()._keep(index)
        self._files = [self._files[i] for i in index]

    def __reduce_for_worker__(self) -> tuple[Any, ...]:
        return _undecoded, ({name: value for name, value in vars(self).items() if name != "_x"},)


def _undecoded(about: dict[str, Any]) -> FolderSource:
    source = FolderSource.__new__(FolderSource)
    vars(source).update(about)
    return source


class FolderSource(Source):
    """Files too many for memory: decoded again whenever they are read, and compared with what was checked at first."""

    def __init__(self, files: Sequence[F], decoder: _Decoder[F], labels: npt.ArrayLike | None = None, **about: Any) -> None:
        super().__init__(len(files), decoder.shape, decoder.dtype, labels, **about)
        self._files, self._decoder = list(files), decoder

    @property
    def decodes(self) -> bool:
        """Objects of the user's program are asked one by one, and by nobody else meanwhile."""
        return self._decoder.threads != 1

    def _rows(self, index: npt.NDArray[np.int64]) -> Array:
        rows = np.empty((len(index), *self.shape), self.dtype)
        decoder = self._decoder
        files = ahead(decoder.decode, [self._files[i] for i in index], threads=decoder.threads)
        for row, i, (file, decoded) in zip(rows, index, files, strict=True):
            try:
                row[...] = decoded()[0]
            except Unusable as error:
                message = f"{file.path} can no longer be read ({error}); leave the folder alone during a run."
                raise BadInput("changed", "file", message) from error
            if self._ids is not None and content_ids(row[None])[0] != self._ids[i]:
                message = f"{file.path} has changed since the folder was opened; leave the folder alone during a run."
                raise BadInput("changed", "file", message)
        return rows

    def _keep(self, index: npt.NDArray[np.int64]) -> None:
        self._files = [self._files[i] for i in index]
