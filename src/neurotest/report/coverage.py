"""Sections of a coverage run: what was covered, how it grew, class by class, layer by layer, and what was never reached."""

from __future__ import annotations

from typing import Any

from neurotest.report import charts
from neurotest.report.section import Conclusion, Row, section
from neurotest.runs.store import Run

COMMANDS = ("cover",)
NEURONS = 40  # of a layer that are listed
MOST = 4  # criteria in the first sentence
GROWTH = "A curve that still rises says that more inputs would cover more; one that is flat says that more of the same will not."


def _criteria(run: Run, entry: str) -> dict[str, Row]:
    """The criteria that have this entry."""
    return {name: row for name, row in run["summary"]["criteria"].items() if row.get(entry)}


@section("coverage", title="Coverage", order=0, commands=COMMANDS)
def coverage(run: Run) -> Row:
    """Criteria that did not fit have a row with the reason."""
    subject, criteria = run["config"]["data"], _criteria(run, "canonical")
    shares = [f"{100 * row['value']:.1f} % of {name}" for name, row in criteria.items() if row.get("total")]
    covered = f" cover {', '.join(shares[:MOST])}" if shares else " were measured"
    conclusion = Conclusion(f"{run['summary']['inputs']:,} inputs{covered}.")
    return {"subject": subject, "criteria": criteria, "unfit": _criteria(run, "error"), "conclusion": conclusion}


@section("coverage-growth", title="How it grew", order=10, commands=COMMANDS, template="chart.html.j2")
def coverage_growth(run: Run) -> Row | None:
    curves = {name: row["growth"] for name, row in _criteria(run, "growth").items()}
    return {"text": GROWTH, "charts": [charts.svg(growth(curves))]} if curves else None


def growth(curves: dict[str, list[list[float]]]) -> charts.Spec:
    """Value against inputs, one small chart per criterion, because their units differ."""
    points = [(name, *point) for name, curve in curves.items() for point in [[0.0, 0.0], *curve]]
    rows = [{"criterion": name, "inputs": n, "value": value} for name, n, value in points]
    x = charts.number("inputs", "inputs", axis={"tickCount": 3})
    line = charts.line(x, charts.number("value", axis={"tickCount": 4}), 200, 130, point={"size": 12})
    return charts.panels(rows, "criterion", line, own="y", sort=list(curves), columns=3)


@section("coverage-classes", title="By class", order=20, commands=COMMANDS)
def coverage_classes(run: Run) -> Row | None:
    criteria = _criteria(run, "by_class")
    classes = dict.fromkeys(name for row in criteria.values() for name in row["by_class"])
    return {"criteria": criteria, "classes": list(classes)} if classes else None


@section("coverage-layers", title="Layer by layer", order=30, commands=COMMANDS)
def coverage_layers(run: Run) -> Row | None:
    drawn = {name: charts.svg(layer_bars(row["per_layer"])) for name, row in _criteria(run, "per_layer").items()}
    return {"charts": drawn} if drawn else None


def layer_bars(layers: dict[str, Any]) -> charts.Spec:
    rows = [{"layer": name, "value": row["value"]} for name, row in layers.items()]
    x = charts.number("value", "value")
    if all(row["total"] is not None for row in layers.values()):
        x = charts.number("value", "share covered", scale={"domain": [0, 1]})
    return charts.bars(rows, charts.names("layer"), x)


@section("never-covered", title="Never covered", order=40, commands=COMMANDS, holds=("never covered",))
def never_covered(run: Run) -> Row | None:
    """Per layer the neurons of which nothing was covered, the first of them by number."""
    criteria, tables = run["summary"]["criteria"], {}
    for name, layers in run["never covered"].items():
        dead = {layer: row["dead"] for layer, row in criteria[name]["per_layer"].items()}
        rows = [{"layer": n, "count": len(ids), "shown": ids[:NEURONS], "dead": dead.get(n, 0)} for n, ids in layers.items()]
        if rows:
            tables[name] = rows
    return {"tables": tables} if tables else None
