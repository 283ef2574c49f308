"""Sections of a check: the verdict, the findings with pictures and evidence, and what each examination said."""

from __future__ import annotations

from neurotest import registry
from neurotest.report import pictures
from neurotest.report.section import Conclusion, Row, section
from neurotest.runs.store import Run

COMMANDS = ("check",)
STEPS = 3  # commands that go deeper, of the gravest findings
LAST = 1000  # the place of an examination that is not installed here


@section("check", title="Check", order=0, commands=COMMANDS)
def check(run: Run) -> Row:
    summary = run["summary"]
    deeper = [(row["sentence"], row["deeper"]) for row in summary["findings"] if row.get("deeper")]
    return {
        "subject": summary["target"],
        "conclusion": Conclusion(summary["verdict"], summary["alarms"] > 0, tuple(deeper[:STEPS])),
    }


@section("check-findings", title="Findings", order=10, commands=COMMANDS)
def check_findings(run: Run) -> Row | None:
    shown: dict[int, list[Row]] = {}
    files = {file.position: file.file for file in run.files("shown")}
    for row in run.inputs():
        picture = pictures.of_file(files.get(row.position))
        if picture is not None:
            shown.setdefault(int(row.extra["finding"]), []).append({"picture": picture, "caption": str(row.extra["caption"])})
    findings = [{**finding, "pictures": shown.get(number, [])} for number, finding in enumerate(run["summary"]["findings"])]
    return {"findings": findings} if findings else None


@section("check-examinations", title="Examinations", order=20, commands=COMMANDS)
def check_examinations(run: Run) -> Row:
    known = registry.entries("examination")
    rows = [{"name": name, **row} for name, row in run["summary"]["examinations"].items()]
    return {"rows": sorted(rows, key=lambda row: known[row["name"]].make.order if row["name"] in known else LAST)}  # type: ignore[attr-defined]
