"""CSV and JSON out of a run, for spreadsheets and scripts. The database stays what counts."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from neurotest.files import SPELLED
from neurotest.runs.rows import dumps

if TYPE_CHECKING:
    from neurotest.runs.store import Run

SUMMARY, SELECTION = "run.json", "selection.csv"
COLUMNS = ("method", "rank", "position", "content", "score", "picked", "label", "predicted", "labelled", "file")


def cell(value: Any) -> Any:
    """A cell that no spreadsheet takes for a formula: text that starts like one gets an apostrophe, numbers stay numbers."""
    if isinstance(value, str) and value[:1] in tuple("=+-@\t\r\n"):
        return "'" + value
    return value


def export(run: Run) -> None:
    run.file(SUMMARY).write(json.dumps(_summary(run), indent=1, allow_nan=False) + "\n")
    if not run.methods():
        return
    with run.file(SELECTION).writing_text(SPELLED) as out:
        writer = csv.writer(out)
        writer.writerows([cell(value) for value in row] for row in _selection(run))


def _summary(run: Run) -> dict[str, Any]:
    meta = {key: run[key] for key in run.keys()}  # noqa: SIM118 - a run is no mapping
    return {
        **meta,
        "methods": [row._asdict() for row in run.methods()],
        "files": [{"position": row.position, "role": row.role, "path": row.file.name} for row in run.files()],
        "labels": [row._asdict() for row in run.labels()],
    }


def _selection(run: Run) -> Iterator[list[Any]]:
    inputs = {row.position: row for row in run.inputs()}
    stored = {row.position: row.file.name for row in run.files("picked")}
    labelled = {row.position: row.label for row in run.labels()}
    extras = sorted({key for row in inputs.values() for key in row.extra})
    yield [*COLUMNS, *(f"extra.{key}" if key in COLUMNS else key for key in extras)]
    for method in run.methods():
        for place in run.ranking(method.name):
            row = inputs[place.position]
            ranked = [method.name, place.rank, place.position, row.content, place.score, int(place.picked)]
            about = [row.label, row.predicted, labelled.get(place.position), stored.get(place.position)]
            yield [*ranked, *about, *(_scalar(row.extra.get(key)) for key in extras)]


def _scalar(value: Any) -> Any:
    return dumps(value) if isinstance(value, dict | list) else value
