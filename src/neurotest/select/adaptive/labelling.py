"""Labels into an adaptive selection, corrected and taken back; every row that was ever added stays."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from neurotest.data.labels import INVALID, UNCLEAR, Inputs, Key, numbered, read_labels
from neurotest.errors import BadInput
from neurotest.runs.rows import LabelRow
from neurotest.runs.store import Run
from neurotest.select.adaptive.stored import facts_of
from neurotest.select.exchange import class_word, classes_of, inputs_of, label_word, rounds_of

Entry = dict[str, Any]  # as JSON holds it


def add_labels(path: str | Path, file: str | Path, by: str = "", *, replace: bool = False, confirmed: bool = False) -> Entry:
    """Put a file of labels into an adaptive run: all of them or, with one sentence, none.

    replace: where the run has another label for an input, that of the file counts from now on. confirmed: also take an exported
    folder in which no image was moved.
    """
    labels = read_labels(file, confirmed=confirmed)
    with Run.open(path, write=True) as run:
        rounds, inputs = rounds_of(run), inputs_of(run)
        proposed = {p for one in rounds for p in one["positions"]}
        names, classes = tuple(classes_of(run)) or None, facts_of(run)[0].outputs.count
        stored = {row.position: _number(row) for row in run.labels()}
        left_out = {str(one["file"]) for one in run["skipped"]} if "skipped" in run else set()
        fresh: dict[int, int] = {}
        skipped = known = 0
        for key, label in labels.items():
            number = numbered(label, classes, names)
            if not (places := _places(key, inputs, proposed, left_out, Path(file), run)):
                skipped += 1
            for position in places:
                before = fresh.get(position, stored.get(position) if not replace else None)
                if before is not None and before != number:
                    words = [_word(one, [*(names or ())]) for one in (number, before)]
                    clash = f"input {position} is labelled {words[0]}, but {run.path} has {words[1]} for it"
                    raise BadInput("conflict", "label", f"{file}: {clash}: keep one, or say --replace. Nothing was added.")
                if stored.get(position) == number:
                    known += 1
                else:
                    fresh[position] = number
        replaced = sum(position in stored for position in fresh)
        invalid = {position for position, number in fresh.items() if number == INVALID}
        run.add_labels({p: None if number in (UNCLEAR, INVALID) else number for p, number in fresh.items()}, by, invalid=invalid)
        last = rounds[-1]["positions"]
        now = {row.position for row in run.labels()}
        return {
            "run": str(run.path), "added": len(fresh) - replaced, "replaced": replaced, "skipped": skipped,
            "known": known, "labels": len(now), "pending": sum(p not in now for p in last),
            "round": len(rounds),
        }  # fmt: skip


def _number(row: LabelRow) -> int:
    if row.label is None:
        return UNCLEAR if row.valid else INVALID
    return row.label


def _word(number: int, classes: list[str]) -> str:
    return {UNCLEAR: "unclear", INVALID: "invalid"}.get(number) or class_word(number, classes)


def _places(key: Key, inputs: Inputs, proposed: set[int], left_out: set[str], file: Path, run: Run) -> list[int]:
    """Where an input stands. A bare position could be of any run, so it must be one that this run proposed."""
    if places := inputs.find(key):
        if isinstance(key, str) or key in proposed:
            return places
        raise BadInput(
            "not-found",
            "position",
            f"{file}: position {key} is unknown, this run never proposed it: the file is of another run. Nothing was added.",
        )
    if isinstance(key, int):
        why = f"position {key} is unknown, the pool has {inputs.count} inputs"
    elif key in left_out:  # a damaged image may well have a label
        return []
    else:
        why = f"no input of {run.path} has this content or file name: {key}"
    raise BadInput("not-found", "inputs", f"{file}: {why}: the file is of another run. Nothing was added.")


def undo(path: str | Path, which: str | None = None, by: str = "") -> Entry:
    """Take back the labels added last, or that of one input (by file, content or position); earlier ones count again."""
    with Run.open(path, write=True) as run:
        rounds_of(run)
        rows = run.last_labels() if which is None else _of_input(run, which)
        if not rows:
            raise BadInput("empty", "labels", f"{run.path} has no label to take back{'' if which is None else f' for {which}'}.")
        run.undo_labels((row.n for row in rows), by)
        now = {row.position: row for row in run.labels()}
        about = {"run": str(run.path), "undone": len(rows), "labels": len(now)}
        return {**about, "inputs": _words(run, rows, {row.position: now.get(row.position) for row in rows})}


def _of_input(run: Run, which: str) -> list[LabelRow]:
    key: Key = int(which) if which.isdecimal() and len(which) < 10 else which
    inputs = inputs_of(run)
    if not (places := inputs.find(key) or inputs.find(which)):
        raise BadInput(
            "not-found", "input", f"{run.path} has no input {which!r}: give its position, the name of its file, or its content."
        )
    return [row for row in run.labels() if row.position in places]


def _words(run: Run, rows: list[LabelRow], now: Mapping[int, LabelRow | None]) -> list[Entry]:
    """Each input with the label that was taken back and the one that counts now, for people."""
    classes, files = classes_of(run), {row.position: row.name for row in run.inputs()}
    named = [(row, label_word(row, classes)) for row in rows]
    return [
        {
            "position": row.position,
            "file": files[row.position],
            "label": word,
            "now": None if (rest := now[row.position]) is None else label_word(rest, classes),
        }
        for row, word in named
    ]


def listed(path: str | Path, *, history: bool = False) -> list[Entry]:
    """Labels of a run with file names and class names; `history`: every row ever added, with what became of it."""
    with Run.open(path) as run:
        classes, inputs = classes_of(run), {row.position: row for row in run.inputs()}
        counting = {row.n for row in run.labels()}
        rows = run.label_history() if history else run.labels()
        undone = {row.undoes for row in run.label_history()}
        return [
            {
                **row._asdict(),
                "file": inputs[row.position].name,
                "predicted": inputs[row.position].predicted,
                "label_name": "" if row.undoes is not None else label_word(row, classes),
                "predicted_name": class_word(inputs[row.position].predicted, classes),
                "state": _state(row, counting, undone),
            }
            for row in rows
        ]


def _state(row: LabelRow, counting: set[int], undone: set[int | None]) -> str:
    if row.undoes is not None:
        return f"takes back {row.undoes}"
    return "counts" if row.n in counting else "taken back" if row.n in undone else "replaced"
