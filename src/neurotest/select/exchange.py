"""Selections out to people and their tools, labels back in: CSV, folders of pictures, Label Studio tasks."""

from __future__ import annotations

import base64
import csv
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.sax.saxutils import quoteattr

import numpy as np
from numpy.typing import NDArray

from neurotest import files
from neurotest.data.source import Source
from neurotest.errors import BadInput, near
from neurotest.runs import codec
from neurotest.runs.export import cell
from neurotest.runs.folder import RunFile
from neurotest.runs.store import Run
from neurotest.target import Target

FORMATS = ("csv", "folder", "label-studio")
COLUMNS = ("rank", "position", "content", "score", "predicted", "label", "file")
LARGEST = 1 << 28  # bytes of a labels file, and of a picture
IN_NAME = re.compile(r"(?:\d+-)?(\d+)-([0-9a-f]{16})")  # rank-position-content, as the folder export names its files
Key = int | str  # a position in the pool, or a content id
Label = int | str  # a class number, or a name


@dataclass(frozen=True)
class Pick:
    """One picked input of a run, as it is handed out."""

    rank: int
    position: int
    content: str
    score: float | None
    predicted: str
    label: str
    picture: RunFile | None


def picks(run: Run, method: str | None = None) -> list[Pick]:
    """The picks of one ranking (default: the first), best first; with the label where there is one."""
    names = [row.name for row in run.methods()]
    if not names:
        raise BadInput(f"{run.path} has no ranking: export takes a run of `neurotest select`.")
    classes = classes_of(run)
    inputs = {row.position: row for row in run.inputs()}
    stored = {row.position: codec.picture(row.file) for row in run.files("picked")}
    labels = {row.position: row.label for row in run.labels()}
    chosen = []
    for row in run.ranking(method or names[0]):
        if row.picked:
            about = inputs[row.position]
            guess, label = (_class(number, classes) for number in (about.predicted, labels.get(row.position)))
            chosen.append(Pick(row.rank, row.position, about.content, row.score, guess, label, stored.get(row.position)))
    return chosen


def classes_of(run: Run) -> list[str]:
    return [str(name) for name in run["classes"]] if "classes" in run else []


def _class(number: int | None, classes: list[str]) -> str:
    if number is None:
        return ""
    return str(classes[number]) if 0 <= number < len(classes) else str(number)


def export(run_path: str | Path, form: str, out: str | Path, *, method: str | None = None) -> dict[str, Any]:
    """Write the picks of a run; gives what was written and how many were left out because the run stores no picture of them."""
    if form not in FORMATS:
        raise BadInput(f"--format {form}: expected {', '.join(FORMATS[:-1])} or {FORMATS[-1]}.")
    out = Path(out)
    if out.exists() and (form != "folder" or not out.is_dir() or any(out.iterdir())):
        raise BadInput(f"--out {out}: it is there already; choose another place.")
    with Run.open(run_path) as run:
        chosen = picks(run, method)
        classes = classes_of(run)
    shown = [pick for pick in chosen if pick.picture is not None]
    if form == "csv":
        _write_csv(chosen, out)
        shown = chosen
    elif form == "folder":
        _write_folder(shown, out)
    else:
        _write_tasks(shown, classes, out)
    return {"format": form, "out": str(out), "exported": len(shown), "without_picture": len(chosen) - len(shown)}


def _write_csv(chosen: list[Pick], out: Path) -> None:
    with files.whole(out) as part, open(part, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for p in chosen:
            row = (p.rank, p.position, p.content, p.score, p.predicted, p.label, "" if p.picture is None else str(p.picture))
            writer.writerow([cell(value) for value in row])


def _write_folder(shown: list[Pick], out: Path) -> None:
    """One folder per class the network says; moving a file to another folder is a label."""
    with files.whole_folder(out) as part:
        for pick in shown:
            assert pick.picture is not None
            place = part / _safe(pick.label or pick.predicted) / f"{pick.rank:05d}-{pick.position}-{_safe(pick.content)}.png"
            place.parent.mkdir(exist_ok=True)
            place.write_bytes(pick.picture.read(LARGEST))


def _safe(name: str) -> str:
    """A class name as one folder: no separators, nothing that means another place."""
    return re.sub(r"[^\w .+-]", "_", name).strip(". ") or "_"


def _write_tasks(shown: list[Pick], classes: list[str], out: Path) -> None:
    """Label Studio tasks with the pictures inside, and beside them the labelling configuration they fit."""
    names = classes or sorted({p.predicted for p in shown})
    choices = "".join(f"    <Choice value={quoteattr(name)}/>\n" for name in names)
    files.write_text(
        out.with_suffix(".xml"),
        '<View>\n  <Image name="image" value="$image"/>\n  <Choices name="label" toName="image" choice="single">\n'
        f"{choices}  </Choices>\n</View>\n",
    )
    files.write_json(out, [_task(pick) for pick in shown])  # last: a tasks file that is there is complete


def _task(pick: Pick) -> dict[str, Any]:
    assert pick.picture is not None
    picture = base64.b64encode(pick.picture.read(LARGEST)).decode()
    data = {"image": f"data:image/png;base64,{picture}", "position": pick.position, "content": pick.content, "rank": pick.rank}
    guess = {"from_name": "label", "to_name": "image", "type": "choices", "value": {"choices": [pick.predicted]}}
    prediction: dict[str, Any] = {"model_version": "neurotest", "result": [guess]}
    if pick.score is not None:
        prediction["score"] = pick.score
    return {"data": data, "predictions": [prediction]}


# -- labels back in


def read_labels(path: str | Path) -> dict[Key, Label]:
    """Labels by content id, or by position where the file has none: CSV, Label Studio JSON, or a folder that was exported.

    A row without a label is no label. Two labels for the same input that differ are refused, because one of them is wrong.
    """
    path = Path(path)
    if path.is_dir():
        rows = _folder_rows(path)
    else:
        text = _text(path)
        rows = _task_rows(text, path) if text.lstrip()[:1] in ("[", "{") else _csv_rows(text, path)
    labels: dict[Key, Label] = {}
    seen: dict[Key, str] = {}
    for where, key, label in rows:
        if key in labels and labels[key] != label:
            raise BadInput(f"{path}: {where} labels input {key} as {label!r}, but {seen[key]} says {labels[key]!r}: keep one.")
        labels[key], seen[key] = label, where
    if not labels:
        raise BadInput(f"{path} holds no label: fill in the column `label` (or annotate the tasks) first.")
    return labels


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > LARGEST:
            raise BadInput(f"{path} has {path.stat().st_size / 1e6:.0f} MB: no labels file is that large.")
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise BadInput(f"cannot read the labels file {path}: {error.strerror or error}.") from None
    except UnicodeDecodeError:
        raise BadInput(f"{path} is no text: labels are a CSV file with the columns position or content, and label.") from None


def _csv_rows(text: str, path: Path) -> Iterator[tuple[str, Key, Label]]:
    first = text.split("\n", 1)[0]
    reader = csv.DictReader(text.splitlines(), delimiter=";" if ";" in first and "," not in first else ",")
    columns = [name.strip().lower() for name in reader.fieldnames or ()]
    reader.fieldnames = columns
    column = next((name for name in ("label", "labelled") if name in columns), None)
    if column is None or not {"position", "content"} & set(columns):
        raise BadInput(f"{path} has the columns {', '.join(columns) or 'none'}: expected label and position or content.")
    for row in reader:
        label = _label(row.get(column))
        if label is not None:
            where = f"line {reader.line_num}"
            yield where, _key(row.get("content"), row.get("position"), f"{path}, {where}"), label


def _key(content: Any, position: Any, where: str) -> Key:
    """The content where there is one: it holds in any order of the pool."""
    if content not in (None, ""):
        return str(content).strip().lower()
    try:
        number = int(str(position).strip())
        if number < 0:
            raise ValueError
    except ValueError:
        raise BadInput(f"{where}: position {position!r} is no number of an input (0 is the first).") from None
    return number


def _label(text: Any) -> Label | None:
    """A number as a number; a name as it is, without the apostrophe that keeps spreadsheets from taking it for a formula."""
    if text is None or str(text).strip() == "":
        return None
    word = str(text).strip()
    if word[0] == "'" and len(word) > 1 and word[1] in "=+-@":
        word = word[1:]
    return int(word) if re.fullmatch(r"\d{1,9}", word) else word


def _task_rows(text: str, path: Path) -> Iterator[tuple[str, Key, Label]]:
    """Tasks as Label Studio exports them (JSON), or its short form (JSON-MIN)."""
    try:
        tasks = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{path} is no JSON that can be read: {error}.") from None
    for number, task in enumerate(tasks if isinstance(tasks, list) else [tasks], start=1):
        if not isinstance(task, dict):
            raise BadInput(f"{path}: task {number} is no object: expected what Label Studio exports as JSON.")
        data = task.get("data") if isinstance(task.get("data"), dict) else task
        assert isinstance(data, dict)
        for label in _choices(task):
            if not {"content", "position"} & set(data):
                raise BadInput(f"{path}: task {number} has neither content nor position: it is no task that neurotest exported.")
            yield f"task {number}", _key(data.get("content"), data.get("position"), f"{path}, task {number}"), label


def _choices(task: dict[str, Any]) -> Iterator[Label]:
    """What people chose; annotations that were cancelled are none."""
    chosen: list[Any] = []
    for annotation in task.get("annotations") or task.get("completions") or ():
        if isinstance(annotation, dict) and not annotation.get("was_cancelled"):
            for result in annotation.get("result") or ():
                value = result.get("value") if isinstance(result, dict) else None
                chosen += value.get("choices") or () if isinstance(value, dict) else ()
    if "annotations" not in task and isinstance(task.get("label"), (str, int)):
        chosen.append(task["label"])
    for one in chosen:
        if (label := _label(one)) is not None:
            yield label


def _folder_rows(path: Path) -> Iterator[tuple[str, Key, Label]]:
    for file in sorted(path.glob("*/*")):
        match = IN_NAME.fullmatch(file.stem)
        if match and file.is_file():
            label = _label(file.parent.name)
            assert label is not None
            yield str(file.relative_to(path)), match[2], label


def numbered(label: Label, classes: int, names: tuple[str, ...] | None) -> int:
    """The class number of a label: a name of the target's classes, or the number itself."""
    if isinstance(label, str) and names and label in names:
        return names.index(label)
    if isinstance(label, int):
        if names and str(label) in names:  # digits: the names are numbers too
            return names.index(str(label))
        if label < classes:
            return label
        raise BadInput(f"label {label}: the target has {classes} classes, 0 to {classes - 1}.")
    raise BadInput(f"label {label!r} is no class of the target. {near(str(label), names or map(str, range(classes)))}")


def placed(labels: Mapping[Key, Label], ids: NDArray[np.str_], classes: int, names: tuple[str, ...] | None) -> NDArray[np.int64]:
    """Labels by position of the pool, -1 where there is none; what is not in the pool is refused."""
    numbers = np.full(len(ids), -1, dtype=np.int64)
    where: dict[str, list[int]] = {}
    for position, content in enumerate(ids.tolist()):
        where.setdefault(content, []).append(position)
    unknown = [key for key in labels if (key not in where if isinstance(key, str) else not 0 <= key < len(ids))]
    if unknown:
        raise BadInput(
            f"{len(unknown)} of {len(labels)} labels are for inputs that are not in the pool (first: {unknown[0]}): is the "
            "labels file from another run?"
        )
    for key, label in labels.items():
        number = numbered(label, classes, names)
        for position in where[key] if isinstance(key, str) else [key]:
            if numbers[position] not in (-1, number):
                raise BadInput(f"input {position} has two labels, {numbers[position]} and {number}: keep one of them.")
            numbers[position] = number
    return numbers


def labels_of(labels: Any, source: Source, target: Target, classes: int) -> NDArray[np.int64] | None:
    """A user's labels as one class number per candidate, -1 where there is none; None without labels."""
    if labels is None:
        return None
    labels_by_key: Mapping[Key, Label] = labels if isinstance(labels, Mapping) else read_labels(labels)
    return placed(labels_by_key, source.ids(), classes, target.classes or source.classes)
