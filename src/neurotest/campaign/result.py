"""The numbers of a campaign, each beside that of random mutation with as many forward passes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from neurotest.campaign.believed import sentence as believed
from neurotest.campaign.verdict import compare, sentence
from neurotest.errors import BadInput
from neurotest.generate.fuzz.mutants import Key, Tally
from neurotest.generate.outcome import Outcome, class_name, interval, spread
from neurotest.notebook import PICTURES, Picture, beside
from neurotest.runs import codec
from neurotest.runs.store import Run

__all__ = ["FuzzResult", "class_name", "numbers"]


def numbers(tally: Tally, classes: tuple[str, ...] | None, possible: int) -> dict[str, Any]:
    """The counts of a guided campaign or of its control; `possible` is the number of the target's classes."""
    richness = tally.richness
    wrong = {k: n for k, n in tally.predicted.most_common() if k >= 0}
    return {
        "outputs": tally.outputs,
        "faults": tally.faults,
        "families": len(tally.families),
        "roots": len(tally.roots),
        "pairs": len({key[:2] for key in tally.families}),
        "by_predicted": {class_name(k, classes): n for k, n in tally.predicted.most_common()},
        "forwards": tally.forwards,
        "seconds": round(tally.seconds, 3),
        "iterations": tally.iterations,
        "accepted": tally.accepted,
        "accepted_faults": tally.accepted_faults,
        "rft": tally.accepted_faults / tally.accepted if tally.accepted else None,
        "rft_interval": interval(tally.accepted_faults, tally.accepted),
        "faults_per_1000_forwards": 1000 * tally.faults / tally.forwards if tally.forwards else None,
        "faults_per_1000_forwards_interval": _thousands(interval(min(tally.faults, tally.forwards), tally.forwards)),
        "classes": {"true": len({key[0] for key in tally.families}), "predicted": len(wrong)},
        "evenness": spread(wrong.values(), possible),
        "families_estimated": richness.value if tally.faults else None,
        "families_estimated_interval": [richness.low, richness.high] if tally.faults else None,
    }


def _thousands(limits: list[float] | None) -> list[float] | None:
    return None if limits is None else [1000 * limit for limit in limits]


@dataclass(frozen=True, eq=False, kw_only=True)
class FuzzResult(Outcome):
    """Counts of a campaign; `run` is where mutants, chains and images lie. control: None if there was none."""

    tally: Tally = field(repr=False)
    control: Tally | None = field(repr=False, default=None)
    classes: tuple[str, ...] | None
    outputs_possible: int  # classes of the target
    set_aside: int
    seeds: int
    guide: str
    coverage: float | None
    stopped: str
    run: Path | None = None
    notes: tuple[str, ...] = ()
    details: dict[str, Any] = field(default_factory=dict)  # what the guide says about itself
    valid: dict[str, Any] | None = None  # what share of the faults is believed to be valid
    seconds_by: dict[str, float] = field(default_factory=dict)  # of wall clock, by what took them
    islands: int = 1
    workers: int = 1  # that shared the work; the result does not depend on it

    @property
    def faults(self) -> int:
        return self.tally.faults

    @cached_property
    def verdict(self) -> dict[str, Any] | None:
        """Families, seeds broken and pairs of classes beside random's at equal forward passes, and who found more of which."""
        return None if self.control is None else compare(self.tally, self.control)

    @property
    def families(self) -> dict[Key, int]:
        return dict(self.tally.families.most_common())

    def to_dict(self) -> dict[str, Any]:
        tally, control = self.tally, self.control
        return {
            **numbers(tally, self.classes, self.outputs_possible),
            "seconds": round(sum(self.seconds_by.values()), 3),
            "seconds_by": self.seconds_by,
            "run": str(self.run) if self.run else None,
            "random": None if control is None else numbers(control, self.classes, self.outputs_possible),
            "verdict": self.verdict,
            "believed_valid": self.valid,
            "by_operator": {name: {"faults": tally.operators[name], "tested": n} for name, n in tally.tried.most_common()},
            "unseen": tally.unseen,
            "unstable": tally.unstable,
            "seeds": self.seeds,
            "set_aside": self.set_aside,
            "guide": self.guide,
            "islands": self.islands,
            "coverage": self.coverage,
            **({"guide_details": self.details} if self.details else {}),
            "stopped": self.stopped,
            "notes": list(self.notes),
        }

    def table(self) -> list[dict[str, Any]]:
        """One row per family, most frequent first."""
        return [
            {"true": class_name(t, self.classes), "predicted": class_name(p, self.classes), "operator": o, "faults": n}
            for (t, p, o), n in self.tally.families.most_common()
        ]

    def pictures(self) -> Iterator[Picture]:
        """One fault of each of the most frequent families, beside its seed; none once the run is gone."""
        from neurotest.campaign.families import families
        from neurotest.campaign.store import Store

        if self.run is None or not self.run.is_dir():
            return
        with suppress(BadInput), Run.open(self.run) as run:
            x, rows = Store(run).seeds()
            for family in families(self.run).families[:PICTURES]:
                fault, row = family.representative, rows.get(family.representative.root)
                if fault.file is None or row is None:
                    continue
                true, predicted, operator = family.key
                words = f"{class_name(true, self.classes)} taken for {class_name(predicted, self.classes)}, {operator}"
                yield from beside(np.array(x[row])[None], codec.decode(fault.file)[None], [words])

    def headline(self) -> str:
        text = f"{self.faults} faults in {len(self.families)} families from {self.tally.forwards} forward passes"
        text = "; ".join(filter(None, [text, believed(self.valid)]))
        if self.verdict is not None:
            return f"{text}; {sentence(self.verdict)}"
        control = self.control
        return text if control is None else f"{text}; random: {control.faults} in {len(control.families)} from {control.forwards}"
