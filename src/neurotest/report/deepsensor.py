"""Charts of the DeepSensor study: what fails by method and by ball, excitable neurons, fitness per iteration, coverage gained."""

from __future__ import annotations

from typing import Any

from markupsafe import Markup

from neurotest.report import charts
from neurotest.report.section import Row
from neurotest.report.study import drawing

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
    return charts.svg(charts.panels(rows, "swarm", line, own="y", sort="ascending"))


@drawing("deepsensor", "figures 3, 6: coverage gained, points")
def coverage_gained(rows: list[Row]) -> Markup:
    values = [(row["suite"], *pair) for row in rows for pair in row.items() if pair[0] not in ("suite", "network")]
    gains = [{"suite": suite, "criterion": name, "value": value} for suite, name, value in values]
    scale = charts.colours(row["suite"] for row in rows)
    return _grouped(gains, "criterion", "suite", "points gained over the seeds", scale, "ascending", 520, 200)
