"""What the doctor reports."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from neurotest.target.failures import ForwardError

Level = Literal["ok", "note", "warning", "problem"]
ORDER: tuple[Level, ...] = ("problem", "warning", "note", "ok")


def first_line(error: BaseException) -> str:
    """What an exception says first: a stranger's code may raise anything."""
    if isinstance(error, ForwardError) and error.__cause__ is not None:
        error = error.__cause__
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


@dataclass(frozen=True)
class Finding:
    """One check: what was seen and, unless all is well, what to do.

    problem: numbers measured on this target would be wrong. warning: look at it first. note: good to know.
    """

    check: str
    level: Level
    says: str
    do: str = ""


@dataclass(frozen=True)
class Diagnosis:
    """All findings of one examination, worst first, and the facts they rest on."""

    target: str
    data: str | None
    findings: tuple[Finding, ...]
    facts: dict[str, Any] = field(default_factory=dict)

    def count(self, level: Level) -> int:
        return sum(finding.level == level for finding in self.findings)

    @property
    def healthy(self) -> bool:
        return not self.count("problem")

    def __getitem__(self, check: str) -> Finding:
        """The worst finding of a check."""
        return next(finding for finding in self.findings if finding.check == check)

    def table(self) -> str:
        """The findings as lines of text."""
        lines = [f"{f.level:8}{f.check:14}{f.says}" + (f"\n{'':22}-> {f.do}" if f.do else "") for f in self.findings]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        return {
            "target": self.target, "data": self.data, "problems": self.count("problem"), "warnings": self.count("warning"),
            "findings": [asdict(finding) for finding in self.findings], **self.facts,
        }  # fmt: skip
