"""The page of a study: its tables, and for the coverage study the scatter plots, the histogram and the heat map."""

from __future__ import annotations

from typing import Any

from neurotest.errors import BadInput
from neurotest.report import charts
from neurotest.report.deepsensor import deepsensor_charts
from neurotest.report.nsgen import nsgen_charts
from neurotest.runs.store import Run

Row = dict[str, Any]
ROWS = 150  # of a table on the page; the run holds all
LONG = 30  # rows above which a table is folded
NAMES = {"asr": "success", "oi": "evenness of outputs", "fid": "FID (shrunk)", "is": "inception score"}


def render(run: Run) -> str:
    from jinja2 import Environment, PackageLoader

    config, summary = run["config"], run["summary"]
    if not isinstance(summary, dict) or not isinstance(summary.get("tables"), dict):
        raise BadInput(f"{run.path} holds no tables: it is damaged or of another version; run the study again.")
    environment = Environment(loader=PackageLoader("neurotest.report"), autoescape=True)
    tables, order = _ordered(summary)
    draw = {"coverage": coverage_charts, "deepsensor": deepsensor_charts, "nsgen": nsgen_charts}.get(str(config.get("study")))
    drawn = draw(tables) if draw is not None else {}
    shown = [_table(title, rows, order.get(title)) for title, rows in tables.items() if rows]
    for table in shown:
        if table["title"] in drawn and any(name.endswith("png") for name in table["columns"]):
            table["rows"] = []  # its pictures are in what was drawn
    shown.sort(key=lambda t: not (t["title"] in drawn or any(name.endswith("png") for name in t["columns"])))  # pictures first
    return environment.get_template("study.html.j2").render(
        config=config,
        created=run["created"],
        version=run["version"],
        checks=summary.get("checks", {}),
        missing=summary.get("missing", []),
        charts=drawn,
        tables=shown,
    )


def _ordered(summary: Row) -> tuple[dict[str, list[Row]], dict[str, list[str]]]:
    """The tables in the study's order, and the columns of each; runs of earlier versions do not tell."""
    tables, order = summary["tables"], {}
    for entry in summary.get("order") or ():
        if isinstance(entry, list) and len(entry) == 2 and isinstance(entry[1], list) and tables.get(entry[0]):
            order[str(entry[0])] = [str(name) for name in entry[1]]
    return {**{title: tables[title] for title in order}, **tables}, order


# A run stores what it holds in the order of the alphabet; without the study's own order these come first, pictures last.
FIRST = (
    "what", "why", "subject", "model", "target", "which", "class", "metric", "method", "guide", "attack", "constraint", "budget",
    "layer", "lambda", "weight", "strength", "draw", "t", "true", "predicted", "value", "r", "low", "high", "p",
    "given lambda", "given constraint", "given low", "given high", "given both", "both low", "both high", "spearman", "paper",
)  # fmt: skip


def _place(name: str) -> tuple[bool, int, str]:
    known = FIRST.index(name) if name in FIRST else len(FIRST)
    return name.endswith("png"), known, name.replace("before", " ")  # before comes before after


def _table(title: str, rows: list[Row], order: list[str] | None = None) -> Row:
    columns = sorted(rows[0], key=_place) if order is None else sorted(order, key=lambda name: name.endswith("png"))
    return {
        "title": title,
        "columns": columns,
        "heads": [name.removesuffix("png").strip() for name in columns],
        "rows": [[_shown(name, row.get(name)) for name in columns] for row in rows[:ROWS]],
        "left": max(0, len(rows) - ROWS),
        "long": len(rows) > LONG,
    }


def _shown(name: str, value: Any) -> Row:
    if name.endswith("png") and isinstance(value, str):
        return {"picture": f"data:image/png;base64,{value}"}
    return {"text": "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)}


def coverage_charts(tables: dict[str, list[Row]]) -> dict[str, str]:
    """SVG by the title of the table it stands above."""
    found = {}
    points = tables.get("figures 3, 4, 7: suites", [])
    if points:
        found["figures 3, 4, 7: suites"] = "".join(charts.svg(scatter(points, metric)) for metric in NAMES)
    heat = tables.get("figure 8: from where to where", [])
    if heat:
        found["figure 8: from where to where"] = charts.svg(histogram(heat)) + charts.svg(heat_map(heat))
    return found


def scatter(points: list[Row], metric: str) -> Row:
    """Coverage at .2 against a metric, one panel per subject and attack, coloured by lambda."""
    rows = [
        {"nc": p["nc"], "value": p[metric], "lambda": f"{p['lambda']:g}", "panel": f"{p['subject']}, {p['attack']}"}
        for p in points
        if p.get(metric) is not None
    ]
    weights = sorted({r["lambda"] for r in rows}, key=float)
    colours = [charts.GREY, *charts.COLOURS]
    scale = {"domain": weights, "range": [colours[i % len(colours)] for i in range(len(weights))]}
    axis = {"type": "quantitative", "scale": {"zero": False}}
    return {
        **charts.FRAME,
        "data": {"values": rows},
        "facet": {"field": "panel", "type": "nominal", "title": None, "sort": None},
        "columns": 3,
        "resolve": {"scale": {"x": "independent", "y": "independent"}},
        "spec": {
            "width": 240,
            "height": 150,
            "mark": {"type": "point", "filled": True, "size": 28, "opacity": 0.75},
            "encoding": {
                "x": {"field": "nc", "title": "coverage at .2", **axis},
                "y": {"field": "value", "title": NAMES[metric], **axis},
                "color": {"field": "lambda", "type": "nominal", "scale": scale, "sort": None},
            },
        },
    }


def histogram(heat: list[Row]) -> Row:
    """How often each class is predicted, one panel per lambda."""
    return {
        **charts.FRAME,
        "data": {"values": [{**r, "lambda": f"lambda {r['lambda']:g}"} for r in heat]},
        "facet": {"field": "lambda", "type": "nominal", "title": None, "sort": None},
        "spec": {
            "width": 240,
            "height": 130,
            "mark": {"type": "bar", "color": charts.COLOURS[0]},
            "encoding": {
                "x": {"field": "predicted", "type": "ordinal", "title": "predicted class", "axis": {"labelAngle": 0}},
                "y": {"field": "inputs", "aggregate": "sum", "type": "quantitative", "title": "inputs"},
            },
        },
    }


def heat_map(heat: list[Row]) -> Row:
    """From which class to which, one panel per lambda."""
    return {
        **charts.FRAME,
        "data": {"values": [{**r, "lambda": f"lambda {r['lambda']:g}"} for r in heat]},
        "facet": {"field": "lambda", "type": "nominal", "title": None, "sort": None},
        "spec": {
            "width": 240,
            "height": 240,
            "mark": "rect",
            "encoding": {
                "x": {"field": "predicted", "type": "ordinal", "title": "predicted class", "axis": {"labelAngle": 0}},
                "y": {"field": "true", "type": "ordinal", "title": "true class"},
                "color": {"field": "inputs", "type": "quantitative", "scale": {"scheme": "blues"}},
            },
        },
    }
