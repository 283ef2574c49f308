"""Selections out to people and their tools: CSV, folders of images, Label Studio tasks. `data.labels` reads them back."""

from __future__ import annotations

import base64
import csv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.sax.saxutils import quoteattr

import numpy as np
from numpy.typing import NDArray

from neurotest import files
from neurotest.data.labels import (
    EXPORTED,
    INVALID_WORDS,
    LARGEST_TABLE,
    UNCLEAR_WORDS,
    Inputs,
    Key,
    Label,
    as_folder,
    placed,
    read_labels,
)
from neurotest.data.source import Source
from neurotest.errors import BadInput
from neurotest.runs import codec
from neurotest.runs.export import cell
from neurotest.runs.folder import RunFile, declare
from neurotest.runs.rows import InputRow, LabelRow
from neurotest.runs.store import Run
from neurotest.select.quantities import OFF, RIGHT, kept
from neurotest.target import Target
from neurotest.target.outputs import Bins

Entry = dict[str, Any]  # as JSON holds it
FACTS = "adaptive.npz"  # the scan
declare(r"adaptive\.npz")
# The first round, in runs of earlier versions all there were; later ones are rows (`run.add_round`).
ROUNDS = "adaptive rounds"
FORMATS = ("csv", "folder", "label-studio")
COLUMNS = ("rank", "round", "position", "file", "content", "score", "predicted", "label", "picture")
FOLDERS = 50  # classes up to which the folder export makes an empty folder for each
STEM = 60  # characters of a file's name that an exported image keeps


def rounds_of(run: Run) -> list[Entry]:
    """The proposals there were, the newest last."""
    if ROUNDS not in run:
        raise BadInput(
            "wrong-run",
            "",
            f"{run.path} is not an adaptive selection that can be resumed: start one with `neurotest select TARGET POOL "
            "--method adaptive --out RUN` on a pool without labels.",
        )
    first, later = run[ROUNDS], run.rounds()
    rounds = [*first, *later] if isinstance(first, list) else None
    needed = {"ranking", "positions", "said"}
    if not (rounds and all(isinstance(r, dict) and needed <= set(r) for r in rounds)):
        raise BadInput("damaged", "rounds", f"{run.path}: its rounds cannot be read; the run is damaged.")
    return rounds


@dataclass(frozen=True)
class _Pick:
    """One picked input of a run, as it is handed out; `file` is its name in the pool, where it has one."""

    rank: int
    position: int
    content: str
    score: float | None
    predicted: str
    label: str
    image: RunFile | None
    file: str = ""
    round: int | None = None
    quantity: bool = False  # label and prediction are numbers in words

    def row(self, image: str) -> list[Any]:
        """Its cells, as COLUMNS names them."""
        words = [_number(word) if self.quantity else word for word in (self.predicted, self.label)]
        about = (self.rank, "" if self.round is None else self.round, self.position, self.file, self.content, self.score)
        return [cell(value) for value in (*about, *words, image)]


def _number(word: str) -> float | str:
    """A negative number is none that a spreadsheet takes for a formula; right, off and unclear stay words."""
    try:
        return float(word)
    except ValueError:
        return word


def _picks(run: Run, method: str | None = None, *, every: bool = False) -> list[_Pick]:
    """What there is to label, best first, with the label where there is one.

    Of an adaptive selection the inputs of its newest round that have no label yet, or those of `every` round. Of others, or if a
    method is named, the picks of one ranking (default: the first).
    """
    names = [row.name for row in run.methods()]
    if not names:
        raise BadInput("wrong-run", "ranking", f"{run.path} has no ranking: export takes a run of `neurotest select`.")
    labels = {row.position: row for row in run.labels()}
    if method is not None or ROUNDS not in run:
        batches: list[tuple[str, int | None]] = [(method or names[0], None)]
    else:
        rounds = [(str(one["ranking"]), number) for number, one in enumerate(rounds_of(run), start=1)]
        batches = [*rounds] if every else [*rounds[-1:]]
    classes, inputs = classes_of(run), {row.position: row for row in run.inputs()}
    quantity = kept(run)
    answers = None if quantity is None else quantity.answers
    stored = {row.position: codec.picture(row.file) for row in run.files("picked")}
    chosen: dict[int, _Pick] = {}
    for name, number in batches:
        for row in run.ranking(name):
            if not row.picked and (quantity is None or row.position not in labels):
                continue
            about, image = inputs[row.position], stored.get(row.position)
            words = _words(about, labels.get(row.position), classes, answers)
            chosen[row.position] = _Pick(
                row.rank, row.position, about.content, row.score, *words, image, about.name or "", number, answers is not None
            )
    if method is None and ROUNDS in run and not every:
        pending = [pick for pick in chosen.values() if pick.position not in labels]
        if not pending:
            raise BadInput(
                "empty",
                "labels",
                f"{run.path}: all {len(chosen)} inputs of round {batches[-1][1]} have a label: `neurotest select --resume "
                f"{run.path}` proposes the next; --all exports every round with its labels.",
            )
        return pending
    return [*chosen.values()]


def _words(about: InputRow, label: LabelRow | None, classes: list[str], answers: NDArray[np.float64] | None) -> tuple[str, str]:
    """What the network predicts, and the label, if there is one."""
    if answers is None:
        return class_word(about.predicted, classes), "" if label is None else label_word(label, classes)
    return f"{answers[about.position]:.6g}", "" if label is None else _quantity_word(label, about.predicted)


def classes_of(run: Run) -> list[str]:
    return [str(name) for name in run["classes"]] if "classes" in run else []


def class_word(number: int | None, classes: list[str]) -> str:
    if number is None:
        return ""
    return str(classes[number]) if 0 <= number < len(classes) else str(number)


def label_word(row: LabelRow, classes: list[str]) -> str:
    """A person's label in words, as `data.labels` reads them."""
    if row.label is None:
        return UNCLEAR_WORDS[0] if row.valid else INVALID_WORDS[0]
    if row.value is not None:
        return repr(row.value)
    return class_word(row.label, classes)


def _quantity_word(row: LabelRow, predicted: int | None) -> str:
    """The same of a quantity: a number, or whether the network's answer is right."""
    if row.label is None or row.value is not None:
        return label_word(row, [])
    return RIGHT if row.label == predicted else OFF


def inputs_of(run: Run) -> Inputs:
    """The inputs of a run, to be found by content or by the name of their file."""
    rows = run.inputs()
    names = [row.name for row in rows]
    return Inputs((row.content for row in rows), None if None in names else [str(name) for name in names])


def export(run_path: str | Path, form: str, out: str | Path, *, method: str | None = None, every: bool = False) -> dict[str, Any]:
    """Write what there is to label; gives what was written and how many were left out because the run stores no image."""
    if form not in FORMATS:
        raise BadInput("out-of-range", "format", f"--format {form}: expected {', '.join(FORMATS[:-1])} or {FORMATS[-1]}.")
    out = Path(out)
    if out.exists() and (form != "folder" or not out.is_dir() or any(out.iterdir())):
        raise BadInput("exists", "out", f"--out {out}: it is there already; choose another place.")
    with Run.open(run_path) as run:
        chosen = _picks(run, method, every=every)
        classes = classes_of(run)
        numbers = range(max((row.predicted or 0 for row in run.inputs()), default=0) + 1)  # classes without names
    shown = [pick for pick in chosen if pick.image is not None]
    if form == "csv":
        _write_csv(chosen, out)
        shown = chosen
    elif form == "folder":
        _write_folder(shown, classes, out)
    else:
        _write_tasks(shown, classes or [str(number) for number in numbers], out)
    rounds = sorted({pick.round for pick in chosen if pick.round is not None})
    return {
        "format": form, "out": str(out), "exported": len(shown), "without_picture": len(chosen) - len(shown), "rounds": rounds,
    }  # fmt: skip


def _write_csv(chosen: list[_Pick], out: Path) -> None:
    with files.atomic_write(out) as part, open(part, "w", newline="", encoding="utf-8", errors="backslashreplace") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        writer.writerows(pick.row("" if pick.image is None else str(pick.image)) for pick in chosen)


def _write_folder(shown: list[_Pick], classes: list[str], out: Path) -> None:
    """One folder per class, each image in that of what the network says; moving it to another folder is a label.

    A table says where each was put, so that a folder in which nobody moved anything is known for one.
    """
    with files.atomic_folder(out) as part:
        for name in classes if len(classes) <= FOLDERS else ():
            (part / as_folder(name)).mkdir(exist_ok=True)
        with open(part / EXPORTED, "w", newline="", encoding="utf-8", errors="backslashreplace") as file:
            writer = csv.writer(file)
            writer.writerow(COLUMNS)
            for pick in shown:
                assert pick.image is not None
                place = Path(as_folder(pick.label or pick.predicted), f"{_stem(pick)}.png")
                (part / place.parent).mkdir(exist_ok=True)
                (part / place).write_bytes(pick.image.read(LARGEST_TABLE))
                writer.writerow(pick.row(place.as_posix()))


def _stem(pick: _Pick) -> str:
    """What the reader needs, then the name the image has in the pool, for people."""
    own = Path(pick.file).stem if pick.file else ""
    numbers = f"{pick.rank:05d}-{pick.position}-{as_folder(pick.content)}"
    return f"{numbers}-{as_folder(own)[:STEM]}" if own else numbers


def _write_tasks(shown: list[_Pick], names: list[str], out: Path) -> None:
    """Label Studio tasks with the images inside, and beside them the labelling configuration they fit."""
    choices = "".join(f"    <Choice value={quoteattr(name)}/>\n" for name in names)
    files.write_text(
        out.with_suffix(".xml"),
        '<View>\n  <Image name="image" value="$image"/>\n  <Choices name="label" toName="image" choice="single">\n'
        f"{choices}  </Choices>\n</View>\n",
    )
    files.write_json(out, [_task(pick) for pick in shown])  # last: a tasks file that is there is complete


def _task(pick: _Pick) -> dict[str, Any]:
    assert pick.image is not None
    image = base64.b64encode(pick.image.read(LARGEST_TABLE)).decode()
    data = {"image": f"data:image/png;base64,{image}", "position": pick.position, "content": pick.content, "rank": pick.rank}
    guess = {"from_name": "label", "to_name": "image", "type": "choices", "value": {"choices": [pick.predicted]}}
    prediction: dict[str, Any] = {"model_version": "neurotest", "result": [guess]}
    if pick.score is not None:
        prediction["score"] = pick.score
    return {"data": data | ({"file": pick.file} if pick.file else {}), "predictions": [prediction]}


def _bin(label: Label, bins: Bins) -> Label:
    """A quantity as the number of its bin; of marks without a number (right, off) nothing is known; other words as they are."""
    if label in (RIGHT, OFF):
        return UNCLEAR_WORDS[0]
    try:
        return int(bins.of(np.array([float(label)]))[0])
    except ValueError:
        return label


def labels_of(labels: Any, source: Source, target: Target, classes: int) -> NDArray[np.int64] | None:
    """A user's labels as one class number per candidate, -1 where there is none; None without labels."""
    if labels is None:
        return None
    labels_by_key: Mapping[Key, Label] = labels if isinstance(labels, Mapping) else read_labels(labels)
    if target.bins is not None:
        labels_by_key = {key: _bin(label, target.bins) for key, label in labels_by_key.items()}
    return placed(labels_by_key, Inputs(source.ids().tolist(), source.names), classes, target.classes or source.classes)
