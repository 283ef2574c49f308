"""Charts of the DeepSensor study: what fails by method and by ball, excitable neurons, fitness per iteration, coverage gained."""

from __future__ import annotations

from typing import Any

from markupsafe import Markup

from neurotest.report import charts
from neurotest.report.section import Row
from neurotest_lab.report.study import drawing

ORDER = ["excitability", "tiles", "sensitivity", "margin", "pgd", "noise"]
LIMITS = {"x": {"field": "low", "type": "quantitative"}, "x2": {"field": "high"}}
COLOURS = {"domain": ORDER, "range": [*charts.COLOURS[:5], charts.GREY]}


@drawing("deepsensor", "what fails in Linf 0.1", "what fails on ResNet-20 in Linf 2/255")
def failing(rows: list[Row]) -> Markup:
    y, colour = charts.names("method", sort=ORDER), charts.names("method", scale=COLOURS, legend=None)
    x = charts.number("rate", "share of seeds that fail, 95 % interval")
    bars = {"mark": "bar", "encoding": {"y": y, "x": x, "color": colour}}
    ranges = {"mark": {"type": "rule", "color": "#222222"}, "encoding": {"y": y, **LIMITS}}
    return charts.svg({"width": 460, "data": {"values": rows}, "layer": [bars, ranges]})


@drawing("deepsensor", "balls")
def balls(rows: list[Row]) -> Markup:
    shares = [{"ball": row["ball"], "method": row["method"], "value": row["failed"] / row["seeds"]} for row in rows]
    return _grouped(shares, "ball", "method", "share of seeds that fail", COLOURS, None, 460, 220)


def _grouped(rows: list[Row], x: str, by: str, title: str, scale: charts.Spec, sort: Any, width: int, height: int) -> Markup:
    """Vertical bars of `value`, side by side in groups."""
    encoding = {
        "x": charts.names(x, sort=sort, axis={"labelAngle": 0}),
        "xOffset": {"field": by, "type": "nominal", "sort": scale["domain"]},
        "y": charts.number("value", title),
        "color": {"field": by, "type": "nominal", "title": None, "scale": scale},
    }
    return charts.svg({"width": width, "height": height, "data": {"values": rows}, "mark": "bar", "encoding": encoding})


@drawing("deepsensor", "figure 1: excitable neurons")
def excitable(rows: list[Row]) -> Markup:
    rows = [row for row in rows if row.get("values", "shapley") == "shapley"]
    y = {"field": "kind", "type": "nominal", "title": None}
    bars = {"mark": {"type": "bar", "color": charts.COLOURS[0]}, "encoding": {"y": y, "x": charts.number("mean")}}
    ranges = {"mark": "rule", "encoding": {"y": y, **LIMITS}}
    return charts.svg(charts.panels(rows, "measure", {"width": 190, "layer": [bars, ranges]}, own="x", sort="ascending"))


@drawing("deepsensor", "figure 3: fitness per iteration")
def fitness(rows: list[Row]) -> Markup:
    x = charts.number("iteration", "iteration", axis={"tickMinStep": 1})
    line = charts.line(x, charts.number("fitness", "share of neurons"), 260, 160, point=True)
    ends = {"x": x, "y": {"field": "low", "type": "quantitative"}, "y2": {"field": "high"}}
    layers = [{"mark": {"type": "rule", "color": charts.GREY}, "encoding": ends}, {k: line[k] for k in ("mark", "encoding")}]
    return charts.svg(charts.panels(rows, "swarm", {"width": 260, "height": 160, "layer": layers}, own="y", sort="ascending"))


@drawing("deepsensor", "figure 3: coverage gained, points")
def coverage_gained(rows: list[Row]) -> Markup:
    """A point with its interval per suite, one panel per criterion; networks by colour."""
    names = [name for name in rows[0] if f"{name} low" in rows[0]]
    points = [
        {"criterion": name, "suite": row["suite"], "network": row["subject"], "value": row[name], "low": row[f"{name} low"],
         "high": row[f"{name} high"]}
        for row in rows
        for name in names
    ]  # fmt: skip
    return _ranges(points, "suite", "network", "criterion", "points gained over the seeds", 3)


@drawing("deepsensor", "III, 4: polluted", "IV, 5: incompletely trained")
def trained_wrongly(rows: list[Row]) -> Markup:
    points = [{**row, "value": row["rate"], "training": row["network"].partition("+")[2] or "well trained"} for row in rows]
    for point in points:
        point["subject"] = str(point["network"]).partition("+")[0]
    return _ranges(points, "method", "training", "subject", "share of test inputs that count", 2)


@drawing("deepsensor", "figures 5, 10: lambda and epsilon")
def parameters(rows: list[Row]) -> Markup:
    points = [
        {**row, "value": row["failed"] / row["seeds"], "at": str(row["value"]), "panel": f"{row['swarm']}, {row['parameter']}"}
        for row in rows
    ]
    return _ranges(points, "at", "network", "panel", "share of seeds that fail", 2)


def _ranges(rows: list[Row], y: str, colour: str, panel: str, title: str, columns: int) -> Markup:
    """A point with its interval per row."""
    name = charts.names(y, axis={"labelLimit": 200})
    place = {"y": name, "yOffset": {"field": colour, "type": "nominal"}}
    paint = charts.names(colour, scale=charts.colours(dict.fromkeys(str(row[colour]) for row in rows)))
    x = charts.number("value", title)
    marks = [
        {"mark": {"type": "rule", "size": 2}, "encoding": {**place, **LIMITS, "color": paint}},
        {"mark": {"type": "point", "filled": True, "size": 45}, "encoding": {**place, "x": x, "color": paint}},
    ]
    chart = {"width": 250, "height": {"step": 9}, "layer": marks}
    return charts.svg(charts.panels(rows, panel, chart, own="xy", columns=columns), framed=True)


@drawing("deepsensor", "figures 7, 8: t-SNE")
def among(rows: list[Row]) -> Markup:
    """Benign inputs of two classes and what was made of the first one's, in the last hidden layer."""
    x, y = (charts.number(field, axis=None) for field in ("x", "y"))
    colour = charts.names("kind", scale=charts.colours(dict.fromkeys(str(row["kind"]) for row in rows)))
    mark = {"type": "point", "filled": True, "size": 30, "opacity": 0.75}
    plane = {"width": 340, "height": 300, "mark": mark, "encoding": {"x": x, "y": y, "color": colour}}
    return charts.svg(charts.panels(rows, "network", plane, own="xy", columns=2), framed=True)
