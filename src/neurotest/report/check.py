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
def _check(run: Run) -> Row:
    summary = run["summary"]
    deeper = [(row["sentence"], row["deeper"]) for row in summary["findings"] if row.get("deeper")]
    return {
        "subject": summary["target"],
        "conclusion": Conclusion(
            _sentence(summary),
            summary["alarms"] > 0,
            tuple(deeper[:STEPS]),
            good=not summary["findings"] and not _unfinished(summary),
        ),
    }


def _unfinished(summary: Row) -> bool:
    return any(row.get("ran_out") or row.get("skipped") for row in summary["examinations"].values())


def _sentence(summary: Row) -> str:
    """The verdict as a sentence, with the accuracy where labels are there and how much there is to read."""
    verdict = str(summary["verdict"])
    right = summary.get("accuracy")
    accuracy = "" if right is None else f" {100 * right:.1f} % of the labelled inputs are answered right."
    others = [row["sentence"].rstrip(".") for row in summary["findings"] if row["severity"] != "alarm"]
    first = "" if summary["alarms"] else f"; the first: {others[0]}" if others else ""
    notes = f" {len(others)} {'weakness' if len(others) == 1 else 'weaknesses'} below{first}." if others else ""
    return f"{verdict[:1].upper()}{verdict[1:].rstrip('.')}.{accuracy}{notes}"


@section("check-findings", title="Findings", order=10, commands=COMMANDS)
def _check_findings(run: Run) -> Row | None:
    shown: dict[int, list[Row]] = {}
    files = {file.position: file.file for file in run.files("shown")}
    for row in run.inputs():
        picture = pictures.of_file(files.get(row.position))
        if picture is not None:
            shown.setdefault(int(row.extra["finding"]), []).append({"picture": picture, "caption": str(row.extra["caption"])})
    findings = [{**finding, "pictures": shown.get(number, [])} for number, finding in enumerate(run["summary"]["findings"])]
    return {"findings": findings} if findings else None


@section("check-examinations", title="Examinations", order=20, commands=COMMANDS)
def _check_examinations(run: Run) -> Row:
    known = registry.entries("examination")
    rows = [{"name": name, **row} for name, row in run["summary"]["examinations"].items()]
    return {"rows": sorted(rows, key=lambda row: known[row["name"]].make.order if row["name"] in known else LAST)}  # type: ignore[attr-defined]
