"""Which classes a network's activations and a suite's faults favour (section 4.3.3 of the coverage study)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from neurotest import rng
from neurotest.data.objects import AnyData
from neurotest.data.source import Source
from neurotest.errors import BadInput
from neurotest.scan import aligned, fit, read, scan
from neurotest.stats.comparison import ranks, spearman
from neurotest.target import Target, Trace, Want
from neurotest.target.load import load

THRESHOLDS = tuple(round(0.1 * i, 1) for i in range(10))
LEAST = 10
DRAWS = 2000


class Sums:
    """Per layer the sum of each unit's positive part over all inputs: the study's idea of how active a neuron is. Mergeable."""

    def __init__(self, layers: str = "pre_activation") -> None:
        self.want = Want(layers=layers, neuron="unit")
        self.sums: dict[str, torch.Tensor] = {}

    def update(self, trace: Trace) -> None:
        for layer, values in trace[self.want].items():
            here = values.relu().double().sum(0)
            self.sums[layer] = here + self.sums[layer] if layer in self.sums else here

    def merge(self, other: Sums) -> None:
        for layer, values in other.sums.items():
            self.sums[layer] = self.sums[layer] + values if layer in self.sums else values

    def value(self, thresholds: Sequence[float]) -> NDArray[np.float64]:
        """Share of neurons whose sum, scaled to 0 .. 1 within the layer, is above each threshold: (thresholds,)."""
        scaled = []
        for values in self.sums.values():
            low, high = values.min(), values.max()
            scaled.append((values - low) / (high - low) if high > low else torch.zeros_like(values))
        joined = torch.cat(scaled)
        return np.array([float((joined > t).double().mean()) for t in thresholds])


@dataclass(frozen=True, eq=False)
class ClassBias:
    """Baseline coverage of each class and, for the predictions of a suite, whether they follow it."""

    classes: tuple[str, ...]
    thresholds: tuple[float, ...]
    coverage: NDArray[np.float64]  # (classes, thresholds)
    rank: NDArray[np.float64]  # (classes,) mean over thresholds, 1 = most covered
    per_class: int
    counts: NDArray[np.int64] | None = None  # (classes,) predictions of the suite
    correlation: float | None = None  # Spearman, of coverage with counts: above 0, highly covered classes are favoured
    p: float | None = None

    def to_dict(self) -> dict[str, Any]:
        def number(value: float | None) -> float | None:
            return None if value is None or np.isnan(value) else float(value)

        return {
            "classes": self.table(),
            "thresholds": list(self.thresholds),
            "per_class": self.per_class,
            "correlation": number(self.correlation),
            "p": number(self.p),
        }

    def table(self) -> list[dict[str, Any]]:
        """One row per class, most covered first."""
        return [
            {
                "class": self.classes[i],
                "rank": float(self.rank[i]),
                "coverage": float(self.coverage[i].mean()),
                **({} if self.counts is None else {"predicted": int(self.counts[i])}),
            }
            for i in np.argsort(self.rank, kind="stable")
        ]


def class_bias_report(
    target: Target | str,
    source: AnyData,
    *,
    predicted: NDArray[np.int64] | None = None,
    per_class: int = 100,
    thresholds: Sequence[float] = THRESHOLDS,
    layers: str = "pre_activation",
    seed: int = 0,
    batch: int = 250,
) -> ClassBias:
    """Rank classes by the coverage that their own inputs give, and compare with what a suite's faults are predicted as.

    predicted: class numbers, usually of the faults of a suite made from equally many correct inputs of each class.
    """
    target = load(target)
    opened = aligned(target, read(target, source))
    classes = fit(target, opened)
    coverage = _per_class(target, opened, classes, per_class, thresholds, layers, batch)
    place = np.mean([ranks(-coverage[:, t]) for t in range(coverage.shape[1])], axis=0)
    names = tuple(target.classes or opened.classes or (str(i) for i in range(classes)))
    if predicted is None:
        return ClassBias(names, tuple(thresholds), coverage, place, per_class)
    numbers = np.asarray(predicted)
    if numbers.ndim != 1 or not numbers.size or numbers.dtype.kind not in "iu" or numbers.min() < 0 or numbers.max() >= classes:
        raise BadInput(f"predicted: expected at least one class number from 0 to {classes - 1}, one row.")
    counts = np.bincount(numbers, minlength=classes)
    correlation = spearman(-place, counts)
    shuffle = rng.stream("evaluate.bias", seed)
    others = np.array([spearman(-place, shuffle.permutation(counts)) for _ in range(DRAWS)])
    exceeding = (np.abs(others) >= abs(correlation) - 1e-12).sum()
    p = float("nan") if np.isnan(correlation) else float((1 + exceeding) / (1 + DRAWS))
    return ClassBias(names, tuple(thresholds), coverage, place, per_class, counts, correlation, p)


def _per_class(
    target: Target, source: Source, classes: int, per_class: int, thresholds: Sequence[float], layers: str, batch: int
) -> NDArray[np.float64]:
    if source.labels is None:
        raise BadInput(f"{source.what} has no labels: the class report needs inputs of known class.")
    if per_class < 1 or not thresholds:
        raise BadInput(f"per_class={per_class}, {len(thresholds)} thresholds: expected at least one of each.")
    rows = []
    for number in range(classes):
        mine = np.flatnonzero(source.labels == number)[:per_class]
        least = min(LEAST, per_class)
        if len(mine) < least:
            raise BadInput(
                f"{source.what} has {len(mine)} inputs of class {number}: the class report needs at least {least} of each."
            )
        sums = Sums(layers)
        scan(target, source.take(mine), [sums], batch=batch)
        rows.append(sums.value(thresholds))
    return np.stack(rows)
