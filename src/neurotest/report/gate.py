"""The section of a gate: may the new network replace the old one, by class and by fault family."""

from __future__ import annotations

from neurotest.jobs.stored import described
from neurotest.report import charts
from neurotest.report.section import Conclusion, Row, command, section
from neurotest.runs.store import Run

FALLEN = 5  # classes in the first sentence
MOST = 30  # rows of the chart
SHOWS = "Accuracy of the new network minus that of the old one, row by row, with 95 % intervals of paired differences."
HIDES = "which inputs changed; a row whose interval holds the line may be chance, and of many rows a few are beyond it by chance."


@section("gate", title="May the new network replace the old one?", order=0, commands=("gate",))
def _gate(run: Run) -> Row:
    summary = run["summary"]
    rows = [("by class", summary["by_class"]), ("by fault family", summary["by_family"])]
    tables = [(title, table) for title, table in rows if table]
    sentence = f"{summary['verdict']}{_worse(summary['by_class'])}"
    config = run["config"]
    new = {"target": summary["new"], "description": config["descriptions"][1]}
    check = command("check", summary["new"], config.get("data") or "DATA", *described(new, run.path))
    steps = (("The new network from all sides", check),)
    return {
        "subject": f"{summary['old']} → {summary['new']}", "tables": tables,
        "chart": _differences(tables[0][1]) if tables else None,
        "conclusion": Conclusion(sentence, bad=not summary["may_replace"], good=summary["may_replace"], steps=steps),
    }  # fmt: skip


def _worse(rows: list[Row] | None) -> str:
    """The classes that lost more accuracy than chance explains, by name; those within chance are only counted."""
    fallen = sorted((row for row in rows or [] if row["new"] < row["old"]), key=lambda row: float(row["new"] - row["old"]))
    beyond = [row for row in fallen if row["difference_interval"][1] is not None and row["difference_interval"][1] < 0]
    within = len(fallen) - len(beyond)
    words = [f"{row['name']} ({100 * (row['new'] - row['old']):+.1f} points)" for row in beyond[:FALLEN]]
    more = f" and {len(beyond) - FALLEN} more" if len(beyond) > FALLEN else ""
    sentence = f" Worse than before, beyond chance: {', '.join(words)}{more}." if beyond else ""
    return sentence + (f" {within} {'class is' if within == 1 else 'classes are'} lower within chance." if within else "")


def _differences(rows: list[Row]) -> charts.Chart | None:
    """New minus old, with intervals, beside the line where nothing changes."""
    points = [
        {"name": row["name"], "old": row["old"], "new": row["new"], "inputs": row["inputs"],
         "difference": row["new"] - row["old"], "low": row["difference_interval"][0],
         "high": row["difference_interval"][1], "nothing": 0}
        for row in rows[:MOST]
        if row.get("difference_interval") and row["difference_interval"][0] is not None
    ]  # fmt: skip
    if not points:
        return None
    x = charts.number(
        "difference",
        "accuracy, new minus old (0: nothing changes)",
        axis={"format": "+.0%", "tickCount": 6, "labelOverlap": False},
    )
    y = charts.names("name")
    layers = [
        {"mark": {"type": "rule", "color": charts.GREY, "strokeDash": [4, 3]}, "encoding": {"x": {**x, "field": "nothing"}}},
        {"mark": {"type": "rule", "color": charts.COLOURS[0], "strokeWidth": 2},
         "encoding": {"y": y, "x": {**x, "field": "low"}, "x2": {"field": "high"}}},
        {"mark": {"type": "point", "filled": True, "size": 60, "color": charts.COLOURS[0]}, "encoding": {"y": y, "x": x}},
    ]  # fmt: skip
    spec = {"width": 460, "data": {"values": points}, "layer": layers}
    return charts.Chart(
        name="gate", spec=spec, rows=[{k: v for k, v in p.items() if k != "nothing"} for p in points], shows=SHOWS, hides=HIDES
    )
