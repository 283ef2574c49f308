"""Which classes predictions favour: output impartiality (all, faults only, clean), and classes by their inputs' coverage."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from neurotest import rng
from neurotest.data.objects import AnyData
from neurotest.data.source import Source
from neurotest.devices import exact
from neurotest.errors import BadInput
from neurotest.scan import aligned, fit, read, scan
from neurotest.stats.comparison import ranks, spearman
from neurotest.stats.diversity import evenness
from neurotest.target import Target, Trace, Want
from neurotest.target.load import load

DRAWS = 1000
THRESHOLDS = tuple(round(0.1 * i, 1) for i in range(10))
LEAST_PER_CLASS = 10
SHUFFLES = 2000


@dataclass(frozen=True)
class Impartiality:
    """Evenness (entropy over log classes) of the predictions for all outputs, for the faults, and for the clean suite."""

    all: float | None
    faults: float | None
    clean: float | None
    outputs: int
    fault_count: int
    classes: int
    corrected: bool
    all_interval: list[float] | None = None
    faults_interval: list[float] | None = None
    warnings: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return {**vars(self), "warnings": list(self.warnings)}


def impartiality(
    predicted: NDArray[np.int64],
    fault: NDArray[np.bool_],
    classes: int,
    *,
    clean: NDArray[np.int64] | None = None,
    roots: NDArray[Any] | None = None,
    corrected: bool = False,
) -> Impartiality:
    """Of predicted classes (n,) and which of them are faults (n,). `corrected` is Miller and Madow's.

    roots: which outputs were made from the same seed; with them the values have bootstrap intervals over seeds.
    A suite whose attack failed keeps the balance of its seeds: evenness of all outputs near 1 may mean that nothing happened.
    """
    predicted, wrong = np.asarray(predicted), np.asarray(fault)
    if predicted.ndim != 1 or wrong.shape != predicted.shape or wrong.dtype != bool:
        raise BadInput(
            "wrong-shape",
            "predicted",
            f"predicted {predicted.shape} and fault {wrong.shape}: expected one class number and one truth value per output.",
        )
    finite = predicted >= 0
    of_outputs = evenness(predicted[finite], classes, corrected=corrected)
    faults = evenness(predicted[wrong & finite], classes, corrected=corrected)
    warnings = []
    count = int(wrong.sum())
    if 0 < count < 5 * classes:
        warnings.append(
            f"evenness of {count} faults over {classes} classes is biased low: compare equal numbers only, or correct it."
        )
    if count == 0:
        warnings.append("there are no faults: the evenness of all outputs says nothing about the attack.")
    before = None if clean is None else evenness(clean, classes, corrected=corrected)
    of_all, of_faults = (
        None if roots is None else _evenness_interval(predicted[part], classes, np.asarray(roots)[part], corrected=corrected)
        for part in (finite, wrong & finite)
    )
    return Impartiality(
        of_outputs, faults, before, len(predicted), count, classes, corrected, of_all, of_faults, warnings=tuple(warnings)
    )


def _evenness_interval(
    numbers: NDArray[np.int64], classes: int, roots: NDArray[Any], *, corrected: bool = False, draws: int = DRAWS, seed: int = 0
) -> list[float] | None:
    """Bootstrap interval of the evenness, seeds resampled with all their outputs. None with fewer than two seeds.

    A resample repeats seeds and so has fewer classes, which shifts it down: the interval is reflected about the value
    (Hall's), never above 1.
    """
    if len(numbers) == 0:
        return None
    _, owner = np.unique(roots, return_inverse=True)
    count = int(owner.max()) + 1
    if count < 2:
        return None
    table = np.zeros((count, classes))
    np.add.at(table, (owner, numbers), 1)
    times = rng.stream("evaluate.evenness", seed).multinomial(count, np.full(count, 1 / count), size=draws)
    counts = times @ table  # (draws, classes)
    total = counts.sum(1, keepdims=True)
    shares = counts / total
    logs = np.log(shares, out=np.zeros_like(shares), where=shares > 0)
    values = -(shares * logs).sum(1)
    if corrected:
        values = values + ((counts > 0).sum(1) - 1) / (2 * total[:, 0])
    drawn = np.minimum(1, values / math.log(classes))
    value = evenness(numbers, classes, corrected=corrected)
    assert value is not None
    low, high = np.quantile(drawn, [0.025, 0.975])
    return [float(max(0.0, 2 * value - high)), float(min(1.0, 2 * value - low))]


class Sums:
    """Per layer the sum of each unit's positive part over all inputs: the study's idea of how active a neuron is. Mergeable."""

    def __init__(self, layers: str = "pre_activation") -> None:
        self.want = Want(layers=layers, neuron="unit")
        self.sums: dict[str, torch.Tensor] = {}

    def update(self, trace: Trace) -> None:
        for layer, values in trace[self.want].items():
            here = exact(values.relu()).sum(0)
            self.sums[layer] = here + self.sums[layer] if layer in self.sums else here

    def fresh(self, start: int = 0) -> Sums:
        return Sums(self.want.layers)

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
        raise BadInput(
            "out-of-range", "predicted", f"predicted: expected at least one class number from 0 to {classes - 1}, one row."
        )
    counts = np.bincount(numbers, minlength=classes)
    correlation = spearman(-place, counts)
    shuffle = rng.stream("evaluate.bias", seed)
    others = np.array([spearman(-place, shuffle.permutation(counts)) for _ in range(SHUFFLES)])
    exceeding = (np.abs(others) >= abs(correlation) - 1e-12).sum()
    p = float("nan") if np.isnan(correlation) else float((1 + exceeding) / (1 + SHUFFLES))
    return ClassBias(names, tuple(thresholds), coverage, place, per_class, counts, correlation, p)


def _per_class(
    target: Target, source: Source, classes: int, per_class: int, thresholds: Sequence[float], layers: str, batch: int
) -> NDArray[np.float64]:
    if source.labels is None:
        raise BadInput("no-labels", "data", f"{source.what} has no labels: the class report needs inputs of known class.")
    if per_class < 1 or not thresholds:
        raise BadInput(
            "out-of-range", "per_class", f"per_class={per_class}, {len(thresholds)} thresholds: expected at least one of each."
        )
    rows = []
    for number in range(classes):
        mine = np.flatnonzero(source.labels == number)[:per_class]
        least = min(LEAST_PER_CLASS, per_class)
        if len(mine) < least:
            raise BadInput(
                "too-few",
                "data",
                f"{source.what} has {len(mine)} inputs of class {number}: the class report needs at least {least} of each.",
            )
        sums = Sums(layers)
        scan(target, source.take(mine), [sums], batch=batch)
        rows.append(sums.value(thresholds))
    return np.stack(rows)
