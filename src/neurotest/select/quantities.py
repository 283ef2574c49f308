"""Selections from a pool for a network that predicts a quantity, to be labelled with numbers: what the run keeps for that."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from neurotest.data.source import Source
from neurotest.devices import exact
from neurotest.errors import BadInput
from neurotest.runs.store import Run
from neurotest.scan import batches
from neurotest.target import Target
from neurotest.target.outputs import Bins

ENTRY, ANSWERS = "quantity", "quantity answers"  # entries of the run
RIGHT, OFF = "right", "off"  # labels without a number: what the network answers is near enough, or is not


@dataclass(frozen=True)
class Quantity:
    """The quantity that people are asked for, and what the network answers to every input of the pool."""

    bins: Bins
    bounds: tuple[float, float]
    answers: NDArray[np.float64]

    def counted(self, position: int, value: float) -> int:
        """The class that a person's number counts as: the predicted one as long as the answer is near enough."""
        answer = float(self.answers[position])
        predicted, own = (int(number) for number in self.bins.of(np.array([answer, value])))
        if abs(answer - value) <= self.bins.tolerance:
            return predicted
        return own if own != predicted else self.aside(predicted, up=value > answer)

    def aside(self, predicted: int, *, up: bool = True) -> int:
        """Another class, for an answer that is off: the next one, at the end of the span the one before."""
        beside = predicted + (1 if up else -1)
        return beside if 0 <= beside < self.bins.count else 2 * predicted - beside


def keep(path: str | Path, target: Target, source: Source, batch: int) -> None:
    """Write down what the network answers to every input of a selection's pool."""
    bins = target.bins
    assert bins is not None
    answers = np.empty(len(source))
    with torch.inference_mode():
        for part in batches(target, source, batch=batch):
            answers[part.index] = bins.values(exact(target.logits(part.x))).cpu().numpy()
    with Run.open(path, write=True) as run, run.transaction(durable=True):
        run[ENTRY] = {**asdict(bins), "bounds": list(target.bounds)}
        run[ANSWERS] = answers.tolist()


def kept(run: Run) -> Quantity | None:
    """What is kept; None: the run is a selection of another kind."""
    if ENTRY not in run:
        return None
    try:
        entry: dict[str, Any] = dict(run[ENTRY])
        low, high = (float(end) for end in entry.pop("bounds"))
        bins = Bins(**entry)
        answers = np.array(run[ANSWERS], dtype=np.float64)
        if answers.shape != (len(run.inputs()),) or not np.isfinite(answers).all() or not bins.low < bins.high:
            raise ValueError
    except (TypeError, ValueError, KeyError):
        raise BadInput(
            "damaged", "quantity", f"{run.path}: what it says of its quantity cannot be read; the run is damaged."
        ) from None
    return Quantity(bins, (low, high), answers)
