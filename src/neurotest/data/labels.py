"""Labels that people give: CSV, JSON lines, Label Studio's JSON, a folder per class; by file name, content or position."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import numpy as np
from numpy.typing import NDArray

from neurotest.checks import shown
from neurotest.errors import BadInput, near, spelled
from neurotest.reading import read_text, reading, user_path

LARGEST_TABLE = 1 << 28  # bytes of a labels file
KIND = "a labels file"
LABELS = ("label", "labelled", "class")  # what the column of labels may be called
FILES = ("file", "name", "filename", "file_name", "path", "image")  # and that of file names
IN_NAME = re.compile(r"(?:\d+-)?(\d+)-([0-9a-f]{16})(?:-.*)?")  # rank-position-content, as the folder export names its files
EXPORTED = "exported.csv"  # what an exported folder says of itself
IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".npy")
UPLOADED = re.compile(r"[0-9a-f]{8}-(.+)")  # Label Studio puts this before the names of uploaded files
UNCLEAR_WORDS = ("unclear", "?")
UNCLEAR = -1  # a label that says: cannot tell
INVALID_WORDS = ("invalid", "not valid")
INVALID = -2  # a label that says: no input that the network has to answer
Key = int | str  # a position in the pool, or a content id or the name of a file
Label = int | str  # a class number, or a name


def read_labels(path: str | Path, *, confirmed: bool = False) -> dict[Key, Label]:
    """Labels by content id, file name or position, whichever the file has first.

    A row without a label is no label. Two labels for the same input that differ are refused, because one of them is wrong. An
    exported folder in which nothing was moved is refused, too, unless it is `confirmed` that somebody looked at it.
    """
    path = user_path(path)
    labels: dict[Key, Label] = {}
    seen: dict[Key, str] = {}
    with reading(path, KIND):
        for where, key, label in _rows(path, confirmed):
            if key in labels and labels[key] != label:
                message = f"{path}: {where} labels input {key} as {label!r}, but {seen[key]} says {labels[key]!r}: keep one."
                raise BadInput("conflict", "label", message)
            labels[key], seen[key] = label, where
    if not labels:
        message = f"{path} holds no label: fill in the column `label` (or annotate the tasks, or sort the images) first."
        raise BadInput("empty", "labels", message)
    return labels


def _rows(path: Path, confirmed: bool) -> Iterator[tuple[str, Key, Label]]:
    if path.is_dir():
        return _folder_rows(path, confirmed)
    hint = "Labels are a CSV file with the columns file (or position, or content) and label."
    text = read_text(path, KIND, limit=LARGEST_TABLE, hint=hint)
    return _json_rows(text, path) if text.lstrip()[:1] in ("[", "{") else _csv_rows(text, path)


def _csv_rows(text: str, path: Path) -> Iterator[tuple[str, Key, Label]]:
    first = text.split("\n", 1)[0]
    delimiter = next((sign for sign in (",", ";", "\t") if sign in first), ",")
    reader = csv.DictReader(text.splitlines(), delimiter=delimiter)
    columns = [name.strip().lower() for name in reader.fieldnames or ()]
    reader.fieldnames = columns
    column = next((name for name in LABELS if name in columns), None)
    if column is None or not {"position", "content", *FILES} & set(columns):
        message = (
            f"{path} has the columns {', '.join(columns) or 'none'}: expected label and file (or {', '.join(FILES[1:])}), "
            "position or content."
        )
        raise BadInput("unknown-option", "columns", message)
    for row in reader:
        label = _read_label(row.get(column))
        if label is not None:
            where = f"line {reader.line_num}"
            yield where, _key(row, f"{path}, {where}"), label


def _key(row: Mapping[Any, Any], where: str) -> Key:
    """The content where there is one, because it holds in any order of the pool; else the name of a file, else the position."""
    content = row.get("content")
    if isinstance(content, str) and content.strip():
        return content.strip().lower()
    for column in FILES:
        name = row.get(column)
        if isinstance(name, str) and name.strip() and not name.startswith("data:"):
            return _unquoted(name.strip())
    position = row.get("position")
    text = str(position).strip() if isinstance(position, int | str) and not isinstance(position, bool) else ""
    if not re.fullmatch(r"\d{1,18}", text):
        message = f"{where}: position {shown(position)} is no number of an input (0 is the first)."
        raise BadInput("syntax", "position", message)
    return int(text)


def _unquoted(text: str) -> str:
    """Without the apostrophe that keeps spreadsheets from taking a text for a formula."""
    return text[1:] if len(text) > 1 and text[0] == "'" and text[1] in "=+-@" else text


def _read_label(text: Any) -> Label | None:
    """A number as a number; a name as it is."""
    if not isinstance(text, str | int) or isinstance(text, bool) or str(text).strip() == "":
        return None
    word = _unquoted(str(text).strip())
    return int(word) if re.fullmatch(r"\d{1,9}", word) else word


def _json_rows(text: str, path: Path) -> Iterator[tuple[str, Key, Label]]:
    """Tasks as Label Studio exports them (JSON), its short form (JSON-MIN), or one object per line (JSON lines)."""
    for where, task in _objects(text):
        if not isinstance(task, dict):
            message = f"{path}: {where} is no object: expected what Label Studio exports as JSON, or a file and a label."
            raise BadInput("wrong-type", "object", message)
        data = task["data"] if isinstance(task.get("data"), dict) else task
        for label in _choices(task):
            if not {"content", "position", *FILES} & set(data):
                message = f"{path}: {where} has neither file, content nor position: it cannot be told which input it labels."
                raise BadInput("missing", "file", message)
            yield where, _key(data, f"{path}, {where}"), label


def _objects(text: str) -> Iterator[tuple[str, Any]]:
    lines = [(number, line) for number, line in enumerate(text.splitlines(), start=1) if line.strip()]
    if text.lstrip()[0] == "{" and len(lines) > 1:
        try:
            json.loads(lines[0][1])
        except ValueError:
            pass  # one object over several lines
        else:
            yield from ((f"line {number}", json.loads(line)) for number, line in lines)
            return
    tasks = json.loads(text)
    yield from ((f"task {n}", task) for n, task in enumerate(tasks if isinstance(tasks, list) else [tasks], start=1))


def _choices(task: dict[str, Any]) -> Iterator[Label]:
    """What people chose; annotations that were cancelled are none."""
    chosen: list[Any] = []
    for annotation in _list(task.get("annotations") or task.get("completions")):
        if isinstance(annotation, dict) and not annotation.get("was_cancelled"):
            for result in _list(annotation.get("result")):
                value = result.get("value") if isinstance(result, dict) else None
                chosen += _list(value.get("choices")) if isinstance(value, dict) else ()
    if "annotations" not in task:
        chosen += [task[name] for name in LABELS if isinstance(task.get(name), (str, int))][:1]
    for one in chosen:
        if (label := _read_label(one)) is not None:
            yield label


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _folder_rows(path: Path, confirmed: bool) -> Iterator[tuple[str, Key, Label]]:
    """A folder per class: images that were exported, or those of the pool by their names."""
    places = [file for file in sorted(path.glob("*/*")) if file.suffix.lower() in IMAGE_SUFFIXES and file.is_file()]
    names = [file.relative_to(path).as_posix() for file in places]
    exported = _exported(path)
    if names and not confirmed and set(names) <= exported:
        message = (
            f"{path}: nobody sorted it, all {len(names)} images lie where the export put them, in folders of what the network "
            "says. Move those that are wrong, or say --confirmed if somebody has looked and the network is right on all of them."
        )
        raise BadInput("missing", "confirmed", message)
    for file, name in zip(places, names, strict=True):
        label = _read_label(file.parent.name)
        if label is None:
            message = f"{path}: the folder {file.parent.name!r} names no class; rename it, or move its images."
            raise BadInput("unknown-name", "folder", message)
        match = IN_NAME.fullmatch(file.stem)
        yield name, match[2] if match else file.name, label


def _exported(path: Path) -> set[str]:
    """Where an export put its images, relative to the folder; nothing if it is no exported one."""
    file = path / EXPORTED
    if not file.is_file():
        return set()
    rows = csv.DictReader(read_text(file, "a table of exported images", limit=LARGEST_TABLE).splitlines())
    return {_unquoted(str(row["picture"])) for row in rows if row.get("picture")}


# -- which class, which input


def as_folder(name: str) -> str:
    """A class name as one folder: no separators, nothing that means another place."""
    return re.sub(r"[^\w .+-]", "_", name).strip(". ") or "_"


def numbered(label: Label, classes: int, names: tuple[str, ...] | None) -> int:
    """The class number of a label: a name of the target's classes, also as a folder is called, or the number itself.

    UNCLEAR where a person could not tell, INVALID where it is no input that the network has to answer.
    """
    if isinstance(label, str) and names and spelled(label) in (words := spelled(names)):  # as exports write them
        return int(words.index(spelled(label)))
    if isinstance(label, int):
        if names and str(label) in names:  # digits: the names are numbers too
            return names.index(str(label))
        if label < classes:
            return label
        raise BadInput("out-of-range", "label", f"label {label}: the target has {classes} classes, 0 to {classes - 1}.")
    if label.lower() in UNCLEAR_WORDS:
        return UNCLEAR
    if label.lower() in INVALID_WORDS:
        return INVALID
    folders = [as_folder(name) for name in names or ()]
    if folders.count(label) == 1:
        return folders.index(label)
    message = f"label {label!r} is no class of the target. {near(label, names or map(str, range(classes)))}"
    raise BadInput("unknown-name", "label", message)


class Inputs:
    """The inputs of a pool, to be found by position, content or the name of a file."""

    def __init__(self, contents: Iterable[str], names: Iterable[str] | None = None) -> None:
        self.contents: dict[str, list[int]] = {}
        self.count = 0
        for position, content in enumerate(contents):
            self.contents.setdefault(str(content), []).append(position)
            self.count += 1
        self.names = None if names is None else [str(name) for name in names]

    def find(self, key: Key) -> list[int]:
        """Where it stands: every input of a content, the one input of a name; nothing if there is none."""
        if isinstance(key, int):
            return [key] if 0 <= key < self.count else []
        return self.contents.get(key) or self._named(key)

    @cached_property
    def _by_last(self) -> dict[str, list[int]]:
        """Positions by the last part of the name."""
        last: dict[str, list[int]] = {}
        for position, name in enumerate(self.names or ()):
            last.setdefault(name.rpartition("/")[2], []).append(position)
        return last

    def _named(self, text: str) -> list[int]:
        """The file that a person means: its whole name, or as much of the end of its path as tells it from the others."""
        for spelling in _spellings(text):
            parts = [part for part in spelling.split("/") if part not in ("", ".")]
            matches = {p: n for p in self._by_last.get(parts[-1], ()) if (n := self._shared(p, parts))} if parts else {}
            best = [p for p, n in matches.items() if n == max(matches.values())]
            if len(best) > 1:  # the whole name goes before the end of another's path
                best = [p for p in best if self._name(p) == "/".join(parts)] or best
            if len(best) > 1:
                several = " and ".join(map(self._name, best[:2]))
                raise BadInput("ambiguous", "file", f"{text}: several files are called so ({several}): write their folders, too.")
            if best:
                return best
        return []

    def _name(self, position: int) -> str:
        assert self.names is not None
        return self.names[position]

    def _shared(self, position: int, parts: list[str]) -> int:
        """How many parts at the end of both paths agree; 0 unless the shorter one agrees as a whole."""
        path = self._name(position).split("/")
        both = min(len(path), len(parts))
        return both if path[-both:] == parts[-both:] else 0


def _spellings(text: str) -> Iterator[str]:
    """As it is; with the slashes of other systems; what Label Studio's addresses stand for."""
    yield text
    if "\\" in text:
        yield text.replace("\\", "/")
    if "/data/" in text:
        try:
            address = urlsplit(text)
        except ValueError:
            return
        place = (parse_qs(address.query).get("d") or [unquote(address.path)])[0]
        yield place
        if uploaded := UPLOADED.fullmatch(place.rpartition("/")[2]):
            yield uploaded[1]


def placed(labels: Mapping[Key, Label], inputs: Inputs, classes: int, names: tuple[str, ...] | None) -> NDArray[np.int64]:
    """Labels by position of the pool, -1 where there is none; what is not in the pool is refused."""
    numbers = np.full(inputs.count, -1, dtype=np.int64)
    where = {key: inputs.find(key) for key in labels}
    if unknown := [key for key, positions in where.items() if not positions]:
        message = (
            f"{len(unknown)} of {len(labels)} labels are for inputs that are not in the pool (first: {unknown[0]}): is the "
            "labels file from another run?"
        )
        raise BadInput("not-found", "inputs", message)
    for key, label in labels.items():
        number = max(UNCLEAR, numbered(label, classes, names))
        for position in where[key]:
            if numbers[position] not in (-1, number):
                message = f"input {position} has two labels, {numbers[position]} and {number}: keep one of them."
                raise BadInput("conflict", "label", message)
            numbers[position] = number
    return numbers
