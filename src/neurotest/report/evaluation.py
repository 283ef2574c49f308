"""Sections of an evaluation: suites beside random, clean and each other, their faults by class, and pictures."""

from __future__ import annotations

from neurotest.generate.outcome import class_name
from neurotest.report import charts
from neurotest.report.section import Conclusion, Row, section
from neurotest.runs.store import Run

COMMANDS = ("evaluate",)
# What a reader looks at first; the tables have everything.
SHOWN = {
    ("defects", "seeds_failed"): "share of seeds with a fault", ("defects", "fault_rate"): "faults per output",
    ("naturalness", "ssim"): "SSIM to the original", ("naturalness", "feature_distance"): "feature distance",
    ("naturalness", "outside"): "share outside the manifold", ("impartiality", "faults"): "evenness of faults",
    ("diversity", "vendi"): "Vendi score",
}  # fmt: skip
OVERVIEW = (
    "Lines are 95 % intervals (shares: Wilson; evenness: bootstrap over seeds). What random is stands above each table below; "
    "clean are the inputs the suite was made from."
)


@section("evaluation", title="Suites judged", order=0, commands=COMMANDS)
def evaluation(run: Run) -> Row:
    return {"subject": run["config"]["target"], "conclusion": _conclusion(run["summary"]["rows"])}


def _conclusion(rows: list[Row]) -> Conclusion | None:
    """What share of seeds fails in each suite, beside random where that is measured."""
    failed = [row for row in rows if (row["part"], row["metric"]) == ("defects", "seeds_failed") and row["value"] is not None]
    if not failed:
        return None
    words = [
        f"{row['suite']}: {100 * row['value']:.0f} % of the seeds have a fault"
        + (f", {100 * row['random']:.0f} % at random" if row["random"] is not None else "")
        for row in failed
    ]
    return Conclusion(f"{'; '.join(words)}.", bad=any(row["value"] > 0 for row in failed))


@section("suites-overview", title="At a glance", order=10, commands=COMMANDS, template="chart.html.j2")
def suites_overview(run: Run) -> Row:
    return {"text": OVERVIEW, "charts": [charts.svg(overview(run["summary"]["rows"]))]}


def overview(rows: list[Row]) -> charts.Spec:
    """A panel per number: every suite with its interval, its random control in grey, the clean suite as a ring."""
    points: dict[str, list[Row]] = {}
    limits: dict[str, list[Row]] = {}
    for row in rows:
        title = SHOWN.get((row["part"], row["metric"]))
        if title is None:
            continue
        points.setdefault(title, []).extend(
            {"suite": row["suite"], "what": what, "at": row[column]}
            for what, column in (("suite", "value"), ("random", "random"), ("clean", "clean"))
            if row[column] is not None
        )
        if row["interval"]:
            low, high = row["interval"]
            limits.setdefault(title, []).append({"suite": row["suite"], "low": low, "high": high})
    titles = [title for title in SHOWN.values() if points.get(title)]
    return {"columns": 2, "concat": [_panel(title, points[title], limits.get(title, [])) for title in titles]}


def _panel(title: str, points: list[Row], limits: list[Row]) -> charts.Spec:
    kinds = ["suite", "random", "clean"]
    scale = {"domain": kinds, "range": [charts.COLOURS[0], charts.GREY, charts.COLOURS[4]]}
    y = charts.names("suite")
    line = {
        "data": {"values": limits}, "mark": {"type": "rule", "color": charts.COLOURS[0], "strokeWidth": 2},
        "encoding": {"x": charts.number("low"), "x2": {"field": "high"}, "y": y},
    }  # fmt: skip
    colour, shape = charts.names("what", scale=scale), charts.names("what", scale={"domain": kinds})
    dots = {
        "data": {"values": points}, "mark": {"type": "point", "filled": True, "size": 70},
        "encoding": {"x": charts.number("at"), "y": y, "color": colour, "shape": shape},
    }  # fmt: skip
    heading = {"text": title, "fontSize": 12, "anchor": "start"}
    return {"title": heading, "width": 330, "height": {"step": 24}, "layer": [line, dots]}


@section("suites", title="", order=20, commands=COMMANDS)
def suites(run: Run) -> Row:
    summary, classes = run["summary"], run["classes"]
    pictures = {name: [_named(one, classes) for one in rows] for name, rows in (summary.get("pictures") or {}).items()}
    return {"suites": summary["suites"], "rows": summary["rows"], "pictures": pictures}


def _named(row: Row, classes: list[str]) -> Row:
    return {**row, "true": class_name(row["true"], classes), "predicted": class_name(row["predicted"], classes)}


@section("confusions", title="What is taken for what", order=30, commands=COMMANDS, template="chart.html.j2")
def confusions(run: Run) -> Row | None:
    """From which class to which, one panel per suite."""
    classes = run["classes"]
    cells = [{"suite": name, **_named(cell, classes)} for name, rows in run["summary"]["matrix"].items() for cell in rows]
    x, y = (charts.names(column, column, sort=list(classes) or None) for column in ("predicted", "true"))
    return {"charts": [charts.svg(charts.heat_map(cells, "suite", x, y, "faults", 280, 260, 2))]} if cells else None


@section("comparison", title="Side by side", order=40, commands=COMMANDS)
def comparison(run: Run) -> Row | None:
    compared = run["summary"].get("comparison")
    return {"comparison": compared} if compared else None
