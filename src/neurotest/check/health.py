"""Is the network ready to be tested, and described as it was trained: the doctor's findings."""

from __future__ import annotations

from typing import ClassVar

from neurotest.check.examination import Check
from neurotest.check.finding import CheckItem, Finding
from neurotest.check.subject import CheckContext, Clock
from neurotest.checks import setting
from neurotest.doctor import doctor
from neurotest.registry import register

PASSES, LEAST = 40, 128  # that the doctor makes over its inputs, and inputs it looks at however slow the network is
STRENGTH = {"problem": 1.0, "warning": 0.4}


@register(
    "examination", "health", paper="neurotest's doctor", main="inputs",
    cost="some forty passes over 512 inputs, over fewer where that would take too long",
)  # fmt: skip
class Health(Check):
    """Outputs, eval mode, bounds, normalisation, class order, determinism, dead neurons: what `neurotest doctor` looks at.

    What it calls a problem is an alarm: numbers measured on such a target would be wrong. inputs: how many it looks at.
    """

    name: ClassVar[str] = "health"
    order: ClassVar[int] = 0
    share: ClassVar[float] = 1.0
    labels: ClassVar[bool] = False

    inputs: int = setting(512, "512 tell readings of the inputs apart")

    def examine(self, subject: CheckContext, clock: Clock) -> CheckItem:
        fitting = int(clock.seconds / (PASSES * subject.pace))
        limit = min(self.inputs, max(LEAST, fitting))
        diagnosis = doctor(subject.target, subject.source, limit=limit, progress=lambda done, total: subject.tick())
        findings = [
            Finding(
                self.name, "alarm" if finding.level == "problem" else "note", STRENGTH[finding.level],
                f"{finding.check}: {finding.says}", advice=finding.do, deeper=f"neurotest doctor {subject.words}",
            )
            for finding in diagnosis.findings
            if finding.level in STRENGTH
        ]  # fmt: skip
        problems, warnings = diagnosis.count("problem"), diagnosis.count("warning")
        numbers = {"problems": problems, "warnings": warnings, "checks": len(diagnosis.findings)}
        return CheckItem(
            self.name, f"{problems} problems, {warnings} warnings in {numbers['checks']} checks", tuple(findings), numbers
        )
