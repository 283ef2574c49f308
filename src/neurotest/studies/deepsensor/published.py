"""What the two DeepSensor papers print."""

from __future__ import annotations

from typing import Any

from neurotest.studies.frame import printed

PAPER = printed("deepsensor")
METHODS, ERRORS, POLLUTED, INCOMPLETE, TIME = (PAPER[key] for key in ("methods", "errors", "polluted", "incomplete", "time"))


def average(subject: str, method: str) -> float | None:
    """Printed error categories per seed."""
    column = {name: i for i, name in enumerate(METHODS)} | {"sensitivity-paper": 3, "excitability-gradient": 3}
    return ERRORS[subject][column[method]][1] / 1000 if subject in ERRORS and method in column else None


def rows() -> list[dict[str, Any]]:
    table: list[dict[str, Any]] = [
        {"table": "II, 3", "subject": subject, "method": method, "errors": errors, "categories": kinds, "average": kinds / 1000}
        for subject, numbers in ERRORS.items()
        for method, (errors, kinds) in zip(METHODS, numbers, strict=True)
    ]
    return table + [
        {"table": name, "subject": f"LeNet-5 {kind}{setting}", "method": method, "errors": errors, "categories": None,
         "average": None}
        for name, kind, values in (("III, 4", "polluted ", POLLUTED), ("IV, 5", "", INCOMPLETE))
        for setting, counts in values.items()
        for method, errors in zip(METHODS, counts, strict=True)
    ]  # fmt: skip
