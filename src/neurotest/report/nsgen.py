"""Charts of the study of NSGen: fault rates over random's, layers, similarity against faults, and the map of faults."""

from __future__ import annotations

from typing import Any

from neurotest.report import charts

Row = dict[str, Any]
LIFTS = "12: equal outputs"
LAYERS = "figure 6: layers"
PATHS = "section 7.4: similarity and faults"
MAP = "figure 8: map"
GALLERY = "figure 10: gallery"


def nsgen_charts(tables: dict[str, list[Row]]) -> dict[str, str]:
    """SVG by the title of the table it stands above."""
    found = {}
    if lifts := [row for row in tables.get(LIFTS, []) if row.get("x random") is not None]:
        found[LIFTS] = charts.svg(ratios(lifts))
    if layers := [row for row in tables.get(LAYERS, []) if row["guide"] != "random" and row.get("x random") is not None]:
        found[LAYERS] = charts.svg(ratios(layers))
    if areas := [row for row in tables.get(PATHS, []) if row.get("auc") is not None]:
        found[PATHS] = charts.svg(intervals(areas))
    if points := tables.get(MAP, []):
        found[MAP] = charts.svg(plane(points))
    if pictures := tables.get(GALLERY, []):
        found[GALLERY] = cards(pictures)
    return found


def cards(rows: list[Row]) -> str:
    """The first faults of every guide, each beside its seed. What comes from the run is escaped."""
    from jinja2 import Environment, PackageLoader

    groups: dict[str, dict[str, list[Row]]] = {}
    for row in rows:
        groups.setdefault(str(row["subject"]), {}).setdefault(str(row["guide"]), []).append(row)
    environment = Environment(loader=PackageLoader("neurotest.report"), autoescape=True)
    return environment.get_template("cards.html.j2").render(groups=groups)


def _panels(rows: list[Row]) -> Row:
    """One panel per subject, in the order of the rows."""
    return {"field": "subject", "type": "nominal", "title": None, "sort": [*dict.fromkeys(row["subject"] for row in rows)]}


def _points(rows: list[Row], y: str, x: str, title: str, low: str, high: str, middle: float) -> Row:
    """A point with its interval per row, one panel per subject, and the line where nothing is gained."""
    blue = {"color": charts.COLOURS[0]}

    def number(field: str) -> Row:
        return {"field": field, "type": "quantitative", "title": title, "scale": {"zero": False}}

    names: Row = {"field": y, "type": "nominal", "title": None, "sort": None, "axis": {"labelLimit": 260}}
    return {
        **charts.FRAME,
        "data": {"values": [{**row, "nothing": middle} for row in rows]},
        "facet": _panels(rows),
        "columns": 2,
        "resolve": {"scale": {"y": "independent"}},
        "spec": {
            "width": 280,
            "layer": [
                {"mark": {"type": "rule", "color": charts.GREY, "strokeDash": [4, 3]}, "encoding": {"x": number("nothing")}},
                {"mark": {"type": "rule", "size": 2, **blue}, "encoding": {"y": names, "x": number(low), "x2": {"field": high}}},
                {"mark": {"type": "point", "filled": True, "size": 60, **blue}, "encoding": {"y": names, "x": number(x)}},
            ],
        },
    }  # fmt: skip


def ratios(rows: list[Row]) -> Row:
    """Fault rate at equal outputs over random's, with its interval."""
    return _points(rows, "guide", "x random", "fault rate over random's, equal outputs", "low", "high", 1.0)


def intervals(rows: list[Row]) -> Row:
    """How well dissimilarity tells faults, with its interval over images."""
    return _points(rows, "path", "auc", "AUC of dissimilarity for faults", "auc low", "auc high", 0.5)


def plane(points: list[Row]) -> Row:
    """Faults of every guide; those of a kind that KMNC, DSC and NLC did not find are marked."""
    guides = [*dict.fromkeys(p["guide"] for p in points)]
    colours = [charts.GREY if g == "random" else charts.COLOURS[i % len(charts.COLOURS)] for i, g in enumerate(guides)]
    axis: Row = {"type": "quantitative", "title": None, "axis": None}
    place = {"x": {"field": "x", **axis}, "y": {"field": "y", **axis}}
    colour = {"field": "guide", "type": "nominal", "title": None, "scale": {"domain": guides, "range": colours}}
    return {
        **charts.FRAME,
        "data": {"values": points},
        "title": {"text": "ringed: (true, predicted) pairs that KMNC, DSC and NLC did not find", "fontWeight": "normal"},
        "facet": _panels(points),
        "columns": 2,
        "resolve": {"scale": {"x": "independent", "y": "independent"}},
        "spec": {
            "width": 360,
            "height": 320,
            "layer": [
                {"mark": {"type": "point", "filled": True, "size": 22, "opacity": 0.7}, "encoding": {**place, "color": colour}},
                {
                    "transform": [{"filter": "datum.only"}],
                    "mark": {"type": "point", "size": 90, "color": "#CC0000", "strokeWidth": 1.5},
                    "encoding": place,
                },
            ],
        },
    }
