"""What an examination reports: findings with their evidence and pictures, and the numbers they rest on."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from neurotest.jobs.parts import Arrays
from neurotest.runs.plain import plain
from neurotest.stats.bootstrap import Interval

Severity = Literal["alarm", "note"]


@dataclass(frozen=True, eq=False)
class CaptionedImage:
    """An input as it lies in a source, or a changed one, and what is said below it."""

    x: NDArray[Any]
    caption: str


@dataclass(frozen=True, eq=False)
class Finding:
    """One thing to know. alarm: do not rely on the network, or on the numbers, before it is dealt with. note: good to know.

    strength: from 0 to 1, ranks findings of equal severity. evidence: rows (what, number, interval or None). deeper: the command
    that looks closer.
    """

    examination: str
    severity: Severity
    strength: float
    sentence: str
    evidence: tuple[tuple[str, float, tuple[float, float] | None], ...] = ()
    pictures: tuple[CaptionedImage, ...] = ()
    deeper: str = ""
    advice: str = ""

    def to_dict(self) -> dict[str, Any]:
        rows = [{"what": what, "value": value, "interval": limits} for what, value, limits in self.evidence]
        return {
            "examination": self.examination, "severity": self.severity, "strength": float(self.strength),
            "sentence": self.sentence, "advice": self.advice, "evidence": rows, "deeper": self.deeper,
            "captions": [picture.caption for picture in self.pictures],
        }  # fmt: skip


def share(what: str, interval: Interval) -> tuple[str, float, tuple[float, float]]:
    """A row of evidence."""
    return what, float(interval.value), (float(interval.low), float(interval.high))


def percent(interval: Interval) -> str:
    """Such as `12.0 % (10.1 .. 14.0)`."""
    value, low, high = (100 * number for number in interval)
    return f"{value:.1f} % ({low:.1f} .. {high:.1f})"


@dataclass(frozen=True, eq=False)
class CheckItem:
    """What one examination gave. numbers: for the JSON. summary: one line on the page. ran_out: whether its time ended it."""

    name: str
    summary: str
    findings: tuple[Finding, ...] = ()
    numbers: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    ran_out: bool = False
    skipped: bool = False  # it does not fit this target or these data; the summary says why

    def to_dict(self) -> dict[str, Any]:
        about = {"summary": self.summary, "seconds": round(self.seconds, 3), "ran_out": self.ran_out, "skipped": self.skipped}
        result: dict[str, Any] = plain({**about, **self.numbers})
        return result

    def arrays(self) -> Arrays:
        """As a part of a run."""
        findings = [finding.to_dict() for finding in self.findings]
        about = {
            "name": self.name, "summary": self.summary, "numbers": self.numbers, "seconds": self.seconds, "ran_out": self.ran_out,
            "skipped": self.skipped, "findings": findings,
        }  # fmt: skip
        pictures = [picture for finding in self.findings for picture in finding.pictures]
        images = {f"picture{number}": picture.x for number, picture in enumerate(pictures)}
        return {"about": np.array(json.dumps(plain(about))), **images}

    @classmethod
    def read(cls, arrays: Arrays) -> CheckItem:
        """The inverse of `arrays`."""
        about = json.loads(str(arrays["about"]))
        number, findings = 0, []
        for row in about.pop("findings"):
            captions = row.pop("captions")
            pictures = [CaptionedImage(arrays[f"picture{number + i}"], caption) for i, caption in enumerate(captions)]
            number += len(captions)
            evidence = tuple((e["what"], e["value"], e["interval"] and tuple(e["interval"])) for e in row.pop("evidence"))
            findings.append(Finding(**row, evidence=evidence, pictures=tuple(pictures)))
        return cls(**about, findings=tuple(findings))


def ranked(examined: Iterable[CheckItem]) -> list[Finding]:
    """Alarms first, then by strength; of equal ones in the order of the examinations."""
    findings = [finding for one in examined for finding in one.findings]
    return sorted(findings, key=lambda finding: (finding.severity != "alarm", -finding.strength))
