"""What the excitability paper prints of speaker recognition."""

from __future__ import annotations

from neurotest_lab.studies.frame import Row, printed

PAPER = printed("speaker")
METHODS, ERRORS, INCOMPLETE, ABSENT = (PAPER[key] for key in ("methods", "errors", "incomplete", "absent"))
THEIRS = {"speakers-resnet": "ResNet-34", "speakers-deepspeaker": "Deep Speaker"}  # ours -> theirs
COLUMN = {name: i for i, name in enumerate(METHODS)} | {"excitability-gradient": 3}


def errors(network: str, method: str) -> float | None:
    """Printed test errors."""
    return _pair(network, method)[0]


def average(network: str, method: str) -> float | None:
    """Printed error categories per seed, as they divide."""
    kinds = _pair(network, method)[1]
    return None if kinds is None else kinds / 1000


def _pair(network: str, method: str) -> tuple[float | None, float | None]:
    name = THEIRS.get(network)
    if name is None or method not in COLUMN:
        return None, None
    count, kinds = ERRORS[name][COLUMN[method]]
    return count, kinds


def incomplete(network: str, method: str) -> float | None:
    """Printed share of 1,000 test inputs that are errors; of Deep Speaker."""
    base, _, fault = network.partition("+")
    if THEIRS.get(base) != "Deep Speaker" or method not in COLUMN:
        return None
    share: float = INCOMPLETE[fault or "well trained"][COLUMN[method]] / 1000
    return share


def rows() -> list[Row]:
    table: list[Row] = [
        {"table": "6", "network": network, "method": method, "errors": count, "categories": kinds}
        for network, numbers in ERRORS.items()
        for method, (count, kinds) in zip(METHODS, numbers, strict=True)
    ]
    return table + [
        {"table": "7", "network": f"Deep Speaker, {kind}", "method": method, "errors": count, "categories": None}
        for kind, counts in INCOMPLETE.items()
        for method, count in zip(METHODS, counts, strict=True)
    ]
