"""What an attack found: the suite itself and its numbers, beside random noise of the same size."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neurotest.data.source import ArraySource
from neurotest.files import write_json
from neurotest.stats.bootstrap import wilson
from neurotest.stats.evenness import evenness


def class_name(number: int, classes: Sequence[str] | None) -> str:
    if number < 0:
        return "non-finite"
    return classes[number] if classes and number < len(classes) else str(number)


@dataclass(frozen=True, eq=False)
class Control:
    """The seeds with the attack's own changes shuffled over the pixels: predictions (n,), and which of them are faults."""

    x: NDArray[np.generic]  # (n, *shape)
    predicted: NDArray[np.int64]
    fault: NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class AttackResult:
    """One output per seed, as it would be saved; `fault` says which the oracle condemned when it was run again."""

    attack: str
    diversity: str | None
    x: NDArray[np.generic] = field(repr=False)  # (n, *shape)
    seeds: NDArray[np.generic] = field(repr=False)  # (n, *shape)
    positions: NDArray[np.int64] = field(repr=False)  # (n,) in the source
    expected: NDArray[np.int64] = field(repr=False)
    predicted: NDArray[np.int64] = field(repr=False)
    fault: NDArray[np.bool_] = field(repr=False)
    distance: NDArray[np.float64] = field(repr=False)  # (n, 3) L0, L2, Linf in [0, 1]
    control: Control = field(repr=False)
    unstable: int  # failed before they were rounded to what is saved, not after
    set_aside: int
    forwards: int
    backwards: int
    seconds: float
    outputs_possible: int  # classes of the target
    classes: tuple[str, ...] | None = None
    run: Path | None = None
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.x)

    @property
    def faults(self) -> int:
        return int(self.fault.sum())

    @property
    def families(self) -> Counter[tuple[int, int]]:
        """(true, predicted) pairs of the faults."""
        return Counter(zip(self.expected[self.fault].tolist(), self.predicted[self.fault].tolist(), strict=True))

    @property
    def suite(self) -> ArraySource:
        """The outputs as data, each knowing its seed."""
        about: dict[str, Any] = {"spec": f"{self.attack} suite", "classes": self.classes}
        labels = self.expected
        return ArraySource(self.x, labels, originals=ArraySource(self.seeds, labels, classes=self.classes), **about)

    def to_dict(self) -> dict[str, Any]:
        predicted = Counter(self.predicted[self.fault].tolist())
        return {
            "outputs": len(self),
            "faults": self.faults,
            "families": len(self.families),
            "roots": len(np.unique(self.positions[self.fault])),
            "by_predicted": {class_name(k, self.classes): n for k, n in predicted.most_common()},
            "forwards": self.forwards,
            "seconds": round(self.seconds, 3),
            "run": str(self.run) if self.run else None,
            "attack": self.attack,
            "diversity": self.diversity,
            "success": _share(self.fault),
            "success_interval": _interval(self.fault),
            "evenness": {
                "all": evenness(self.predicted[self.predicted >= 0], self.outputs_possible),
                "faults": evenness(self.predicted[self.fault & (self.predicted >= 0)], self.outputs_possible),
                "clean": evenness(self.expected, self.outputs_possible),
            },
            "distance": {name: _mean(self.distance[self.fault, i]) for i, name in enumerate(("l0", "l2", "linf"))},
            "random": {
                "faults": int(self.control.fault.sum()),
                "success": _share(self.control.fault),
                "success_interval": _interval(self.control.fault),
            },
            "backwards": self.backwards,
            "unstable": self.unstable,
            "set_aside": self.set_aside,
            "notes": list(self.notes),
        }

    def table(self) -> list[dict[str, Any]]:
        """One row per (true, predicted) pair, most frequent first."""
        return [
            {"true": class_name(t, self.classes), "predicted": class_name(p, self.classes), "faults": n}
            for (t, p), n in self.families.most_common()
        ]

    def save(self, path: str | Path) -> Path:
        path = Path(path)
        write_json(path, self.to_dict())
        return path

    def _repr_html_(self) -> str:
        rows = "".join(
            "<tr>" + "".join(f"<td>{html.escape(str(v))}</td>" for v in row.values()) + "</tr>" for row in self.table()[:20]
        )
        noise = int(self.control.fault.sum())
        told = f"{self.attack}: {self.faults} faults from {len(self)} seeds; random noise of the same size: {noise}"
        return f"<p>{html.escape(told)}</p><table><tr><th>true</th><th>predicted</th><th>faults</th></tr>{rows}</table>"


def _share(mask: NDArray[np.bool_]) -> float | None:
    return float(mask.mean()) if len(mask) else None


def _interval(mask: NDArray[np.bool_]) -> list[float] | None:
    if not len(mask):
        return None
    found = wilson(int(mask.sum()), len(mask))
    return [found.low, found.high]


def _mean(values: NDArray[np.float64]) -> float | None:
    return float(values.mean()) if len(values) else None
