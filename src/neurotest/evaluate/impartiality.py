"""Output impartiality: whether a suite's outcomes favour a few classes. Never one number: all, faults only, clean."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neurotest import rng
from neurotest.errors import BadInput
from neurotest.stats.evenness import evenness

DRAWS = 1000


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
            f"predicted {predicted.shape} and fault {wrong.shape}: expected one class number and one truth value per output."
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
        None if roots is None else evenness_interval(predicted[part], classes, np.asarray(roots)[part], corrected=corrected)
        for part in (finite, wrong & finite)
    )
    return Impartiality(
        of_outputs, faults, before, len(predicted), count, classes, corrected, of_all, of_faults, warnings=tuple(warnings)
    )


def evenness_interval(
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
