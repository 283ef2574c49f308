"""The section of a run of `suspects`: labels that look wrong, as pictures."""

from __future__ import annotations

from neurotest.report import pictures
from neurotest.report.section import Conclusion, Row, command, section
from neurotest.runs.store import Run

SHOWN = 40


@section("suspects", title="Labels that look wrong", order=0, commands=("suspects",))
def _suspects(run: Run) -> Row:
    files = {file.position: file.file for file in run.files("picked")}
    rows = run["summary"]["suspects"][:SHOWN]
    shown = [{**row, "picture": pictures.of_file(files.get(row["index"])), "name": row.get("name")} for row in rows]
    return {
        "subject": run["config"]["data"] or "",
        "rows": shown,
        "total": len(run["summary"]["suspects"]),
        "conclusion": _conclusion(run),
    }


def _conclusion(run: Run) -> Conclusion:
    summary = run["summary"]
    low, high = (100 * limit for limit in summary["wrong_share_interval"])
    return Conclusion(
        f"About {100 * summary['wrong_share']:.1f} % ({low:.1f} .. {high:.1f}) of {summary['inputs']:,} labels look wrong; "
        f"{summary['count']:,} are worth a look.",
        bad=low > 0,
        steps=(("With the labels mended, measure again", command("check", run["config"]["target"], run["config"]["data"])),)
        if summary["count"]
        else (),
    )
