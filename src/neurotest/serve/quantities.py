"""Labelling with numbers: the order of a selection, and answers that are numbers, or marks that the network is right or off."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from neurotest.data.objects import AnyData
from neurotest.errors import BadInput
from neurotest.runs.store import Run
from neurotest.select.quantities import OFF, RIGHT, Quantity, kept
from neurotest.serve.chooser import Entry
from neurotest.serve.labelling import Labelling


class Quantities(Labelling):
    """The labels of one selection whose order is known from the beginning: nothing is learned, nobody waits."""

    quantity: Quantity

    def _read(self, pool: AnyData | None) -> None:
        run = self.run
        quantity = kept(run)
        assert quantity is not None
        self.quantity = quantity
        methods = run.methods()
        if not methods:
            raise BadInput("damaged", "ranking", f"{run.path} has no ranking: it is damaged.")
        self.method = methods[0].name
        rows = run.inputs()
        self._take_inputs(rows, list(quantity.bins.names), quantity.bounds, pool)
        ranking = run.ranking(self.method)
        self.order = [row.position for row in ranking]
        self.chances = np.zeros(len(rows), dtype=np.float32)
        self.given = {row.position for row in ranking if row.picked} | set(self.labels)
        self.pending = [p for p in self.order if p in self.given and p not in self.labels]
        self.rounds: list[Entry] = [{"ranking": self.method}]

    def _begin_batch(self) -> bool:
        """The next of the order."""
        free = self._unlabelled()
        free[self.pending] = False
        batch = [p for p in self.order if free[p]][: self.size]
        if not batch:
            return False
        self.rounds.append({"ranking": self.method})
        self.pending, self.spent = batch, 0
        self.given.update(batch)
        self.skipped.clear()
        self._keep_later(batch)
        return True

    def _ask_selector(self) -> None:
        """There is none: the order is known."""

    def number(
        self, holder: str, position: int, value: float | None, *, mark: str | None = None, valid: bool = True, by: str = ""
    ) -> Entry:
        """Store an answer: a number, a mark that the network is right or off, or neither for "cannot tell"."""
        self._refuse_taken(position, holder)
        if sum((value is not None, mark is not None, not valid)) > 1:
            raise BadInput("conflict", "value", "an answer is a number, a mark, or that the input is not valid: one of them.")
        if value is not None and not math.isfinite(value):
            raise BadInput("not-finite", "value", f"value {value}: expected a finite number.")
        label, predicted = None, int(self.predicted[position])
        if value is not None:
            label = self.quantity.counted(position, value)
        elif mark in (RIGHT, OFF):
            label = predicted if mark == RIGHT else self.quantity.aside(predicted)
        invalid = () if valid else (position,)
        self._store({position: label}, holder, by, invalid=invalid, values={} if value is None else {position: value})
        return {"position": position, "fault": self._fault(position), "labels": len(self.labels)}

    def label(self, holder: str, position: int, label: int | None, *, valid: bool = True, by: str = "") -> Entry:
        """Without a number: cannot tell, or no valid input."""
        if label is not None:
            raise BadInput(
                "unsuitable", "label", "label: the target predicts a regression value; give a value, or a mark (right, off)."
            )
        return self.number(holder, position, None, valid=valid, by=by)

    def grid(self, holder: str, predicted: int | None = None) -> Entry:
        raise BadInput(
            "unsuitable",
            "grid",
            "the grid is for classes, and the target predicts a regression value: label one input at a time.",
        )

    def guess(self, position: int) -> Entry:
        guess = super().guess(position)
        answer = float(self.quantity.answers[position])
        return {**guess, "name": f"{answer:.4g}", "answer": answer}

    def about(self) -> Entry:
        bins = self.quantity.bins
        return {"low": bins.low, "high": bins.high, "tolerance": bins.tolerance, "order": self.method}


def open_labelling(path: Path, **settings: Any) -> Labelling:
    """Of an adaptive selection with classes, or of one with numbers."""
    with Run.open(path) as run:
        numbers = kept(run) is not None
    return Quantities(path, **settings) if numbers else Labelling(path, **settings)
