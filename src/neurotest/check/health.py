"""Is the network ready to be tested, and described as it was trained: the doctor's findings."""

from __future__ import annotations

from neurotest.check.base import Check, CheckContext, CheckItem, Clock
from neurotest.checks import setting
from neurotest.doctor import doctor
from neurotest.doctor.context import Finding, Level
from neurotest.registry import register

PASSES, LEAST_INPUTS = 40, 128  # that the doctor makes over its inputs, and inputs it looks at however slow the network is
LEVELS: dict[str, tuple[Level, float]] = {"problem": ("alarm", 1.0), "warning": ("note", 0.4)}  # with their strength


@register(
    "check", "health", paper="neurotest's doctor", main="inputs",
    cost="some forty passes over 512 inputs, over fewer where that would take too long",
)  # fmt: skip
class Health(Check):
    """Outputs, eval mode, bounds, normalisation, class order, determinism, dead neurons: what `neurotest doctor` looks at.

    What it calls a problem is an alarm: numbers measured on such a target would be wrong. inputs: how many it looks at.
    """

    order = 0
    labels = False

    inputs: int = setting(512, "512 tell readings of the inputs apart")

    def examine(self, context: CheckContext, clock: Clock) -> CheckItem:
        fitting = int(clock.seconds / (PASSES * context.pace))
        limit = min(self.inputs, max(LEAST_INPUTS, fitting))
        diagnosis = doctor(context.target, context.source, limit=limit, progress=lambda done, total: context.tick())
        deeper = f"neurotest doctor {context.words}"
        findings = [
            Finding(self.name, level, f"{one.check}: {one.sentence}", one.advice, strength, deeper=deeper)
            for one in diagnosis.findings
            if one.level in LEVELS
            for level, strength in [LEVELS[one.level]]
        ]
        problems, warnings = diagnosis.count("problem"), diagnosis.count("warning")
        numbers = {"problems": problems, "warnings": warnings, "checks": len(diagnosis.findings)}
        return CheckItem(
            self.name, f"{problems} problems, {warnings} warnings in {numbers['checks']} checks", tuple(findings), numbers
        )
