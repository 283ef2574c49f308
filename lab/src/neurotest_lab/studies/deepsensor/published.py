"""What the two DeepSensor papers print."""

from __future__ import annotations

from typing import Any

from neurotest_lab.studies.frame import printed

PAPER = printed("deepsensor")
METHODS, ERRORS, POLLUTED, INCOMPLETE, TIME = (PAPER[key] for key in ("methods", "errors", "polluted", "incomplete", "time"))


COLUMN = {name: i for i, name in enumerate(METHODS)} | {"sensitivity-paper": 3, "excitability-gradient": 3}


def _pair(subject: str, method: str) -> tuple[float, float] | None:
    return ERRORS[subject][COLUMN[method]] if subject in ERRORS and method in COLUMN else None


def errors(subject: str, method: str) -> float | None:
    """Printed test errors, of 20,000 opportunities."""
    pair = _pair(subject, method)
    return pair[0] if pair else None


def average(subject: str, method: str) -> float | None:
    """Printed error categories per seed."""
    pair = _pair(subject, method)
    return pair[1] / 1000 if pair else None


def polluted(network: str, method: str) -> float | None:
    """Printed share of 1,000 test inputs that fall into the polluted class; LeNet-5 only, of what can be run here."""
    base, _, fault = network.partition("+")
    return _share(POLLUTED, base, f"{fault.removeprefix('polluted')}%", method)


def incomplete(network: str, method: str) -> float | None:
    """Printed share of 1,000 test inputs that are errors."""
    base, _, fault = network.partition("+")
    return _share(INCOMPLETE, base, fault or "well trained", method)


def _share(counts: Any, base: str, setting: str, method: str) -> float | None:
    printed_here = base == "mnist-lenet5" and setting in counts and method in COLUMN
    return counts[setting][COLUMN[method]] / 1000 if printed_here else None


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
