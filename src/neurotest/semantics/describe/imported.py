"""Descriptions from elsewhere, read from a CSV file: ours, MILAN's and CLIP-Dissect's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from neurotest.errors import BadInput
from neurotest.registry import register
from neurotest.semantics.describe.material import Describer, Material, content_hash
from neurotest.semantics.descriptions import UNKNOWN, NeuronDescription, check_fingerprints, check_neuron, plain, read_rows, sizes
from neurotest.target import Target

NEURON = ("neuron", "unit")
TEXT = ("description", "label")
SCORE = ("score", "similarity")


@register(
    "describer",
    "csv",
    paper="MILAN (Hernandez et al. 2022), CLIP-Dissect (Oikarinen and Weng 2023): the tables they publish",
    cost="reads a file; no pass over data",
    main="file",
    differs="Tables of others carry no fingerprint: layers and neuron numbers are checked, and a note says that no more can be.",
)
class Imported(Describer):
    """Takes descriptions from a CSV file with a header: layer, neuron (or unit), description (or label), score (or similarity).

    `layer` names the layer of a file without that column; `first` is the number of the first neuron in it (1 in files of
    Network Dissection). A table that `neurotest describe` wrote for another network is refused.
    """

    opens: ClassVar[tuple[str, ...]] = ("file",)

    file: str
    layer: str | None = None
    first: int = 0

    @property
    def signature(self) -> str:
        return f"{self!r} {content_hash(self.file)}"

    def own_layers(self, target: Target) -> tuple[str, ...]:
        """The layers the file speaks of."""
        return tuple(sizes(target, dict.fromkeys(row.layer for row in self._rows(target)), self.file))

    def describe(self, material: Material) -> Iterator[NeuronDescription]:
        rows = self._rows(material.target)
        counts = sizes(material.target, dict.fromkeys(row.layer for row in rows), self.file)
        for row in rows:
            check_neuron(row.layer, row.neuron, counts, self.file)
        if lacking := [name for name in material.sizes if name not in counts]:
            raise BadInput(
                "not-found",
                "layers",
                f"{self.file} has no descriptions of layer {lacking[0]!r}: choose --layers of {', '.join(counts)}.",
            )
        first = {(row.layer, row.neuron): row for row in reversed(rows)}  # of several descriptions of a neuron
        yield from (row for row in rows if row.layer in material.sizes and first[row.layer, row.neuron] is row)
        if "fingerprint" not in read_rows(self.file, ())[0]:
            material.notes.append(f"{self.file} carries no fingerprint: that it belongs to this network is not checked.")

    def _rows(self, target: Target) -> list[NeuronDescription]:
        table = read_rows(self.file, ())
        if not table:
            raise BadInput("empty", "file", f"{self.file} is empty: expected a CSV file with layer, neuron, description.")
        if not self.layer:
            self._column(table[0], ("layer",))
        neuron, text = (self._column(table[0], names) for names in (NEURON, TEXT))
        score = next((name for name in SCORE if name in table[0]), None)
        if "fingerprint" in table[0]:
            check_fingerprints(table, target, self.file)
        return [self._row(row, line, neuron, text, score) for line, row in enumerate(table, start=2)]

    def _column(self, row: dict[str, str], names: tuple[str, ...]) -> str:
        column = next((name for name in names if name in row), None)
        if column is None:
            raise BadInput(
                "unknown-option",
                "columns",
                f"{self.file} lacks the column {' or '.join(names)}: expected layer, neuron, description.",
            )
        return column

    def _row(self, row: dict[str, str], line: int, neuron: str, text: str, score: str | None) -> NeuronDescription:
        try:
            number, value = int(row[neuron]) - self.first, float(row[score]) if score and row[score] else 1.0
        except ValueError:
            raise BadInput(
                "wrong-type", "neuron", f"{self.file}, line {line}: {neuron} and {score or 'score'} must be numbers."
            ) from None
        layer = self.layer or plain(row["layer"])
        return NeuronDescription(layer, number, " ".join(plain(row[text]).split()) or UNKNOWN, value, row.get("method") or "csv")
