"""Output impartiality: whether a suite's outcomes favour a few classes. Never one number: all, faults only, clean."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neurotest.errors import BadInput
from neurotest.stats.evenness import evenness


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
    warnings: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return {**vars(self), "warnings": list(self.warnings)}


def impartiality(
    predicted: NDArray[np.int64],
    fault: NDArray[np.bool_],
    classes: int,
    *,
    clean: NDArray[np.int64] | None = None,
    corrected: bool = False,
) -> Impartiality:
    """Of predicted classes (n,) and which of them are faults (n,). `corrected` is Miller and Madow's.

    A suite whose attack failed keeps the balance of its seeds: evenness of all outputs near 1 may mean that nothing happened.
    """
    said, wrong = np.asarray(predicted), np.asarray(fault)
    if said.ndim != 1 or wrong.shape != said.shape or wrong.dtype != bool:
        raise BadInput(
            f"predicted {said.shape} and fault {wrong.shape}: expected one class number and one truth value per output."
        )
    finite = said >= 0
    found = evenness(said[finite], classes, corrected=corrected)
    faults = evenness(said[wrong & finite], classes, corrected=corrected)
    warnings = []
    count = int(wrong.sum())
    if 0 < count < 5 * classes:
        warnings.append(
            f"evenness of {count} faults over {classes} classes is biased low: compare equal numbers only, or correct it."
        )
    if count == 0:
        warnings.append("there are no faults: the evenness of all outputs says nothing about the attack.")
    before = None if clean is None else evenness(clean, classes, corrected=corrected)
    return Impartiality(found, faults, before, len(said), count, classes, corrected, tuple(warnings))
