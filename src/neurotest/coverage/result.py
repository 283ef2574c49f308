"""The result of measuring coverage: one measurement per criterion, as typed, and how each grew."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from neurotest.coverage.criterion import Value
from neurotest.errors import BadInput
from neurotest.files import write_json
from neurotest.notebook import table

MEANING = (
    "Coverage says how much of the network was exercised, not how good the tests are: "
    "inputs of high coverage need not find faults."
)


@dataclass(frozen=True)
class Measured:
    """One criterion's value, its settings in full, how it grew with the inputs and, if wanted, its value per class."""

    canonical: str
    layers: str
    neuron: str
    mergeable: bool
    profile: int | None  # how many training inputs it compares with
    value: Value
    growth: tuple[tuple[int, float], ...] = ()  # (inputs, value)
    by_class: Mapping[str, Value] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        content: dict[str, Any] = {
            **self.value.whole.to_dict(),
            **{name: getattr(self, name) for name in ("canonical", "layers", "neuron")},
            "order_matters": not self.mergeable,
            "profile": self.profile,
            "per_layer": {name: share.to_dict() for name, share in self.value.layers.items()},
            "growth": [list(point) for point in self.growth],
            "nonfinite": dict(self.value.nonfinite),
            "notes": list(self.value.notes),
        }
        if self.by_class:
            content["by_class"] = {name: value.whole.to_dict() for name, value in self.by_class.items()}
        return content


@dataclass(frozen=True)
class Coverage:
    """What a set of inputs covers of a target. `errors` says of each criterion that did not fit why."""

    criteria: Mapping[str, Measured]  # by the text, or repr, of each criterion
    layers: str
    neuron: str
    inputs: int
    target: str
    data: str
    train: str | None
    memory: int  # bytes, estimated
    skipped: tuple[str, ...] = ()  # files that could not be read, and why
    run: Path | None = None
    errors: Mapping[str, str] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()  # about the data

    def __getitem__(self, name: str) -> Measured:
        if name in self.errors:
            raise BadInput("unsuitable", name, self.errors[name])
        return self.criteria[name]

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of the numbers should know, each sentence with the criterion it is about."""
        notes = [f"{name}: {note}" for name, measured in self.criteria.items() for note in measured.value.notes]
        return (*notes, *self.remarks)

    def to_dict(self) -> dict[str, Any]:
        criteria = {name: measured.to_dict() for name, measured in self.criteria.items()}
        return {
            "criteria": criteria | {name: {"error": reason} for name, reason in self.errors.items()},
            **{name: getattr(self, name) for name in ("layers", "neuron", "inputs", "target", "data", "train", "memory")},
            "skipped": list(self.skipped),
            "notes": list(self.notes),
            "meaning": MEANING,
            "run": str(self.run) if self.run else None,
        }

    def table(self) -> list[dict[str, Any]]:
        """One row per criterion; of one that did not fit its name and `error`."""
        rows = [{"criterion": name, **measured.value.whole.to_dict()} for name, measured in self.criteria.items()]
        return [*rows, *({"criterion": name, "error": reason} for name, reason in self.errors.items())]

    def never(self) -> dict[str, dict[str, list[int]]]:
        """Per criterion and layer, the neurons of which nothing was covered."""
        return {name: {layer: list(ids) for layer, ids in m.value.never.items()} for name, m in self.criteria.items()}

    def save(self, path: str | Path) -> Path:
        """Write everything `to_dict` gives as JSON."""
        path = Path(path)
        write_json(path, self.to_dict())
        return path

    def _repr_html_(self) -> str:
        cells = ("criterion", "covered", "total", "value", "dead", *(["error"] if self.errors else []))
        return f"{table(self.table(), cells)}<p>{MEANING}</p>"
