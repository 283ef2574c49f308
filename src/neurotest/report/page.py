"""From a run to its page: tables, curves and pictures, every string escaped."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import numpy as np

from neurotest.errors import BadInput
from neurotest.files import write_text
from neurotest.report import charts, coverage, describe, evaluation, fuzz, study, swarm
from neurotest.runs import codec
from neurotest.runs.rows import InputRow
from neurotest.runs.store import Run

SHOWN = 12  # pictures per method
PAGES = {
    "cover": coverage.render, "describe": describe.render, "evaluate": evaluation.render, "fuzz": fuzz.render,
    "merge": fuzz.render, "study": study.render, "swarm": swarm.render,
}  # fmt: skip


def write_report(run_path: Path | str, out: Path | str | None = None) -> Path:
    """Write RUN/report.html (or `out`) for a run of a command that has a page."""
    with Run.open(run_path) as run:
        if run["command"] not in ("select", "demo", *PAGES):
            raise BadInput(f"{run.path} is a run of {run['command']!r}: there is no report for that.")
        if run["state"] != "done":
            raise BadInput(f"{run.path} is not finished: there is nothing to report yet.")
        page = PAGES.get(run["command"], _render)(run)
        place = Path(out) if out is not None else run.path / "report.html"
    write_text(place, page)
    return place


def _render(run: Run) -> str:
    from jinja2 import Environment, PackageLoader

    inputs = {row.position: row for row in run.inputs()}
    classes = run["classes"]
    labelled = all(row.label is not None for row in inputs.values())
    rankings = {method.name: run.ranking(method.name) for method in run.methods()}
    environment = Environment(loader=PackageLoader("neurotest.report"), autoescape=True)
    summary = run["summary"]["methods"]
    picked = next(iter(run.methods())).picked
    return environment.get_template("selection.html.j2").render(
        config=run["config"],
        created=run["created"],
        version=run["version"],
        pool=len(inputs),
        picked=picked,
        labelled=labelled,
        faults=sum(row.label != row.predicted for row in inputs.values()) if labelled else None,
        methods=[{"name": name, **summary[name]} for name in rankings if "fdr" in summary[name]],
        estimates=[{"name": name, **summary[name]} for name in rankings if "accuracy" in summary[name]],
        duplicates=run["training duplicates"],
        skipped=run["skipped"],
        curve=_curve(rankings, inputs, picked) if labelled else "",
        galleries={name: _gallery(run, rows[:SHOWN], inputs, classes) for name, rows in rankings.items()},
    )


def _curve(rankings: dict[str, Any], inputs: dict[int, InputRow], picked: int) -> str:
    wrong = {position: row.label != row.predicted for position, row in inputs.items()}
    curves = {name: np.cumsum([wrong[row.position] for row in rows]) for name, rows in rankings.items()}
    return charts.svg(charts.found_curves(curves, sum(wrong.values()), picked))


def _gallery(run: Run, rows: list[Any], inputs: dict[int, InputRow], classes: list[str]) -> list[dict[str, Any]]:
    """The first picks as pictures, each beside its original where that is known."""
    pictures = {(file.position, file.role): codec.picture(file.path) for file in run.files()}
    shown = []
    for row in rows:
        here, original = pictures.get((row.position, "picked")), pictures.get((row.position, "original"))
        if here is None:
            continue
        about = inputs[row.position]
        shown.append(
            {
                "rank": row.rank,
                "position": row.position,
                "score": row.score,
                "picture": _embed(here),
                "original": _embed(original) if original else None,
                "predicted": _name(about.predicted, classes),
                "label": _name(about.label, classes),
                "wrong": about.label is not None and about.label != about.predicted,
                "change": _change(about.extra.get("draw")),
            }
        )
    return shown


def _name(number: int | None, classes: list[str]) -> str | None:
    if number is None:
        return None
    return classes[number] if 0 <= number < len(classes) else str(number)


def _change(draw: Any) -> str:
    if not isinstance(draw, dict):
        return ""
    values = [f"{v:.2f}".rstrip("0").rstrip(".") for v in draw.get("parameters", []) if v]
    return f"{draw.get('operator', '')} {', '.join(values)}"


def _embed(path: Path) -> str:
    return "data:image/png;base64," + base64.b64encode(path.read_bytes()).decode()
