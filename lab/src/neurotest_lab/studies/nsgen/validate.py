"""How good is a describer? The meaning of output neurons is certain: compare their descriptions with the names of their classes.

A similarity by itself says little, because any two short texts are somewhat alike: it stands beside the mean similarity to
the names of the other classes, and accuracy beside chance.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neurotest.errors import BadInput
from neurotest.semantics.describe.api import described, output_layer
from neurotest.semantics.describe.material import Describer, Material, distinct
from neurotest.semantics.descriptions import DEAD, UNKNOWN, Descriptions
from neurotest.semantics.encoders import unit
from neurotest.semantics.exemplars import Exemplars
from neurotest.stats.bootstrap import Interval, mean_interval, wilson

KS = (1, 5, 10, 15, 20)  # table 6
SIZES = ((128, 512), (128, 128), (128, 256), (128, 1024), (64, 512), (256, 512), (512, 512))  # table 7: embedding, hidden
Encode = Callable[[list[str]], Any]


@dataclass(frozen=True)
class Judged:
    """One output neuron: its class, its description, which class that names first, and similarities where there is an encoder."""

    name: str
    text: str
    named: str | None
    own: float | None = None  # cosine with its own class's name
    others: float | None = None  # mean cosine with the other classes' names
    nearest: str | None = None


@dataclass(frozen=True)
class Validation:
    """All output neurons. Intervals are 95 %: Wilson's for shares, bootstrap over neurons for the margin."""

    rows: tuple[Judged, ...]
    method: str

    @property
    def chance(self) -> float:
        return 1 / len(self.rows)

    @property
    def accuracy(self) -> Interval:
        """How often the first class named is the right one; a neuron that is unknown counts as wrong."""
        return wilson(sum(row.named == row.name for row in self.rows), len(self.rows))

    @property
    def nearest(self) -> Interval | None:
        """How often the own class's name is the nearest one to the description, by the encoder."""
        if all(row.nearest is None for row in self.rows):
            return None
        return wilson(sum(row.nearest == row.name for row in self.rows), len(self.rows))

    @property
    def margin(self) -> Interval | None:
        """Mean of (cosine with the own name - mean cosine with the others' names); 0 is chance."""
        margins = [row.own - row.others for row in self.rows if row.own is not None and row.others is not None]
        return mean_interval(margins) if margins else None

    def to_dict(self) -> dict[str, Any]:
        encoded = [row for row in self.rows if row.own is not None]
        return {
            "method": self.method,
            "units": len(self.rows),
            "known": sum(row.text not in (UNKNOWN, DEAD) for row in self.rows),
            "accuracy": self.accuracy,
            "chance": self.chance,
            "nearest": self.nearest,
            "cosine": float(np.mean([row.own for row in encoded])) if encoded else None,
            "cosine_others": float(np.mean([row.others for row in encoded])) if encoded else None,
            "margin": self.margin,
        }


def named(text: str, classes: Sequence[str]) -> str | None:
    """The class that a text names first; of names that begin at the same place the longer one.

    >>> named("white areas; ankle boot, sandal", ["sandal", "boot", "ankle boot"])
    'ankle boot'
    """
    hits = []
    for name in classes:
        if hit := re.search(rf"(?<![\w-]){re.escape(name.lower())}(?![\w-])", text.lower()):
            hits.append((hit.start(), -len(name), name))
    return min(hits)[2] if hits else None


def output_units(table: Descriptions, material: Material, encode: Encode | None = None) -> Validation:
    """Compare the descriptions of the output neurons with the names of their classes.

    encode: texts -> vectors, one per text; without it only names are compared.
    """
    layer = output_layer(material.target).name
    names = distinct(material.target.classes or material.classes)
    rows = table.layer(layer)
    if len(rows) != len(names):
        raise BadInput(
            "wrong-count",
            "layer",
            f"layer {layer!r} has {len(rows)} neurons for {len(names)} classes: it is not the output layer.",
        )
    texts = [row.text for row in rows]
    near = None if encode is None else _cosines(encode, texts, names)
    judged = []
    for number, (name, row) in enumerate(zip(names, rows, strict=True)):
        first = named(row.text, names) if row.known else None
        if near is None or not row.known:
            judged.append(Judged(name, row.text, first))
        else:
            rest = np.delete(near[number], number)
            best = names[int(near[number].argmax())]
            judged.append(Judged(name, row.text, first, float(near[number, number]), float(rest.mean()), best))
    return Validation(tuple(judged), table.method)


def by_exemplars(
    describer: Describer, material: Material, ks: Sequence[int] = KS, encode: Encode | None = None
) -> dict[int, Validation]:
    """Table 6: the same describer shown only the first k exemplars of every neuron. The material needs as many as the largest."""
    if max(ks) > material.k:
        raise BadInput(
            "out-of-range", "k", f"k={max(ks)}: the material has only {material.k} exemplars per neuron; make it with a larger k."
        )
    return {k: output_units(described(describer, fewer(material, k)), material, encode) for k in ks}


def by_decoder(
    make: Callable[[int, int], Describer],
    material: Material,
    sizes: Sequence[tuple[int, int]] = SIZES,
    encode: Encode | None = None,
) -> dict[tuple[int, int], Validation]:
    """Table 7: one describer per (embedding, hidden), such as `lambda e, h: Milan(embedding=e, hidden=h)`."""
    return {size: output_units(described(make(*size), material), material, encode) for size in sizes}


def fewer(material: Material, k: int) -> Material:
    """The same material with only the first k exemplars of every neuron; no new pass."""
    part = replace(material, k=k, progress=None, notes=[])
    part.__dict__["exemplars"] = _truncated(material.exemplars, k)
    return part


def _truncated(exemplars: Exemplars, k: int) -> Exemplars:
    """The same with only the first k exemplars of every neuron."""
    part = replace(exemplars, k=k)
    part.counts, part.seen, part.nonfinite = exemplars.counts, exemplars.seen, exemplars.nonfinite
    for name, best in exemplars.best.items():
        new = part.best[name]
        for item in ("low", "high", "sums", "squares", "places", "inputs"):
            setattr(new, item, getattr(best, item))
        new.values, new.index = best.values[:k], best.index[:k]
    return part


def _cosines(encode: Encode, texts: Sequence[str], names: Sequence[str]) -> NDArray[np.float64]:
    vectors = unit(encode([*texts, *names]), len(texts) + len(names)).astype(np.float64)
    return vectors[: len(texts)] @ vectors[len(texts) :].T
