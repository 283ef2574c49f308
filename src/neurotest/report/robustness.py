"""The section of a robustness run: the estimated distance to another class beside the smallest change that attacks found."""

from __future__ import annotations

from neurotest.report import charts
from neurotest.report.section import Conclusion, Row, command, section
from neurotest.runs.store import Run

NORMS = {"l1": "L1 norm", "l2": "L2 norm", "linf": "Linf norm"}
SHOWN = 50  # inputs, the least robust first
SHOWS = "For each input, how far another class is by estimate, and the smallest change with which an attack got there."
HIDES = "that no smaller change exists. The estimate is no guarantee: where a smaller change than it was found, it is wrong."


@section("robustness", title="How small a change fools the network", order=0, commands=("robustness",))
def _robustness(run: Run) -> Row:
    summary = run["summary"]
    rows = sorted(summary["rows"], key=lambda row: (row["score"] is None, row["score"] or 0.0))
    return {
        "subject": run["config"]["target"], "rows": rows[:SHOWN], "chart": _distances(rows[:SHOWN], summary["norm"]),
        "conclusion": _conclusion(run),
    }  # fmt: skip


def _distances(rows: list[Row], norm: str) -> charts.Chart | None:
    """Estimate and smallest change of each input, the least robust first."""
    kinds = {"score": "estimate", "upper": "smallest change found"}
    points = [
        {"input": str(row["position"]), "class": row["class"], "what": words, "distance": row[key]}
        for row in rows
        for key, words in kinds.items()
        if row[key] is not None
    ]
    if not points:
        return None
    order = list(dict.fromkeys(point["input"] for point in points))
    shapes = {"domain": list(kinds.values()), "range": [charts.COLOURS[0], charts.COLOURS[1]]}
    encoding = {
        "x": charts.names("input", "input, the least robust first", sort=order, axis={"labelOverlap": True, "labelAngle": 0}),
        "y": charts.number("distance", f"distance to another class, {norm}"),
        "color": charts.names("what", scale=shapes), "shape": charts.names("what", scale={"domain": shapes["domain"]}),
    }  # fmt: skip
    mark = {"type": "point", "filled": True, "size": 50}
    spec = {"width": 560, "height": 200, "data": {"values": points}, "mark": mark, "encoding": encoding}
    return charts.Chart(name="robustness", spec=spec, shows=SHOWS, hides=HIDES)


def _conclusion(run: Run) -> Conclusion:
    """The estimate, the bound from the other side, and how often the two contradict each other."""
    summary = run["summary"]
    changes = sorted(row["upper"] for row in summary["rows"] if row["upper"] is not None)
    norm = NORMS.get(summary["norm"], summary["norm"])
    where = f"where one did, on {len(changes)} of {summary['inputs']:,} inputs"
    attacks = (
        f"Attacks change the answer with a change of {sum(changes) / len(changes):.3g} ({norm}; mean {where}), on the weakest "
        f"with {changes[0]:.3g}."
        if changes
        else f"No attack changed the answer on {summary['inputs']:,} inputs."
    )
    score = summary["score"]
    estimate = (
        "" if score is None else f" The estimated least change, a mean over the same inputs, is {score:.3g}; it is no proof."
    )
    wrong = f" On {summary['contradicted']} a smaller change than the estimate was found." if summary["contradicted"] else ""
    steps = (("Changes that do it, as pictures", command("attack", run["config"]["target"], run["config"]["data"])),)
    return Conclusion(f"{attacks}{estimate}{wrong}", steps=steps)
