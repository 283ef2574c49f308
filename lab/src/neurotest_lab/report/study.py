"""Sections of a study: its checks and its tables, with charts above those that have one.

A chart of a table is a function with the decorator `drawing`, in a file of its own study; nothing else has to know of it.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

from markupsafe import Markup

from neurotest.report.charts import csv_link
from neurotest.report.section import Conclusion, Row, load, section
from neurotest.runs.store import Run

COMMANDS = ("study",)
ROWS = 150  # of a table on the page; the run holds all
LONG = 30  # rows above which a table is folded
TALL = 64  # pixels of a picture that is no small input
Drawing = Callable[[list[Row]], Markup | None]

_drawings: dict[tuple[str, str], Drawing] = {}


def drawing(study: str, *tables: str) -> Callable[[Drawing], Drawing]:
    """Function decorator: what it makes of a table's rows stands above the table; None: nothing does."""

    def add(draw: Drawing) -> Drawing:
        _drawings.update({(study, title): draw for title in tables})
        return draw

    return add


def drawn(study: str, tables: dict[str, list[Row]]) -> dict[str, Markup]:
    """The charts of a study by the titles of their tables."""
    load(*COMMANDS)
    drawings = {title: draw(tables[title]) for (name, title), draw in _drawings.items() if name == study and tables.get(title)}
    return {title: chart for title, chart in drawings.items() if chart is not None}


@section("study", title="Study", order=0, commands=COMMANDS)
def study(run: Run) -> Row:
    name, summary = run["config"]["study"], run["summary"]
    missing, rows_of = summary.get("missing", []), summary["tables"]
    numbers = f", {len(summary['checks'])} numbers checked" if summary.get("checks") else ""
    left = f"; {len(missing)} cells are not computed yet" if missing else ""
    conclusion = Conclusion(
        f"The tables of the paper rerun, ours beside theirs and random: {len(rows_of)} tables{numbers}{left}."
    )
    return {"title": f"Study: {name}", "missing": missing, "conclusion": conclusion}


@section("checks", title="In numbers", order=10, commands=COMMANDS)
def checks(run: Run) -> Row | None:
    numbers = run["summary"].get("checks")
    return {"checks": numbers} if numbers else None


@section("tables", title="", order=20, commands=COMMANDS)
def tables(run: Run) -> Row:
    rows_of, order = _ordered(run["summary"])
    charts = drawn(str(run["config"]["study"]), rows_of)
    shown = [_table(title, rows, order.get(title)) for title, rows in rows_of.items() if rows]
    for table in shown:
        if table["title"] in charts and table["pictured"]:
            table["rows"] = []  # its pictures are in the chart
    shown.sort(key=lambda table: not (table["title"] in charts or table["pictured"]))  # pictures first
    return {"tables": shown, "charts": charts}


def _ordered(summary: Row) -> tuple[dict[str, list[Row]], dict[str, list[str]]]:
    """The tables in the study's order, and the columns of each; runs of earlier versions do not say."""
    rows_of, order = summary["tables"], {}
    for entry in summary.get("order") or ():
        if isinstance(entry, list) and len(entry) == 2 and isinstance(entry[1], list) and rows_of.get(entry[0]):
            order[str(entry[0])] = [str(name) for name in entry[1]]
    return {**{title: rows_of[title] for title in order}, **rows_of}, order


# A run stores what it holds in the order of the alphabet; without the study's own order these come first, pictures last.
FIRST = (
    "what", "why", "subject", "model", "target", "which", "class", "metric", "method", "guide", "attack", "constraint", "budget",
    "layer", "lambda", "weight", "strength", "draw", "t", "true", "predicted", "value", "r", "low", "high", "p",
    "given lambda", "given constraint", "given low", "given high", "given both", "both low", "both high", "spearman", "paper",
)  # fmt: skip


MEDIA = ("png", "wav")  # columns that are looked at or listened to


def _place(name: str) -> tuple[bool, int, str]:
    place = FIRST.index(name) if name in FIRST else len(FIRST)
    return name.endswith(MEDIA), place, name.replace("before", " ")  # before comes before after


def _table(title: str, rows: list[Row], order: list[str] | None = None) -> Row:
    columns = sorted(rows[0], key=_place) if order is None else sorted(order, key=lambda name: name.endswith(MEDIA))
    return {
        "title": title, "columns": columns,
        "heads": [(_head(name), _cell(name, rows[0].get(name))["kind"]) for name in columns],
        "rows": [[_cell(name, row.get(name)) for name in columns] for row in rows[:ROWS]],
        "csv": csv_link([{name: row.get(name) for name in columns if not name.endswith(MEDIA)} for row in rows]),
        "left": max(0, len(rows) - ROWS), "long": len(rows) > LONG, "pictured": any(name.endswith(MEDIA) for name in columns),
    }  # fmt: skip


def _head(name: str) -> str:
    return name.removesuffix("png").removesuffix("wav").strip()


def _cell(name: str, value: Any) -> Row:
    if name.endswith("png") and isinstance(value, str):
        return {"picture": f"data:image/png;base64,{value}", "kind": "tall" if _height(value) >= TALL else ""}
    if name.endswith("wav") and isinstance(value, str):
        return {"picture": None, "sound": f"data:audio/wav;base64,{value}", "kind": ""}
    text = "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
    return {"picture": None, "text": text, "kind": "text" if isinstance(value, str) else ""}


def _height(picture: str) -> int:
    """What a PNG's header says; 0 of what is none."""
    try:
        return int.from_bytes(base64.b64decode(picture[:32], validate=True)[20:24])
    except ValueError:
        return 0
