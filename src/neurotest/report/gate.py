"""The section of a gate: may the new network replace the old one, by class and by fault family."""

from __future__ import annotations

from neurotest.report.section import Conclusion, Row, section
from neurotest.runs.store import Run


@section("gate", title="Gate", order=0, commands=("gate",))
def gate(run: Run) -> Row:
    summary = run["summary"]
    rows = [("by class", summary["by_class"]), ("by fault family", summary["by_family"])]
    return {
        "subject": f"{summary['old']} and {summary['new']}", "tables": [(title, table) for title, table in rows if table],
        "conclusion": Conclusion(summary["verdict"], bad=not summary["may_replace"]),
    }  # fmt: skip
