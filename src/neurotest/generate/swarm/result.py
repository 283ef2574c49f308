"""The numbers of a swarm, beside its controls."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neurotest.generate.fuzz.mutants import Tally
from neurotest.generate.outcome import Outcome, class_name, interval
from neurotest.generate.swarm.controls import SwarmControl
from neurotest.generate.swarm.engine import Moment
from neurotest.notebook import Picture, beside


@dataclass(frozen=True, eq=False)
class SwarmResult(Outcome):
    """Counts of a swarm; `run` is where its faults lie. `x`, `rows`, `predicted` are the faults themselves."""

    tally: Tally = field(repr=False)
    fitness: str
    norm: str
    radius: float
    seeds: int
    set_aside: int
    labels: int  # different (seed, wrong label) pairs
    evaluations: float  # forward passes per seed, a backward one counting two
    errors: int  # best positions that failed, summed over iterations: the papers' test errors
    classes: tuple[str, ...] | None
    controls: dict[str, SwarmControl]
    history: tuple[Moment, ...] = field(repr=False)
    x: NDArray[np.generic] = field(repr=False)  # (faults, *shape) as saved
    rows: NDArray[np.int64] = field(repr=False)  # (faults,) positions of their seeds in the data
    predicted: NDArray[np.int64] = field(repr=False)
    run: Path | None = None
    notes: tuple[str, ...] = ()

    @property
    def faults(self) -> int:
        return self.tally.faults

    @property
    def failed(self) -> int:
        """Seeds with at least one fault."""
        return len(self.tally.roots)

    def to_dict(self) -> dict[str, Any]:
        tally = self.tally
        return {
            "outputs": tally.outputs,
            "faults": tally.faults,
            "families": len(tally.families),
            "roots": self.failed,
            "by_predicted": {class_name(k, self.classes): n for k, n in tally.predicted.most_common()},
            "forwards": tally.forwards,
            "seconds": round(tally.seconds, 3),
            "run": str(self.run) if self.run else None,
            "fitness": self.fitness,
            "norm": self.norm,
            "radius": self.radius,
            "seeds": self.seeds,
            "set_aside": self.set_aside,
            "rate": self.failed / self.seeds,
            "rate_interval": interval(self.failed, self.seeds),
            "labels_per_seed": self.labels / self.seeds,
            "evaluations_per_seed": self.evaluations,
            "errors": self.errors,
            "best_fitness": self.history[-1].fitness if self.history else None,
            "controls": {name: one.to_dict(self.seeds) for name, one in self.controls.items()},
            "unstable": tally.unstable,
            "notes": list(self.notes),
        }

    def table(self) -> list[dict[str, Any]]:
        """One row per family, most frequent first."""
        return [
            {"true": class_name(t, self.classes), "predicted": class_name(p, self.classes), "faults": n}
            for (t, p, _), n in self.tally.families.most_common()
        ]

    def pictures(self) -> Iterator[Picture]:
        named = zip(self.rows.tolist(), self.predicted.tolist(), strict=True)
        return beside(None, self.x, (f"seed {row} taken for {class_name(int(p), self.classes)}" for row, p in named))

    def headline(self) -> str:
        controls = ", ".join(f"{name} {one.failed}" for name, one in self.controls.items())
        return f"{self.failed} of {self.seeds} seeds fail" + (f"; controls: {controls}" if controls else "")
