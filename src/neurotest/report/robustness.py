"""The section of a robustness run: the estimated distance to another class beside the smallest change that attacks found."""

from __future__ import annotations

from neurotest.report.section import Conclusion, Row, section
from neurotest.runs.store import Run

SHOWN = 50  # inputs, the least robust first


@section("robustness", title="Robustness", order=0, commands=("robustness",))
def robustness(run: Run) -> Row:
    summary = run["summary"]
    rows = sorted(summary["rows"], key=lambda row: (row["score"] is None, row["score"] or 0.0))
    return {"subject": run["config"]["target"], "rows": rows[:SHOWN], "conclusion": _conclusion(summary)}


def _conclusion(summary: Row) -> Conclusion:
    """The estimate, the bound from the other side, and how often the two contradict each other."""
    found = [row["upper"] for row in summary["rows"] if row["upper"] is not None]
    upper = f"; attacks need {sum(found) / len(found):.3g} on the {len(found)} inputs where they found a change" if found else ""
    estimate = "no estimate" if summary["score"] is None else f"{summary['score']:.3g} in {summary['norm']}"
    wrong = f" On {summary['contradicted']} a smaller change than the estimate was found." if summary["contradicted"] else ""
    return Conclusion(
        f"Another class is about {estimate} away, mean of {summary['inputs']:,} inputs{upper}.{wrong} "
        "This is an estimate and no certificate."
    )
