"""The result of differential testing: outputs, every target's predictions, and random changes of the same size beside."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neurotest.generate.suite import AttackResult


@dataclass(frozen=True, eq=False)
class DiffResult(AttackResult):
    """Outputs as they are saved; a seed may have several. A fault: the targets disagree (one target: it left the seed's class).

    `predictions` are those of every target, classes or regression values; `predicted` is that of the first target that left the
    class of the seed or, of regression values, that is farthest from it.
    """

    predictions: NDArray[Any] = field(default_factory=lambda: np.empty((0, 0), dtype=np.int64), repr=False)  # (n, targets)
    left: NDArray[np.bool_] = field(
        default_factory=lambda: np.empty((0, 0), dtype=bool), repr=False
    )  # (n, targets) the seed's class
    steps: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64), repr=False)
    targets: tuple[str, ...] = ()
    operator: str = ""
    coverage: tuple[float, ...] = ()  # of each target's neurons, by what the method counts
    disagreed: int = 0  # seeds on which the targets differ as they are: set aside

    @property
    def numbers(self) -> NDArray[np.int64]:
        return np.arange(len(self))

    def about(self, i: int) -> dict[str, Any]:
        return {
            **super().about(i),
            "operator": self.operator,
            "seed": int(self.positions[i]),
            "steps": int(self.steps[i]),
            "said": self.predictions[i].tolist(),
        }

    @property
    def by_target(self) -> dict[str, int]:
        """In how many faults each target left the class of the seed."""
        left = self.left & self.fault[:, None]
        names = [f"{spec} ({i + 1})" if self.targets.count(spec) > 1 else spec for i, spec in enumerate(self.targets)]
        return {name: int(n) for name, n in zip(names, left.sum(0), strict=True)}

    def to_dict(self) -> dict[str, Any]:
        plain = super().to_dict()
        del plain["attack"], plain["diversity"]
        mean = float(self.steps[self.fault].mean()) if self.faults else None
        roots = len(np.unique(self.positions))
        failed = len(np.unique(self.positions[self.fault]))
        random = len(np.unique(self.positions[self.control.fault]))
        return {
            **plain, "method": self.attack, "operator": self.operator, "targets": list(self.targets), "by_target": self.by_target,
            "coverage": list(self.coverage), "seeds": roots, "seeds_failed": failed / roots if roots else None,
            "random_seeds_failed": random / roots if roots else None, "mean_steps": mean, "disagreed": self.disagreed,
        }  # fmt: skip

    def table(self) -> list[dict[str, Any]]:
        return [{**row, "operator": self.operator} for row in super().table()]
