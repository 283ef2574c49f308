"""A selection as a run: every candidate's scores, the picked ones as files people can open."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from neurotest.data.source import Source
from neurotest.devices import exact
from neurotest.runs.rows import InputRow
from neurotest.runs.store import Run
from neurotest.scan import batches
from neurotest.select.selection import Comparison, Selection
from neurotest.target import Target

LIKELY = "likely classes"  # entry of the run: position -> [(class, probability)] of inputs that are stored as pictures
LIKELIEST = 3  # classes of each
OTHERS = 12  # of the methods after the first, so many picks are stored: enough for the report's pictures


def record(run: Run, target: Target, source: Source, selections: Comparison, files: int | None) -> dict[str, Any]:
    """Fill a run that was just made, and give its summary; `files` bounds how many picks of the first method are stored."""
    first, *others = selections.values()
    labels = [None] * len(source) if source.labels is None else source.labels.tolist()
    rows = (
        InputRow(position, str(content), label, int(first.predictions[position]), _extra(source, position))
        for position, (content, label) in enumerate(zip(source.ids(), labels, strict=True))
    )
    with run.transaction():
        run["classes"] = list(target.classes or source.classes or ())
        run["training duplicates"] = list(first.in_training)
        run["skipped"] = [{"file": s.file, "reason": s.reason} for s in source.skipped]
        run.add_inputs(rows)
        for name, selection in selections.items():
            run.add_ranking(name, selection.order, selection.all_scores[selection.order], selection.picked)
        stored = [first.indices if files is None else first.indices[:files]]
        stored += [selection.indices[: OTHERS if files is None else files] for selection in others]
        for positions in stored:
            _store(run, target, source, positions)
        run[LIKELY] = _likely(target, source, np.unique(np.concatenate(stored)))
    methods: dict[str, Any] = {name: _summary(selection) for name, selection in selections.items()}
    unfit = [f"{name} did not run: {reason}" for name, reason in selections.errors.items()]
    methods[first.method]["notes"] += unfit  # the report shows the notes of what ran
    return {"methods": {**methods, **{name: {"error": reason} for name, reason in selections.errors.items()}}}


def _extra(source: Source, position: int) -> dict[str, Any]:
    """Where an input came from: its file, or what was done to its original."""
    extra: dict[str, Any] = {} if source.names is None else {"name": str(source.names[position])}
    draws = source.notes.get("draws")
    return extra if draws is None else {**extra, "draw": draws.describe(position)}


def _store(run: Run, target: Target, source: Source, positions: np.ndarray) -> None:
    """The inputs and, where the pool has them, what they were made from."""
    stored = {row.position for row in run.files("picked")}
    new = np.array([p for p in positions.tolist() if p not in stored], dtype=np.int64)
    if not len(new):
        return
    run.save_inputs(new, source.read(new), "picked", target.bounds)
    if source.originals is not None:
        run.save_inputs(new, source.originals.read(new), "original", target.bounds)


def _likely(target: Target, source: Source, positions: np.ndarray) -> dict[str, list[tuple[int, float]]]:
    """The most probable classes of inputs with their probabilities, by position."""
    likely: dict[str, list[tuple[int, float]]] = {}
    if target.bins is not None:  # a quantity has no probabilities
        return likely
    with torch.inference_mode():
        for batch in batches(target, source, order=positions):
            probs = exact(target.logits(batch.x)).softmax(dim=1)
            most, classes = probs.topk(min(LIKELIEST, probs.shape[1]))  # (n, 3)
            for position, numbers, values in zip(batch.index.tolist(), classes.tolist(), most.tolist(), strict=True):
                if np.isfinite(values).all():
                    likely[str(position)] = [*zip(numbers, (round(value, 6) for value in values), strict=True)]
    return likely


def _summary(selection: Selection) -> dict[str, Any]:
    left_out = {"indices", "scores", "predicted", "files", "run", "in_training"}  # the tables hold them
    return {key: value for key, value in selection.to_dict().items() if key not in left_out}
