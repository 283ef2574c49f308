"""The result of a check: a verdict, findings in their order, and what every examination measured."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from neurotest.check.finding import CheckItem, Finding, ranked
from neurotest.generate.outcome import Outcome

UNFINISHED = {
    "trigger": "the search for learned patches (trigger)",
    "attacks": "the attacks",
    "campaign": "the campaign of changed inputs",
}


@dataclass(frozen=True, eq=False)
class CheckResult(Outcome):
    """findings: alarms first. examined: what each examination gave, in their order."""

    target: str
    data: str
    inputs: int
    of: int  # inputs the data have; those beyond `inputs` were left out for want of time
    examined: tuple[CheckItem, ...] = field(repr=False)
    seconds: float
    notes: tuple[str, ...] = ()
    run: Path | None = None

    @property
    def findings(self) -> list[Finding]:
        return ranked(self.examined)

    @property
    def alarms(self) -> int:
        return sum(finding.severity == "alarm" for finding in self.findings)

    @property
    def verdict(self) -> str:
        alarms = [finding for finding in self.findings if finding.severity == "alarm"]
        if alarms:
            more = "" if len(alarms) == 1 else f" (and {len(alarms) - 1} more)"
            return f"{len(alarms)} alarm{'s' if len(alarms) > 1 else ''}: {alarms[0].sentence}{more}"
        skipped = [one.name for one in self.examined if one.skipped]
        short = [UNFINISHED.get(one.name, one.name) for one in self.examined if one.ran_out and not one.skipped]
        text = f"no alarm in {len(self.examined) - len(skipped)} examinations"
        text += f"; not examined: {', '.join(skipped)}" if skipped else ""
        return text + (f"; the time was too short to finish {' and '.join(short)}: no alarm there says little" if short else "")

    def headline(self) -> str:
        return self.verdict

    def table(self) -> list[dict[str, Any]]:
        """One row per finding."""
        return [
            {"severity": f.severity, "examination": f.examination, "finding": f.sentence, "deeper": f.deeper}
            for f in self.findings
        ]

    def to_dict(self) -> dict[str, Any]:
        examinations = {one.name: one.to_dict() for one in self.examined}
        return {
            "verdict": self.verdict, "alarms": self.alarms, "target": self.target, "data": self.data, "inputs": self.inputs,
            "of": self.of, "accuracy": examinations.get("accuracy", {}).get("accuracy"),
            "findings": [finding.to_dict() for finding in self.findings], "examinations": examinations,
            "seconds": round(self.seconds, 3), "notes": list(self.notes), "run": str(self.run) if self.run else None,
        }  # fmt: skip
