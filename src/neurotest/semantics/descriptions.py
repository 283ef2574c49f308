"""What neurons mean, in words: the table, computed once and cached.

    table = describe(target, data, "class-profile", layers="stage*")   # cached by content: target, data, method, layers
    table["stage3", 7].text        # "ship, truck (x3.1)", or "unknown", or "(dead)"
    table["stage3", 7].known       # False for the last two: leave such neurons out of paths
    table.layers                   # {"stage3": 64, ...}: layer -> number of neurons
    table.check(target)            # BadInput when it was made for another network
    table.to_csv(path); Descriptions.from_csv(path, target)

A neuron is a channel (a map of a convolution, a unit of a dense layer), counted from 0. Every row carries a score (larger is
surer, comparable only within a method) and the method that gave it. A neuron without a row in a described layer is "unknown".
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from neurotest.errors import BadInput, near
from neurotest.files import write_text
from neurotest.notebook import ROWS, view
from neurotest.public import public
from neurotest.reading import read_bytes, user_path
from neurotest.runs.export import cell
from neurotest.settings.analyse import Describing

if TYPE_CHECKING:
    from neurotest.data.objects import AnyData
    from neurotest.jobs.opening import AnyTarget
    from neurotest.scan import Progress
    from neurotest.target import Target

TABLE, SHEETS = "descriptions.csv", "sheets"  # in a run: the file, and the folder of images
UNKNOWN = "unknown"
DEAD = "(dead)"  # never above 0 on the data it was described with
DEFAULT = "combined"
COLUMNS = ("layer", "neuron", "description", "score", "method", "fingerprint")
LARGEST = 1 << 28  # bytes of a file of descriptions


@dataclass(frozen=True)
class NeuronDescription:
    """One neuron in words."""

    layer: str
    neuron: int
    text: str
    score: float
    method: str

    @property
    def known(self) -> bool:
        """Whether it says anything."""
        return self.text not in (UNKNOWN, DEAD)


@dataclass(frozen=True, eq=False)
class Descriptions:
    """The descriptions of a target's layers; `fingerprint` says whose they are."""

    fingerprint: str
    layers: Mapping[str, int]  # layer -> how many neurons it has
    rows: Mapping[tuple[str, int], NeuronDescription]
    method: str = ""
    notes: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, target: Target, layers: Mapping[str, int], rows: Iterable[NeuronDescription], method: str, notes: Iterable[str] = ()
    ) -> Descriptions:
        return cls(target.fingerprint, dict(layers), {(r.layer, r.neuron): r for r in rows}, method, tuple(notes))

    def __getitem__(self, key: tuple[str, int]) -> NeuronDescription:
        layer, neuron = key[0], int(key[1])
        if layer not in self.layers:
            raise BadInput(
                "unknown-name",
                "layer",
                f"layer {layer!r} has no descriptions. {near(layer, self.layers)} Describe it with --layers {layer}.",
            )
        if not 0 <= neuron < self.layers[layer]:
            raise BadInput(
                "out-of-range", "neuron", f"layer {layer!r} has no neuron {neuron}: its neurons are 0..{self.layers[layer] - 1}."
            )
        return self.rows.get((layer, neuron)) or NeuronDescription(layer, neuron, UNKNOWN, 0.0, self.method)

    def __iter__(self) -> Iterator[NeuronDescription]:
        """Every neuron of every layer, in order."""
        return (self[layer, neuron] for layer, count in self.layers.items() for neuron in range(count))

    def __len__(self) -> int:
        return sum(self.layers.values())

    def layer(self, name: str) -> list[NeuronDescription]:
        """One layer's neurons in order."""
        return [self[name, neuron] for neuron in range(self.layers.get(name, 1))]  # of an unknown layer the first is refused

    def surest(self, name: str) -> list[NeuronDescription]:
        """One layer's neurons that have words, the surest first."""
        return sorted((row for row in self.layer(name) if row.known), key=lambda row: -row.score)

    def table(self) -> list[dict[str, Any]]:
        """One row per neuron."""
        return [
            {"layer": row.layer, "neuron": row.neuron, "description": row.text, "score": row.score, "method": row.method}
            for row in self
        ]

    def headline(self) -> str:
        layers = [f"{name or 'the network'} {len(self.surest(name))} of {count}" for name, count in self.layers.items()]
        return f"{self.method}: neurons with words: {', '.join(layers)}"

    def _repr_html_(self) -> str:
        """The surest neurons of every layer, each layer with its share of the table."""
        each = max(1, ROWS // max(1, len(self.layers)))
        best = [row for name in self.layers for row in self.surest(name)[:each]]
        rows = [{"layer": row.layer, "neuron": row.neuron, "description": row.text, "score": row.score} for row in best]
        return view([self.headline(), *self.notes], (), rows)

    def check(self, target: Target) -> None:
        """Refuse descriptions that were made for another network."""
        if self.fingerprint != target.fingerprint:
            raise BadInput(
                "changed",
                "target",
                f"the descriptions were made for another target ({self.fingerprint[:12]}, this one is "
                f"{target.fingerprint[:12]}): describe this one with `neurotest describe`.",
            )

    def text(self) -> str:
        """The table as CSV; a formula in a description stays text in a spreadsheet."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(COLUMNS)
        for row in self:
            writer.writerow([cell(row.layer), row.neuron, cell(row.text), f"{row.score:.6g}", row.method, self.fingerprint])
        return out.getvalue()

    def to_csv(self, path: str | Path) -> Path:
        write_text(Path(path), self.text())
        return Path(path)

    @classmethod
    def from_csv(cls, path: str | Path, target: Target) -> Descriptions:
        """Read what `to_csv` wrote; refused when it belongs to another network or names layers or neurons it does not have."""
        rows = read_rows(path, COLUMNS)
        check_fingerprints(rows, target, path)
        descriptions = [_description(row, number, path) for number, row in enumerate(rows, start=2)]
        layers = sizes(target, dict.fromkeys(row.layer for row in descriptions), str(path))
        for row in descriptions:
            check_neuron(row.layer, row.neuron, layers, str(path))
        return cls.of(target, layers, descriptions, ", ".join(dict.fromkeys(row.method for row in descriptions)))


def sizes(target: Target, names: Iterable[str], what: str) -> dict[str, int]:
    """The number of neurons of each named layer; a layer the target does not have is refused."""
    counts = {layer.name: layer.neurons() for layer in target.survey().layers}
    for name in (names := list(names)):
        if name not in counts:
            raise BadInput(
                "unknown-name", "layer", f"{what}: the target has no layer {name!r}. {near(name, filter(None, counts))}"
            )
    return {name: count for name, count in counts.items() if name in names}


def check_fingerprints(rows: Iterable[Mapping[str, str]], target: Target, path: str | Path) -> None:
    """Refuse rows that were written for another network."""
    prints = {row["fingerprint"] for row in rows}
    if prints != {target.fingerprint}:
        raise BadInput(
            "changed",
            "target",
            f"{path} describes another target ({', '.join(sorted(p[:12] for p in prints))}, this one is "
            f"{target.fingerprint[:12]}): describe this one with `neurotest describe`.",
        )


def check_neuron(layer: str, neuron: int, layers: Mapping[str, int], what: str) -> None:
    if not 0 <= neuron < layers[layer]:
        raise BadInput(
            "out-of-range",
            "neuron",
            f"{what}: layer {layer!r} has no neuron {neuron}, only 0..{layers[layer] - 1}: it is of another network.",
        )


def read_rows(path: str | Path, needed: Iterable[str]) -> list[dict[str, str]]:
    """The rows of a CSV file that has at least these columns."""
    return rows_of(read_bytes(user_path(path), "a table of descriptions", limit=LARGEST), str(path), needed)


def rows_of(content: bytes, path: str, needed: Iterable[str]) -> list[dict[str, str]]:
    """The rows of a CSV file that was read from `path`."""
    try:
        rows = list(csv.DictReader(io.StringIO(content.decode("utf-8-sig"), newline="")))
    except (UnicodeDecodeError, csv.Error) as error:
        raise BadInput("unreadable", "descriptions", f"cannot read the descriptions {path}: {error}.") from error
    have = set(rows[0]) if rows else set()
    if lacking := [name for name in needed if name not in have]:
        raise BadInput(
            "unknown-option", "columns", f"{path} lacks the column {lacking[0]!r}: expected a CSV file with {', '.join(needed)}."
        )
    return [{key: value or "" for key, value in row.items() if key is not None} for row in rows]


def _description(row: dict[str, str], number: int, path: str | Path) -> NeuronDescription:
    try:
        neuron, score = int(row["neuron"]), float(row["score"])
    except ValueError:
        raise BadInput(
            "wrong-type",
            "score",
            f"{path}, line {number}: neuron and score must be numbers: {row['neuron']!r}, {row['score']!r}.",
        ) from None
    if not math.isfinite(score):
        raise BadInput("not-finite", "score", f"{path}, line {number}: score {row['score']!r} is not finite.")
    return NeuronDescription(plain(row["layer"]), neuron, plain(row["description"]) or UNKNOWN, score, row["method"])


def plain(text: str) -> str:
    """A cell without the apostrophe that kept a spreadsheet from calculating it."""
    return text[1:] if text[:1] == "'" and cell(text[1:]) == text else text


@public(Describing)
def describe(
    target: AnyTarget,
    data: AnyData | None,
    method: Any = DEFAULT,
    layers: str | None = None,
    *,
    progress: Progress | None = None,
    **settings: Any,
) -> Descriptions:
    """Describe the neurons of a target by what `data` does to them.

    method: a name of `neurotest list describer` (with options) or a Describer. layers: a preset or globs; default: outputs of
    activations and the output layer. k, quantile: exemplars per neuron and the level of their masks.
    """
    from neurotest.semantics.describe.api import described, prepare

    chosen = Describing.of(settings)
    return described(*prepare(target, data, method, layers, **vars(chosen), progress=progress))
