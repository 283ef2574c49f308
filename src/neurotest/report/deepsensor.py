"""Charts of the DeepSensor study: what fails by method and by ball, excitable neurons, fitness per iteration, coverage gained."""

from __future__ import annotations

from typing import Any

from neurotest.report import charts

Row = dict[str, Any]
FRAME: Row = {
    "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
    "config": {"font": "sans-serif", "view": {"stroke": None}},
}
ORDER = ["excitability", "tiles", "sensitivity", "margin", "pgd", "noise"]
COLOURS = {"domain": ORDER, "range": [*charts.COLOURS[:5], charts.GREY]}


def deepsensor_charts(tables: dict[str, list[Row]]) -> dict[str, str]:
    """SVG by the title of the table it stands above."""
    makers = {
        "what fails in Linf 0.1": _reach,
        "what fails on ResNet-20 in Linf 2/255": _reach,
        "balls": _balls,
        "figure 1: excitable neurons": _excited,
        "figure 3: fitness per iteration": _course,
        "figures 3, 6: coverage gained, points": _coverage,
    }
    return {title: charts.svg({**FRAME, **make(tables[title])}) for title, make in makers.items() if tables.get(title)}


def _reach(rows: list[Row]) -> Row:
    y = {"field": "method", "type": "nominal", "title": None, "sort": ORDER}
    bars: Row = {
        "mark": "bar",
        "encoding": {
            "y": y,
            "x": {"field": "rate", "type": "quantitative", "title": "share of seeds that fail, 95 % interval"},
            "color": {"field": "method", "type": "nominal", "scale": COLOURS, "legend": None},
        },
    }
    ranges: Row = {
        "mark": {"type": "rule", "color": "#222222"},
        "encoding": {"y": y, "x": {"field": "low", "type": "quantitative"}, "x2": {"field": "high"}},
    }
    return {"width": 460, "data": {"values": rows}, "layer": [bars, ranges]}


def _balls(rows: list[Row]) -> Row:
    shown = [{**row, "rate": row["failed"] / row["seeds"]} for row in rows]
    return {
        "width": 460,
        "height": 220,
        "data": {"values": shown},
        "mark": "bar",
        "encoding": {
            "x": {"field": "ball", "type": "nominal", "title": None, "sort": None, "axis": {"labelAngle": 0}},
            "xOffset": {"field": "method", "type": "nominal", "sort": ORDER},
            "y": {"field": "rate", "type": "quantitative", "title": "share of seeds that fail"},
            "color": {"field": "method", "type": "nominal", "scale": COLOURS, "title": None},
        },
    }


def _excited(rows: list[Row]) -> Row:
    y = {"field": "kind", "type": "nominal", "title": None}
    one: Row = {"mark": "bar", "encoding": {"y": y, "x": {"field": "mean", "type": "quantitative", "title": None}}}
    two: Row = {"mark": "rule", "encoding": {"y": y, "x": {"field": "low", "type": "quantitative"}, "x2": {"field": "high"}}}
    one["mark"] = {"type": "bar", "color": charts.COLOURS[0]}
    return {
        "data": {"values": rows},
        "facet": {"field": "measure", "type": "nominal", "title": None},
        "resolve": {"scale": {"x": "independent"}},
        "spec": {"width": 190, "layer": [one, two]},
    }


def _course(rows: list[Row]) -> Row:
    return {
        "data": {"values": rows},
        "facet": {"field": "swarm", "type": "nominal", "title": None},
        "resolve": {"scale": {"y": "independent"}},
        "spec": {
            "width": 260,
            "height": 160,
            "mark": {"type": "line", "point": True, "color": charts.COLOURS[0]},
            "encoding": {
                "x": {"field": "iteration", "type": "quantitative", "axis": {"tickMinStep": 1}},
                "y": {"field": "fitness", "type": "quantitative", "title": "share of neurons"},
            },
        },
    }


def _coverage(rows: list[Row]) -> Row:
    shown = [
        {"suite": row["suite"], "criterion": name, "gain": value}
        for row in rows
        for name, value in row.items()
        if name not in ("suite", "network")
    ]
    suites = [row["suite"] for row in rows]
    colours = [charts.GREY if name == "random" else charts.COLOURS[i] for i, name in enumerate(suites)]
    return {
        "width": 520,
        "height": 200,
        "data": {"values": shown},
        "mark": "bar",
        "encoding": {
            "x": {"field": "criterion", "type": "nominal", "title": None, "axis": {"labelAngle": 0}},
            "xOffset": {"field": "suite", "type": "nominal"},
            "y": {"field": "gain", "type": "quantitative", "title": "points gained over the seeds"},
            "color": {"field": "suite", "type": "nominal", "title": None, "scale": {"domain": suites, "range": colours}},
        },
    }
