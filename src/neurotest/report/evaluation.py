"""The page of an evaluation: suites beside random, clean and each other, their faults by class, and pictures."""

from __future__ import annotations

from typing import Any

from neurotest.errors import BadInput
from neurotest.report import charts
from neurotest.runs.store import Run

Row = dict[str, Any]
# What a reader looks at first; the tables have everything.
SHOWN = {
    ("defects", "seeds_failed"): "share of seeds with a fault", ("defects", "fault_rate"): "faults per output",
    ("naturalness", "ssim"): "SSIM to the original", ("naturalness", "feature_distance"): "feature distance",
    ("naturalness", "outside"): "share outside the manifold", ("impartiality", "faults"): "evenness of faults",
    ("diversity", "vendi"): "Vendi score",
}  # fmt: skip
FRAME: Row = {
    "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
    "config": {"font": "sans-serif", "view": {"stroke": None}},
}


def render(run: Run) -> str:
    from jinja2 import Environment, PackageLoader

    summary = run["summary"]
    if not isinstance(summary, dict) or not {"suites", "rows", "matrix"} <= summary.keys():
        raise BadInput(f"{run.path} holds no judgements: it is damaged or of another version; evaluate again.")
    classes = run["classes"]
    matrix = [
        {"suite": name, "true": _name(c["true"], classes), "predicted": _name(c["predicted"], classes), "faults": c["faults"]}
        for name, held in summary["matrix"].items()
        for c in held
    ]
    pictures = {
        name: [{**p, "true": _name(p["true"], classes), "predicted": _name(p["predicted"], classes)} for p in held]
        for name, held in (summary.get("pictures") or {}).items()
    }
    environment = Environment(loader=PackageLoader("neurotest.report"), autoescape=True)
    return environment.get_template("evaluation.html.j2").render(
        config=run["config"],
        created=run["created"],
        version=run["version"],
        suites=summary["suites"],
        rows=summary["rows"],
        notes=summary.get("notes") or [],
        comparison=summary.get("comparison"),
        overview=charts.svg(overview(summary["rows"])),
        matrix=charts.svg(fault_matrix(matrix, list(classes))) if matrix else "",
        pictures=pictures,
    )


def _name(number: int, classes: list[str]) -> str:
    return "non-finite" if number < 0 else str(classes[number]) if number < len(classes) else str(number)


def overview(rows: list[Row]) -> Row:
    """A panel per number: every suite with its interval, its random control in grey, the clean suite as a ring."""
    points, spans = [], []
    for row in rows:
        title = SHOWN.get((row["part"], row["metric"]))
        if title is None:
            continue
        for what in ("value", "random", "clean"):
            if row[what] is not None:
                points.append(
                    {"number": title, "suite": row["suite"], "what": "suite" if what == "value" else what, "at": row[what]}
                )
        if row["interval"]:
            spans.append({"number": title, "suite": row["suite"], "low": row["interval"][0], "high": row["interval"][1]})
    kept = [title for title in SHOWN.values() if any(p["number"] == title for p in points)]
    panels = [_panel(t, [p for p in points if p["number"] == t], [s for s in spans if s["number"] == t]) for t in kept]
    return {**FRAME, "columns": 2, "concat": panels}


def _panel(title: str, points: list[Row], spans: list[Row]) -> Row:
    kinds = ["suite", "random", "clean"]
    colours = {"domain": kinds, "range": [charts.COLOURS[0], charts.GREY, charts.COLOURS[4]]}
    y = {"field": "suite", "type": "nominal", "title": None, "sort": None}
    line = {
        "data": {"values": spans},
        "mark": {"type": "rule", "color": charts.COLOURS[0], "strokeWidth": 2},
        "encoding": {"x": {"field": "low", "type": "quantitative", "title": None}, "x2": {"field": "high"}, "y": y},
    }
    dots = {
        "data": {"values": points},
        "mark": {"type": "point", "filled": True, "size": 70},
        "encoding": {
            "x": {"field": "at", "type": "quantitative", "title": None},
            "y": y,
            "color": {"field": "what", "type": "nominal", "scale": colours, "title": None},
            "shape": {"field": "what", "type": "nominal", "scale": {"domain": kinds}, "title": None},
        },
    }
    about = {"title": {"text": title, "fontSize": 12, "anchor": "start"}, "width": 330, "height": {"step": 24}}
    return {**about, "layer": [line, dots]}


def fault_matrix(cells: list[Row], classes: list[str]) -> Row:
    """From which class to which, one panel per suite."""
    order = classes or None
    return {
        **FRAME,
        "data": {"values": cells},
        "facet": {"field": "suite", "type": "nominal", "title": None, "sort": None},
        "columns": 2,
        "spec": {
            "width": 280,
            "height": 260,
            "mark": "rect",
            "encoding": {
                "x": {"field": "predicted", "type": "nominal", "title": "predicted", "sort": order},
                "y": {"field": "true", "type": "nominal", "title": "true", "sort": order},
                "color": {"field": "faults", "type": "quantitative", "scale": {"scheme": "blues"}},
            },
        },
    }
