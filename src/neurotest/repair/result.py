"""The result of a repair: accuracies before and after, beside controls, what was fixed and what broke, the new network."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from neurotest.generate.outcome import Outcome
from neurotest.target import Target

WORDS = {
    "clean": "holdout as it is", "mutated": "holdout, mutated as in training", "unseen-operators": "holdout, unseen operators",
    "faults-seen": "held-out faults, families seen", "faults-unseen": "held-out faults, families unseen",
    "faults-operators": "held-out faults, operators unseen", "shift": "natural shift",
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class RepairResult(Outcome):
    """sets: numbers by set. controls: the same for every control, with the protocol's gain over it. repaired: the new network."""

    target: str
    protocol: str
    repeats: int
    sets: dict[str, dict[str, Any]]
    controls: dict[str, dict[str, dict[str, Any]]]
    absent: dict[str, str]  # controls that could not be run, and why
    fixed: dict[str, list[int]]
    broken: dict[str, list[int]]
    accepted: bool  # False: refused by no_regression
    plan: dict[str, Any]
    trained: list[dict[str, Any]]
    seconds: float
    notes: tuple[str, ...] = ()
    weights: Path | None = None
    run: Path | None = None
    repaired: Target | None = field(default=None, repr=False)

    def headline(self) -> str:
        clean, hard = self.sets["clean"], self.sets.get("mutated") or self.sets["clean"]
        text = (
            f"{self.protocol}: clean accuracy {clean['before']:.1%} -> {clean['after']:.1%}, mutated {hard['before']:.1%} -> "
            f"{hard['after']:.1%}; on the holdout {clean['fixed']} fixed, {clean['broken']} broken"
        )
        return text if self.accepted else f"refused, the weights break more than they fix. {text}"

    def table(self) -> list[dict[str, Any]]:
        """One row per set: before, after, and each control's accuracy."""
        rows = []
        for name, numbers in self.sets.items():
            beside = {control: by_set[name]["after"] for control, by_set in self.controls.items()}
            rows.append({"set": WORDS.get(name, name), **numbers, **beside})
        return rows

    def to_dict(self) -> dict[str, Any]:
        return {
            "target": self.target, "protocol": self.protocol, "repeats": self.repeats, "accepted": self.accepted,
            "sets": self.sets, "controls": self.controls, "absent": self.absent, "fixed": self.fixed, "broken": self.broken,
            "plan": self.plan, "trained": self.trained, "seconds": round(self.seconds, 1), "notes": list(self.notes),
            "weights": None if self.weights is None else str(self.weights), "run": None if self.run is None else str(self.run),
        }  # fmt: skip
