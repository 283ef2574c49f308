"""Sections of a coverage run: what was covered, how it grew, class by class, layer by layer, and what was never reached."""

from __future__ import annotations

import re
from typing import Any

from neurotest import registry
from neurotest.jobs.stored import described
from neurotest.report import charts
from neurotest.report.section import Conclusion, Row, command, section
from neurotest.runs.store import Run

COMMANDS = ("cover",)
RISING = 0.01  # of the coverage, in the last step of a curve
NEURONS_LISTED = 40  # of a layer that are listed
LEAST_POINTS = 3  # of a curve of which something is said
CRITERIA_NAMED = 4  # criteria in the first sentence
GROWTH = (
    "How coverage grew, input by input. A curve that still rises says that more inputs would cover more; one that is flat says "
    "that more of the same will not."
)
GROWTH_HIDES = (
    "how good the tests are: high coverage need not find faults. Criteria have units of their own and are not comparable."
)
LAYERS = "How much of each layer {name} has covered."
LAYERS_HIDE = "which layers matter for the answer; those with many neurons weigh more in the total."


def _criteria(run: Run, entry: str) -> dict[str, Row]:
    """The criteria that have this entry."""
    return {name: row for name, row in run["summary"]["criteria"].items() if row.get(entry)}


@section("coverage", title="How much of the network these inputs exercise", order=0, commands=COMMANDS)
def _coverage(run: Run) -> Row:
    """Criteria that did not fit have a row with the reason."""
    subject, criteria = run["config"]["data"], _criteria(run, "canonical")
    shares = [f"{100 * row['value']:.1f} % of {name}{_trend(row)}" for name, row in criteria.items() if row.get("total")]
    covered = f" cover {', '.join(shares[:CRITERIA_NAMED])}" if shares else " were measured"
    meanings = _meanings(criteria)
    target = run["config"]["target"]
    steps = (
        (
            "Inputs that break it, led by coverage",
            command("fuzz", target, subject, "--guide", next(iter(criteria), "kmnc:100"), *described(run["config"], run.path)),
        ),
    )
    counted = next((f" {name}: {words[:1].lower()}{words[1:]}" for name, words in meanings if criteria[name].get("total")), "")
    conclusion = Conclusion(f"{run['summary']['inputs']:,} inputs{covered}.{counted}", steps=steps)
    return {
        "subject": subject,
        "criteria": criteria,
        "unfit": _criteria(run, "error"),
        "meanings": meanings,
        "conclusion": conclusion,
    }


def _meanings(criteria: dict[str, Row]) -> list[tuple[str, str]]:
    """What each criterion counts, in the words of its registration."""
    entries = registry.entries("criterion")
    kinds = {name: re.split(r"[:(]", name, maxsplit=1)[0] for name in criteria}
    rows = []
    for name, kind in kinds.items():
        if kind in entries:
            settings = dict(re.findall(r"(\w+)=([^,()]+)", str(criteria[name]["canonical"])))
            words = entries[kind].summary.split("`")  # every other one is a setting
            rows.append((name, "".join(settings.get(word, word) if i % 2 else word for i, word in enumerate(words))))
    return rows


def _trend(row: Row) -> str:
    """Whether more of the same inputs would cover more, by the last step of the curve."""
    curve = row.get("growth") or []
    if len(curve) < LEAST_POINTS or not curve[-1][1]:
        return ""
    return " (still rising)" if curve[-1][1] - curve[-2][1] > RISING * curve[-1][1] else " (flat)"


@section("coverage-growth", title="How it grew", order=10, commands=COMMANDS, template="chart.html.j2")
def _coverage_growth(run: Run) -> Row | None:
    curves = {name: row["growth"] for name, row in _criteria(run, "growth").items()}
    if not curves:
        return None
    return {"charts": [charts.Chart(name="coverage-growth", spec=_growth(curves), shows=GROWTH, hides=GROWTH_HIDES)]}


def _growth(curves: dict[str, list[list[float]]]) -> charts.Spec:
    """Value against inputs, one small chart per criterion, because their units differ."""
    points = [(name, *point) for name, curve in curves.items() for point in [[0.0, 0.0], *curve]]
    rows = [{"criterion": name, "inputs": n, "value": value} for name, n, value in points]
    x = charts.number("inputs", "inputs so far", axis={"tickCount": 3})
    line = charts.line(x, charts.number("value", axis={"tickCount": 4}), 200, 130, point={"size": 12})
    return charts.panels(rows, "criterion", line, own="xy", sort=list(curves), columns=3)


@section("coverage-classes", title="By class", order=20, commands=COMMANDS)
def _coverage_classes(run: Run) -> Row | None:
    criteria = _criteria(run, "by_class")
    classes = dict.fromkeys(name for row in criteria.values() for name in row["by_class"])
    return {"criteria": criteria, "classes": list(classes)} if classes else None


@section("coverage-layers", title="Layer by layer", order=30, commands=COMMANDS)
def _coverage_layers(run: Run) -> Row | None:
    drawn = {
        name: charts.Chart(
            name=f"layers-{number}", spec=_layer_bars(row["per_layer"]), shows=LAYERS.format(name=name), hides=LAYERS_HIDE
        )
        for number, (name, row) in enumerate(_criteria(run, "per_layer").items(), start=1)
    }
    return {"charts": drawn} if drawn else None


def _layer_bars(layers: dict[str, Any]) -> charts.Spec:
    rows = [
        {"layer": name, **{key: row.get(key) for key in ("value", "covered", "total", "dead")}} for name, row in layers.items()
    ]
    x = charts.number("value", "value")
    if all(row["total"] is not None for row in layers.values()):
        x = charts.number("value", "share covered", scale={"domain": [0, 1]})
    return charts.bars(rows, charts.names("layer"), x)


@section("never-covered", title="Never covered", order=40, commands=COMMANDS, requires=("never covered",))
def _never_covered(run: Run) -> Row | None:
    """Per layer the neurons of which nothing was covered, the first of them by number."""
    criteria, tables = run["summary"]["criteria"], {}
    for name, layers in run["never covered"].items():
        dead = {layer: row["dead"] for layer, row in criteria[name]["per_layer"].items()}
        rows = [
            {"layer": n, "count": len(ids), "shown": ids[:NEURONS_LISTED], "dead": dead.get(n, 0)} for n, ids in layers.items()
        ]
        if rows:
            tables[name] = rows
    return {"tables": tables} if tables else None
