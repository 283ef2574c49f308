"""Sections of a repair: before and after beside its controls, and what was fixed and what broke as pictures."""

from __future__ import annotations

from typing import Any

from neurotest.repair.result import WORDS
from neurotest.report import pictures
from neurotest.report.section import Conclusion, Row, section
from neurotest.runs.store import Run

COMMANDS = ("repair",)


@section("repair", title="Repair", order=0, commands=COMMANDS)
def repair(run: Run) -> Row:
    summary = run["summary"]
    rows = [
        {
            "name": WORDS.get(name, name), **numbers,
            "controls": [summary["controls"][control][name] for control in summary["controls"]],
        }
        for name, numbers in _ordered(summary["sets"])
    ]  # fmt: skip
    return {
        "subject": summary["target"], "rows": rows, "names": list(summary["controls"]), "conclusion": _conclusion(run),
    }  # fmt: skip


def _conclusion(run: Run) -> Conclusion:
    summary = run["summary"]
    clean, accepted = summary["sets"]["clean"], summary["accepted"]
    refused = "" if accepted else "Refused: the new weights break more of the holdout than they fix. "
    sentence = (
        f"{refused}Clean accuracy {100 * clean['before']:.1f} % before, {100 * clean['after']:.1f} % after; of the holdout "
        f"{clean['fixed']} inputs were fixed and {clean['broken']} broken."
    )
    deeper = ("The repaired network from all sides", f"neurotest check run:{run.path.name} DATA")
    may_replace = ("May it replace the old one?", f"neurotest gate {run['config']['target']} run:{run.path.name} DATA")
    return Conclusion(sentence, bad=not accepted, steps=(deeper, may_replace) if accepted else ())


def _ordered(sets: dict[str, Any]) -> list[tuple[str, Any]]:
    """A run stores keys by the alphabet; data come before attacks here."""
    known = list(WORDS)
    return sorted(sets.items(), key=lambda one: (known.index(one[0]) if one[0] in known else len(known), one[0]))


@section("repair-flips", title="What changed", order=10, commands=COMMANDS)
def repair_flips(run: Run) -> Row | None:
    classes = run["classes"]
    files = {(file.position, file.role): file.file for file in run.files()}
    groups: dict[str, list[Row]] = {"fixed": [], "broken": []}
    for row in run.inputs():
        role = str(row.extra["role"])
        numbers = (row.label, row.predicted, int(row.extra["after"]))
        label, before, after = (classes[n] if n is not None and 0 <= n < len(classes) else n for n in numbers)
        picture = pictures.of_file(files.get((row.position, role)))
        about = {"label": label, "before": before, "after": after, "set": WORDS.get(row.extra["set"], row.extra["set"])}
        groups[role].append({"picture": picture, "index": row.extra["index"], **about})
    return {"groups": groups} if any(groups.values()) else None
