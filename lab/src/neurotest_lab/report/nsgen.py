"""Charts of the study of NSGen: fault rates over random's, layers, similarity against faults, and the map of faults."""

from __future__ import annotations

from markupsafe import Markup

from neurotest.report import charts
from neurotest.report.rendering import render
from neurotest.report.section import Row
from neurotest_lab.report.study import drawing


@drawing("nsgen", "figure 10: gallery")
def cards(rows: list[Row]) -> Markup:
    """The first faults of every guide, each beside its seed."""
    groups: dict[str, dict[str, list[Row]]] = {}
    for row in rows:
        groups.setdefault(str(row["subject"]), {}).setdefault(str(row["guide"]), []).append(row)
    return render("cards.html.j2", groups=groups)


def _subjects(rows: list[Row]) -> list[str]:
    return [*dict.fromkeys(row["subject"] for row in rows)]


def _points(rows: list[Row], y: str, x: str, title: str, low: str, high: str, middle: float) -> Markup | None:
    """A point with its interval per row, one panel per subject, and the line where nothing is gained."""
    rows = [{**row, "nothing": middle} for row in rows if row.get(x) is not None]
    if not rows:
        return None
    blue = {"color": charts.COLOURS[0]}
    name = charts.names(y, axis={"labelLimit": 260})

    def number(field: str) -> charts.Spec:
        return charts.number(field, title, scale={"zero": False})

    marks = [
        {"mark": {"type": "rule", "color": charts.GREY, "strokeDash": [4, 3]}, "encoding": {"x": number("nothing")}},
        {"mark": {"type": "rule", "size": 2, **blue}, "encoding": {"y": name, "x": number(low), "x2": {"field": high}}},
        {"mark": {"type": "point", "filled": True, "size": 60, **blue}, "encoding": {"y": name, "x": number(x)}},
    ]
    spec = charts.panels(rows, "subject", {"width": 280, "layer": marks}, own="y", sort=_subjects(rows), columns=2)
    return charts.svg(spec, framed=True)


@drawing("nsgen", "12: equal outputs")
def ratios(rows: list[Row]) -> Markup | None:
    """Fault rate at equal outputs over random's, with its interval."""
    return _points(rows, "guide", "x random", "fault rate over random's, equal outputs", "low", "high", 1.0)


@drawing("nsgen", "figure 6: layers")
def layers(rows: list[Row]) -> Markup | None:
    return ratios([row for row in rows if row["guide"] != "random"])


@drawing("nsgen", "section 7.4: similarity and faults")
def areas(rows: list[Row]) -> Markup | None:
    """How well dissimilarity tells faults apart, with its interval over images."""
    return _points(rows, "path", "auc", "AUC of dissimilarity for faults", "auc low", "auc high", 0.5)


@drawing("nsgen", "figure 8: map")
def fault_map(points: list[Row]) -> Markup:
    """Faults of every guide; those of a kind that KMNC, DSC and NLC did not find are marked."""
    x, y = (charts.number(field, axis=None) for field in ("x", "y"))
    colour = charts.names("guide", scale=charts.colours(dict.fromkeys(point["guide"] for point in points)))
    ring = {"type": "point", "size": 90, "color": "#CC0000", "strokeWidth": 1.5}
    marks = [
        {"mark": {"type": "point", "filled": True, "size": 22, "opacity": 0.7}, "encoding": {"x": x, "y": y, "color": colour}},
        {"transform": [{"filter": "datum.only"}], "mark": ring, "encoding": {"x": x, "y": y}},
    ]
    plane = {"width": 360, "height": 320, "layer": marks}
    title = {"text": "ringed: (true, predicted) pairs that KMNC, DSC and NLC did not find", "fontWeight": "normal"}
    spec = charts.panels(points, "subject", plane, own="xy", sort=_subjects(points), columns=2)
    return charts.svg({**spec, "title": title}, framed=True)
