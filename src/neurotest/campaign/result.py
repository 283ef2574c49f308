"""What a campaign found, in numbers, each beside what taking anything would have given."""

from __future__ import annotations

import html
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from neurotest.files import write_json
from neurotest.generate.fuzz.mutants import Key, Tally
from neurotest.stats.bootstrap import wilson


def evenness(counts: list[int], classes: int) -> float | None:
    """Pielou's: entropy of the predicted classes over its largest possible value (output impartiality)."""
    total = sum(counts)
    if not total or classes < 2:
        return None
    shares = np.array([n / total for n in counts if n])
    return float(abs(-(shares * np.log(shares)).sum() / np.log(classes)))


def class_name(number: int, classes: tuple[str, ...] | None) -> str:
    if number < 0:
        return "non-finite"
    return classes[number] if classes and number < len(classes) else str(number)


@dataclass(frozen=True, eq=False)
class FuzzResult:
    """Counts of a campaign; `run` is where mutants, chains and images lie."""

    tally: Tally = field(repr=False)
    classes: tuple[str, ...] | None
    outputs_possible: int  # classes of the target
    set_aside: int
    seeds: int
    guide: str
    coverage: float | None
    stopped: str
    run: Path | None = None
    notes: tuple[str, ...] = ()

    @property
    def faults(self) -> int:
        return self.tally.faults

    @property
    def families(self) -> dict[Key, int]:
        return dict(self.tally.families.most_common())

    def to_dict(self) -> dict[str, Any]:
        tally = self.tally
        low, high = _interval(tally.accepted_faults, tally.accepted)
        control_low, control_high = _interval(tally.control_faults, tally.control_outputs)
        true = {key[0] for key in tally.families}
        return {
            "outputs": tally.outputs,
            "faults": tally.faults,
            "families": len(tally.families),
            "roots": len(tally.roots),
            "by_predicted": {class_name(k, self.classes): n for k, n in tally.predicted.most_common()},
            "forwards": tally.forwards,
            "seconds": round(tally.seconds, 3),
            "run": str(self.run) if self.run else None,
            "iterations": tally.iterations,
            "accepted": tally.accepted,
            "accepted_faults": tally.accepted_faults,
            "rft": tally.accepted_faults / tally.accepted if tally.accepted else None,
            "rft_interval": [low, high],
            "faults_per_1000_forwards": 1000 * tally.faults / tally.forwards if tally.forwards else None,
            "classes": {"true": len(true), "predicted": len([k for k in tally.predicted if k >= 0])},
            "evenness": evenness(list(tally.predicted.values()), self.outputs_possible),
            "random": {
                "outputs": tally.control_outputs,
                "faults": tally.control_faults,
                "families": len(tally.control_families),
                "rft": tally.control_faults / tally.control_outputs if tally.control_outputs else None,
                "rft_interval": [control_low, control_high],
            },
            "by_operator": {name: {"faults": tally.operators[name], "tested": n} for name, n in tally.tried.most_common()},
            "unseen": tally.unseen,
            "unstable": tally.unstable,
            "seeds": self.seeds,
            "set_aside": self.set_aside,
            "guide": self.guide,
            "coverage": self.coverage,
            "stopped": self.stopped,
            "notes": list(self.notes),
        }

    def table(self) -> list[dict[str, Any]]:
        """One row per family, most frequent first."""
        return [
            {"true": class_name(t, self.classes), "predicted": class_name(p, self.classes), "operator": o, "faults": n}
            for (t, p, o), n in self.tally.families.most_common()
        ]

    def save(self, path: str | Path) -> Path:
        path = Path(path)
        write_json(path, self.to_dict())
        return path

    def _repr_html_(self) -> str:
        rows = "".join(
            "<tr>" + "".join(f"<td>{html.escape(str(v))}</td>" for v in row.values()) + "</tr>" for row in self.table()[:20]
        )
        head = "".join(f"<th>{name}</th>" for name in ("true", "predicted", "operator", "faults"))
        told = f"{self.faults} faults in {len(self.families)} families from {self.tally.forwards} forward passes"
        return f"<p>{html.escape(told)}</p><table><tr>{head}</tr>{rows}</table>"


def _interval(part: int, whole: int) -> tuple[float | None, float | None]:
    if not whole:
        return None, None
    found = wilson(part, whole)
    return float(found.low), float(found.high)
