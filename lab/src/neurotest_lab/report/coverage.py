"""Charts of the coverage study: scatter plots of its suites, the histogram and the heat map of predicted classes."""

from __future__ import annotations

from markupsafe import Markup

from neurotest.report import charts
from neurotest.report.section import Row
from neurotest_lab.report.study import drawing

METRICS = {"asr": "success", "oi": "evenness of outputs", "fid": "FID (shrunk)", "is": "inception score"}


@drawing("coverage", "figures 3, 4, 7: suites")
def suites(rows: list[Row]) -> Markup:
    return Markup().join(charts.svg(scatter(rows, metric), framed=True) for metric in METRICS)


def scatter(points: list[Row], metric: str) -> charts.Spec:
    """Coverage at .2 against a metric, one panel per subject and attack, coloured by lambda."""
    rows = [
        {"nc": p["nc"], "value": p[metric], "lambda": f"{p['lambda']:g}", "panel": f"{p['subject']}, {p['attack']}"}
        for p in points
        if p.get(metric) is not None
    ]
    weights = sorted({row["lambda"] for row in rows}, key=float)
    colours = [charts.GREY, *charts.COLOURS]
    scale = {"domain": weights, "range": [colours[i % len(colours)] for i in range(len(weights))]}
    encoding = {
        "x": charts.number("nc", "coverage at .2", scale={"zero": False}),
        "y": charts.number("value", METRICS[metric], scale={"zero": False}),
        "color": charts.names("lambda", "lambda", scale=scale),
    }
    mark = {"type": "point", "filled": True, "size": 28, "opacity": 0.75}
    dots = {"width": 240, "height": 150, "mark": mark, "encoding": encoding}
    return charts.panels(rows, "panel", dots, own="xy", columns=3)


@drawing("coverage", "figure 8: from where to where")
def classes(rows: list[Row]) -> Markup:
    """How often each class is predicted, and from which class to which, one panel per lambda."""
    named = [{**row, "lambda": f"lambda {row['lambda']:g}"} for row in rows]
    x = {"field": "predicted", "type": "ordinal", "title": "predicted class", "axis": {"labelAngle": 0}}
    y = {"field": "true", "type": "ordinal", "title": "true class"}
    encoding = {"x": x, "y": charts.number("inputs", "inputs", aggregate="sum")}
    bars = {"width": 240, "height": 130, "mark": {"type": "bar", "color": charts.COLOURS[0]}, "encoding": encoding}
    histogram = charts.svg(charts.panels(named, "lambda", bars), framed=True)
    return histogram + charts.svg(charts.heat_map(named, "lambda", x, y, "inputs", 240, 240), framed=True)
