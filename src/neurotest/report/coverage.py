"""The page of a coverage run: what was covered, how it grew, layer by layer, and what was never reached."""

from __future__ import annotations

from typing import Any

from neurotest.report import charts
from neurotest.runs.store import Run

NEURONS = 40  # of a layer that are listed


def render(run: Run) -> str:
    from jinja2 import Environment, PackageLoader

    summary = run["summary"]
    criteria: dict[str, Any] = {name: c for name, c in summary["criteria"].items() if "error" not in c}
    environment = Environment(loader=PackageLoader("neurotest.report"), autoescape=True)
    return environment.get_template("coverage.html.j2").render(
        config=run["config"],
        created=run["created"],
        version=run["version"],
        summary=summary,
        criteria=criteria,
        classes=_classes(criteria),
        growth=charts.svg(growth({name: c["growth"] for name, c in criteria.items()}))
        if any(c["growth"] for c in criteria.values())
        else "",
        layers={name: charts.svg(bars(c["per_layer"])) for name, c in criteria.items() if c["per_layer"]},
        never={
            name: rows for name, found in run["never covered"].items() if (rows := _never(found, criteria[name]["per_layer"]))
        },
    )


def _classes(criteria: dict[str, Any]) -> list[str]:
    return list(dict.fromkeys(name for c in criteria.values() for name in c.get("by_class", ())))


def _never(found: dict[str, list[int]], layers: dict[str, Any]) -> list[dict[str, Any]]:
    """Per layer the neurons of which nothing was covered, the first of them by number."""
    return [
        {"layer": layer, "count": len(ids), "shown": ids[:NEURONS], "dead": layers.get(layer, {}).get("dead", 0)}
        for layer, ids in found.items()
    ]


def growth(curves: dict[str, list[list[float]]]) -> dict[str, Any]:
    """Value against inputs, one small chart per criterion, because their units differ."""
    rows = [
        {"criterion": name, "inputs": n, "value": value} for name, curve in curves.items() for n, value in [[0.0, 0.0], *curve]
    ]
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "config": {"font": "sans-serif", "view": {"stroke": None}},
        "data": {"values": rows},
        "facet": {"field": "criterion", "type": "nominal", "title": None, "sort": list(curves)},
        "columns": 3,
        "resolve": {"scale": {"y": "independent"}},
        "spec": {
            "width": 200,
            "height": 130,
            "mark": {"type": "line", "point": {"size": 12}, "color": charts.COLOURS[0]},
            "encoding": {
                "x": {"field": "inputs", "type": "quantitative", "title": "inputs", "axis": {"tickCount": 3}},
                "y": {"field": "value", "type": "quantitative", "title": None, "axis": {"tickCount": 4}},
            },
        },
    }


def bars(layers: dict[str, Any]) -> dict[str, Any]:
    """One bar per layer."""
    rows = [{"layer": name, "value": share["value"]} for name, share in layers.items()]
    share = all(s["total"] is not None for s in layers.values())
    x: dict[str, Any] = {"field": "value", "type": "quantitative", "title": "share covered" if share else "value"}
    if share:
        x["scale"] = {"domain": [0, 1]}
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "config": {"font": "sans-serif", "view": {"stroke": None}},
        "width": 460,
        "data": {"values": rows},
        "mark": {"type": "bar", "color": charts.COLOURS[0]},
        "encoding": {"y": {"field": "layer", "type": "nominal", "title": None, "sort": None}, "x": x},
    }
