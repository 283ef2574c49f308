"""The result of measuring coverage: one measurement per criterion, as typed, and how each grew."""

from __future__ import annotations

import html
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from neurotest.coverage.criterion import Value
from neurotest.files import write_json

MEANING = (
    "Coverage says how much of the network was exercised, not how good the tests are: "
    "inputs of high coverage need not find faults."
)


@dataclass(frozen=True)
class Measured:
    """One criterion's value, its settings in full, how it grew with the inputs and, if asked for, its value per class."""

    canonical: str
    layers: str
    neuron: str
    mergeable: bool
    profile: int | None  # how many training inputs it knows
    value: Value
    growth: tuple[tuple[int, float], ...] = ()  # (inputs, value)
    by_class: Mapping[str, Value] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            **self.value.whole.to_dict(),
            "canonical": self.canonical,
            "layers": self.layers,
            "neuron": self.neuron,
            "order_matters": not self.mergeable,
            "profile": self.profile,
            "per_layer": {name: share.to_dict() for name, share in self.value.layers.items()},
            "growth": [[n, v] for n, v in self.growth],
            "nonfinite": dict(self.value.nonfinite),
            "notes": list(self.value.notes),
        }
        if self.by_class:
            found["by_class"] = {name: value.whole.to_dict() for name, value in self.by_class.items()}
        return found


@dataclass(frozen=True)
class Coverage:
    """What a set of inputs covers of a target."""

    criteria: Mapping[str, Measured]  # by the text (or repr) that asked for it
    layers: str
    neuron: str
    inputs: int
    target: str
    data: str
    train: str | None
    memory: int  # bytes, estimated
    skipped: tuple[str, ...] = ()  # files that could not be read, and why
    run: Path | None = None

    def __getitem__(self, name: str) -> Measured:
        return self.criteria[name]

    @property
    def notes(self) -> tuple[str, ...]:
        """What has to be known about the numbers, each sentence with the criterion it is about."""
        found = [f"{name}: {note}" for name, found in self.criteria.items() for note in found.value.notes]
        if self.skipped:
            found.append(f"{len(self.skipped)} files were skipped, the first: {self.skipped[0]}")
        return tuple(found)

    def to_dict(self) -> dict[str, Any]:
        return {
            "criteria": {name: found.to_dict() for name, found in self.criteria.items()},
            "layers": self.layers,
            "neuron": self.neuron,
            "inputs": self.inputs,
            "target": self.target,
            "data": self.data,
            "train": self.train,
            "memory": self.memory,
            "skipped": list(self.skipped),
            "notes": list(self.notes),
            "meaning": MEANING,
            "run": str(self.run) if self.run else None,
        }

    def table(self) -> list[dict[str, Any]]:
        """One row per criterion."""
        return [{"criterion": name, **found.value.whole.to_dict()} for name, found in self.criteria.items()]

    def never(self) -> dict[str, dict[str, list[int]]]:
        """Per criterion and layer, the neurons of which nothing was covered."""
        return {name: {layer: list(ids) for layer, ids in found.value.never.items()} for name, found in self.criteria.items()}

    def save(self, path: str | Path) -> Path:
        """Write everything `to_dict` gives as JSON."""
        path = Path(path)
        write_json(path, self.to_dict())
        return path

    def _repr_html_(self) -> str:
        cells = ("criterion", "covered", "total", "value", "dead")
        rows = "".join(
            "<tr>" + "".join(f"<td>{html.escape(_text(row[c]))}</td>" for c in cells) + "</tr>" for row in self.table()
        )
        head = "".join(f"<th>{c}</th>" for c in cells)
        return f"<table><tr>{head}</tr>{rows}</table><p>{MEANING}</p>"


def _text(value: Any) -> str:
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
