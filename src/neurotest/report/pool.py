"""Charts of the pool behind a selection: how the scores are distributed, and which classes are picked more than others."""

from __future__ import annotations

from collections import Counter

import numpy as np

from neurotest.generate.outcome import class_name
from neurotest.report import charts
from neurotest.report.section import Row, section
from neurotest.report.selection import wrong_inputs
from neurotest.runs.store import Run

COMMANDS = ("select", "demo")
BINS = 30
PANELS = 4  # methods
LUMP = 0.9  # of all scores in one bar: there is nothing to see
CLASSES = 20
SCORES = "How the pool's scores are distributed, method by method{faults}. Right of the line: what was picked."
SCORES_HIDE = "whether a score means the same for two methods: each has a scale of its own, and only its order counts."
BALANCE = "Which share of the pool, and of the picks of {method}, the network takes for each class{most}."
BALANCE_HIDE = "the true classes; a class that is picked often is one the network confuses often, or one that it overuses."


@section("score-distribution", title="Scores", order=36, commands=COMMANDS, template="chart.html.j2")
def _score_distribution(run: Run) -> Row | None:
    """A histogram for each method that gives finite scores, with the lowest score that was picked."""
    wrong = wrong_inputs(run.inputs())
    rows: list[Row] = []
    limits: list[Row] = []
    for method in [method for method in run.methods() if method.name != "random"][:PANELS]:
        ranking = [row for row in run.ranking(method.name) if row.score is not None and np.isfinite(row.score)]
        picked = [float(row.score or 0.0) for row in ranking if row.picked]
        values = np.array([row.score for row in ranking], dtype=np.float64)
        if not picked or values.min() == values.max():
            continue
        edges = np.histogram_bin_edges(values, BINS)
        if np.histogram(values, edges)[0].max() > LUMP * len(values):
            continue  # such as places of the picks: no score that could be looked at
        kinds = np.array(["input" if wrong is None else "fault" if wrong[row.position] else "right" for row in ranking])
        for kind in sorted(set(kinds.tolist())):
            counts, _ = np.histogram(values[kinds == kind], edges)
            rows += [
                {"method": method.name, "from": low, "to": high, "inputs": n, "what": kind}
                for low, high, n in zip(edges[:-1].tolist(), edges[1:].tolist(), counts.tolist(), strict=True)
            ]
        limits.append({"method": method.name, "limit": min(picked)})
    if not rows:
        return None
    shows = SCORES.format(faults="" if wrong is None else ", right answers and faults apart")
    spec = _histogram(rows, limits)
    return {"charts": [charts.Chart(name="scores", spec=spec, rows=rows, shows=shows, hides=SCORES_HIDE)]}


def _histogram(rows: list[Row], limits: list[Row]) -> charts.Spec:
    kinds = [kind for kind in ("right", "fault", "input") if any(row["what"] == kind for row in rows)]
    shades = {"right": charts.COLOURS[5], "fault": charts.COLOURS[1], "input": charts.COLOURS[0]}
    colour = charts.names("what", sort=kinds, scale={"domain": kinds, "range": [shades[kind] for kind in kinds]})
    panels = []
    for limit in limits:
        own = [row for row in rows if row["method"] == limit["method"]]
        x = charts.number("from", "score", axis={"tickCount": 5}, scale={"zero": False})
        encoding = {
            "x": {**x, "bin": {"binned": True}}, "x2": {"field": "to"}, "color": colour,
            "y": charts.number("inputs", "inputs", stack=True, axis={"tickCount": 4}),
        }  # fmt: skip
        bars = {"data": {"values": own}, "mark": "bar", "encoding": encoding}
        line = {"data": {"values": [limit]}, "mark": {"type": "rule", "color": "#222222", "strokeWidth": 2}}
        line["encoding"] = {"x": charts.number("limit")}
        heading = {"text": limit["method"], "fontSize": 12, "anchor": "start"}
        panels.append({"title": heading, "width": 300, "height": 140, "layer": [bars, line]})
    return {"concat": panels, "columns": 2}


@section("class-balance", title="Classes among the picks", order=37, commands=COMMANDS, template="chart.html.j2")
def _class_balance(run: Run) -> Row | None:
    """Predicted classes of the pool and of the first method's picks, as shares."""
    inputs, methods = run.inputs(), run.methods()
    if not methods or any(row.predicted is None for row in inputs):
        return None
    predicted = {row.position: row.predicted or 0 for row in inputs}
    first = methods[0].name
    picked = Counter(predicted[row.position] for row in run.ranking(first) if row.picked)
    pool, classes = Counter(predicted.values()), run["classes"]
    most = [number for number, _ in (picked + pool).most_common(CLASSES)]
    rows = [
        {
            "class": class_name(number, classes),
            "of": what,
            "share": counts[number] / max(counts.total(), 1),
            "inputs": counts[number],
        }
        for number in sorted(most)
        for what, counts in (("the pool", pool), ("the picks", picked))
    ]
    if not picked:
        return None
    words = f", the {len(most)} most frequent of {len(pool)} classes" if len(most) < len(pool) else ""
    chart = charts.Chart(
        name="class-balance", spec=_balance(rows), shows=BALANCE.format(method=first, most=words), hides=BALANCE_HIDE
    )
    return {"charts": [chart]}


def _balance(rows: list[Row]) -> charts.Spec:
    kinds = ["the pool", "the picks"]
    encoding = {
        "y": charts.names("class"),
        "yOffset": {"field": "of", "type": "nominal", "sort": kinds},
        "x": charts.number("share", "share predicted so", axis={"format": ".0%"}),
        "color": charts.names("of", sort=kinds, scale={"domain": kinds, "range": [charts.GREY, charts.COLOURS[0]]}),
    }
    return {"width": 460, "height": {"step": 11}, "data": {"values": rows}, "mark": "bar", "encoding": encoding}
