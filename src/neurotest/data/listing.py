"""Which files of a folder are inputs, and their labels: class sub-folders, a flat folder, or a table of file names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from neurotest.data.labels import INVALID_WORDS, UNCLEAR_WORDS, Inputs, Key, Label, read_labels
from neurotest.data.source import Skipped
from neurotest.errors import BadInput
from neurotest.reading import user_path

MOST_CLASSES = 100_000


@dataclass(frozen=True, kw_only=True)
class Kind:
    """What is read from a folder: pictures by `dir:`, say. others: endings of the same kind of thing that are not read."""

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


def find(kind: Kind, rest: str, skipped: list[Skipped]) -> Listing:
    """What stands behind the colon: `FOLDER` or `FOLDER#LABELS.csv`."""
    folder, table = split(kind, rest)
    return listed(kind, folder, skipped) if table is None else labelled(kind, folder, table, skipped)


def listed(kind: Kind, folder: Path, skipped: list[Skipped]) -> Listing:
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
        raise BadInput(
            "ambiguous",
            "data",
            f"{kind.prefix}:{folder} holds both {kind.things} ({flat[0].name}) and folders ({subfolders[0].name}): "
            "move one away.",
        )
    files = [file for label, sub in enumerate(subfolders) for file in _plain(kind, sub, folder, label, skipped)]
    if not files and not skipped:
        raise BadInput(
            "empty",
            "folders",
            f"{kind.prefix}:{folder}: no {kind.things} in its {len(subfolders)} folders; {kind.formats} files are read.",
        )
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


def split(kind: Kind, rest: str) -> tuple[Path, Path | None]:
    """The folder and the file of labels, which may lie in the folder; the name of a folder may itself hold a #."""
    whole = user_path(rest, f"{kind.prefix}:{rest}")
    where, mark, file = rest.rpartition("#")
    if not mark or whole.is_dir():
        return whole, None
    folder = user_path(where, f"{kind.prefix}:{where}")
    table = user_path(file, f"{kind.prefix}:{rest}: {file or 'no file after #'}")
    if not file.strip():
        raise BadInput(
            "syntax",
            "data",
            f"{kind.prefix}:{rest}: no file after #: write {kind.prefix}:FOLDER#LABELS.csv, or {kind.prefix}:FOLDER.",
        )
    for place in (table, folder / table):
        if place.is_file():
            return folder, place
    inside = f"neither in {Path.cwd()} nor in {folder}"
    raise BadInput(
        "not-found", "labels", f"{kind.prefix}:{rest}: there is no file {table} ({inside}); it holds the columns file and label."
    )


def labelled(kind: Kind, folder: Path, table: Path, skipped: list[Skipped]) -> Listing:
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
            raise BadInput(
                "missing",
                "file",
                f"{table} labels positions: for {kind.prefix}: it names files, in a column file "
                "(or name, filename, path, image).",
            )
        if not (places := inputs.find(key)):
            missing.append(key)
        for place in places:
            if words.setdefault(place, label) != label:
                raise BadInput(
                    "duplicate", "file", f"{table} labels {files[place].name} twice, as {words[place]!r} and {label!r}: keep one."
                )
    if not words:
        raise BadInput(
            "not-found", "files", f"{table}: none of its {len(missing)} files is in {folder} (first: {missing[0]}); check both."
        )
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
            raise BadInput(
                "out-of-range",
                "label",
                f"{table}: label {most}: class numbers are below {MOST_CLASSES:,}, 0 for the first class.",
            )
        return {place: int(word) for place, word in clear.items()}, tuple(map(str, range(most + 1)))
    names = sorted({str(word) for word in clear.values()})
    numbers = {name: number for number, name in enumerate(names)}
    return {place: numbers[str(word)] for place, word in clear.items()}, tuple(names)


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
        raise BadInput(
            "unreadable", "data", f"{kind.prefix}:{folder} cannot be read: {error.strerror}; check its permissions."
        ) from error


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
