"""Faults by their classes: the confusion matrix with an image in every cell, and the map of what the last hidden layer sees."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from neurotest.campaign.families import families
from neurotest.campaign.store import Store
from neurotest.data.source import ArraySource
from neurotest.errors import BadInput
from neurotest.evaluate import plane
from neurotest.evaluate.features import Extractor
from neurotest.generate.outcome import class_name
from neurotest.jobs.stored import guarded, stored_target
from neurotest.report import charts, pictures
from neurotest.report.generated import COMMANDS as SUITES
from neurotest.report.generated import stored_faults
from neurotest.report.section import Row, command, section
from neurotest.runs.codec import decode
from neurotest.runs.folder import RunFile
from neurotest.runs.store import Run
from neurotest.target import Target

COMMANDS = ("fuzz", "merge", "swarm", "attack", "diff", "illuminate")
MATRIX_SIDE = 20  # classes in a row or column; more are counted, not shown
LARGE_CELLS = 8  # of more classes than these a cell has no room for a large image
MAP_INPUTS = 250  # seeds, and faults
MAP_COLOURS = 10  # classes
LAYOUTS = {"tsne": "t-SNE", "umap": "UMAP"}
MAP_SHOWS = (
    "Seeds and faults as the network's last hidden layer sees them, laid out by {method}. Colour: the class it is. A fault that "
    "lies among seeds of another colour is one that the network sees as one of them. With scripts, the pointer shows the picture."
)
MAP_HIDES = (
    "distances between groups, their size or density: only neighbours are kept, and not all of them. The table says how far."
)


@section("matrix", title="What is taken for what", order=5, commands=COMMANDS)
def _matrix(run: Run) -> Row | None:
    """Classes without faults have neither row nor column; the most frequent ones come first where there are too many."""
    counts: Counter[tuple[int, int]] = Counter()  # faults by true and predicted class
    smallest: dict[tuple[int, int], tuple[tuple[bool, float], RunFile | None]] = {}  # what shows them best
    for pair, faults, distance, file in _class_pairs(run):
        counts[pair] += faults
        smallest[pair] = min(smallest.get(pair, ((True, np.inf), None)), ((file is None, distance), file), key=lambda one: one[0])
    if not counts:
        return None
    names = list(run["classes"]) if "classes" in run else []
    rows, columns = (_most_frequent(counts, side) for side in (0, 1))
    cells = {
        pair: {"faults": faults, "picture": pictures.of_file(smallest[pair][1], sound=False)}
        for pair, faults in counts.items()
        if pair[0] in rows and pair[1] in columns
    }
    return {
        "rows": [(number, class_name(number, names)) for number in rows],
        "columns": [(number, class_name(number, names)) for number in columns],
        "cells": cells,
        "left_out": counts.total() - sum(counts[pair] for pair in cells),
        "pairs": len(counts),
        "small": len(columns) > LARGE_CELLS,
    }


def _class_pairs(run: Run) -> Iterator[tuple[tuple[int, int], int, float, RunFile | None]]:
    """True and predicted class, number of faults, size of the change, file: a row per family, or per fault of a suite."""
    if run["command"] not in SUITES:
        for family in families(run.path).families:
            change = family.representative
            yield family.key[:2], family.faults, change.distance[1], change.file
        return
    files = {file.position: file.file for file in run.files("fault")}
    for row in stored_faults(run):
        if row.label is not None and row.predicted is not None:
            yield (row.label, row.predicted), 1, float(row.extra.get("l2") or 0.0), files.get(row.position)


def _most_frequent(counts: Counter[tuple[int, int]], side: int) -> list[int]:
    """The true (0) or predicted (1) classes with the most faults, by number."""
    total: Counter[int] = Counter()
    for pair, faults in counts.items():
        total[pair[side]] += faults
    return sorted(number for number, _ in total.most_common(MATRIX_SIDE))


@dataclass(frozen=True, eq=False)
class _MapInputs:
    """Seeds and faults of a run: images, the class each is, that the network says, and the seed each comes from."""

    x: NDArray[np.generic]
    fault: NDArray[np.bool_]
    label: NDArray[np.int64]
    predicted: NDArray[np.int64]
    root: NDArray[np.int64]


@section("map", title="Map of what the network sees", order=40, commands=COMMANDS, option="layout")
def _feature_map(run: Run, layout: str | None = None) -> Row | None:
    """layout: tsne or umap. Without one the section says how to get it: a map costs seconds."""
    if not run["summary"].get("faults"):
        return None
    without: Row = {"problem": None, "charts": [], "rows": [], "command": command("report", run.path.name)}
    if layout is None:
        return without
    try:
        shown = _shown_inputs(run)
        with guarded(run):
            target = stored_target(run)
        features = Extractor.of(None, target)(target, ArraySource(shown.x)).values
        points = plane.lay_out(features, layout)
    except BadInput as error:  # the network may be out of reach, or not to be trusted: then the page has no map
        return {**without, "problem": str(error)}
    names = list(run["classes"]) if "classes" in run else []
    spec, rows, method = (
        _map_spec(_points(shown, points, names, target)),
        _table(shown, points, names),
        LAYOUTS.get(layout, layout),
    )
    chart = charts.Chart(name="map", spec=spec, rows=rows, shows=MAP_SHOWS.format(method=method), hides=MAP_HIDES)
    faults = int(shown.fault.sum())
    counts = {"seeds": len(shown.fault) - faults, "faults": faults, "k": plane.NEIGHBOURS, "method": method}
    return {"problem": None, "charts": [chart], "rows": _evidence(shown, features, points), **counts}


def _shown_inputs(run: Run) -> _MapInputs:
    """At most so many of each kind, evenly through them; faults that are stored as files only."""
    seeds, faults = _suite(run) if run["command"] in SUITES else _campaign(run)
    seeds, faults = _thinned(seeds), _thinned(faults)
    rows = [*seeds, *faults]
    if not seeds or not faults:
        raise BadInput("empty", "faults", "no fault is stored as a file, or no seed: there is nothing to lay out.")
    label, predicted, root = (np.array([row[i] for row in rows], dtype=np.int64) for i in (1, 2, 3))
    fault = np.arange(len(rows)) >= len(seeds)
    return _MapInputs(np.stack([row[0] for row in rows]), fault, label, predicted, root)


T = TypeVar("T")
Input = tuple[NDArray[np.generic], int, int, int]  # image, class it is, class the network says, position of its seed


def _thinned(inputs: list[T]) -> list[T]:
    return [inputs[i] for i in np.unique(np.linspace(0, len(inputs) - 1, MAP_INPUTS).round().astype(int))] if inputs else []


def _campaign(run: Run) -> tuple[list[Input], list[Input]]:
    store = Store(run)
    x, rows = store.seeds()
    known: list[tuple[int, int, int]] = []
    for row in run.inputs():
        label = row.predicted if row.label is None else row.label
        if label is not None and row.position in rows:
            known.append((row.position, label, label if row.predicted is None else row.predicted))
    seeds = [(np.array(x[rows[position]]), label, predicted, position) for position, label, predicted in _thinned(known)]
    stored = store.mutants("oracle IS NOT NULL AND file IS NOT NULL AND expected >= 0")
    faults = _thinned([m for m in stored if m.file is not None])
    return seeds, [(np.asarray(decode(m.file)), m.expected, m.predicted, m.root) for m in faults if m.file is not None]


def _suite(run: Run) -> tuple[list[Input], list[Input]]:
    files = {(file.position, file.role): file.file for file in run.files()}
    seeds, faults = [], []
    for row in stored_faults(run):
        if (fault := files.get((row.position, "fault"))) is None or row.label is None or row.predicted is None:
            continue
        faults.append((np.asarray(decode(fault)), row.label, row.predicted, row.position))
        if (original := files.get((row.position, "original"))) is not None:
            seeds.append((np.asarray(decode(original)), row.label, row.label, row.position))
    return seeds, faults


def _evidence(shown: _MapInputs, features: NDArray[np.float64], points: NDArray[np.float64]) -> list[Row]:
    """Purity of seeds among seeds and of faults among seeds, in the layer and in the plane, each beside chance."""
    seeds, faults = ~shown.fault, shown.fault
    k = plane.NEIGHBOURS
    words = (
        ("seeds: neighbours of the same class", seeds, shown.label),
        ("faults: neighbours of the class it is", faults, shown.label),
        ("faults: neighbours of the class the network says", faults, shown.predicted),
    )
    rows: list[Row] = []
    for what, which, classes in words:
        own, others, root = classes[which], shown.label[seeds], shown.root[which]
        same = bool((which == seeds).all())
        layer, laid_out = (plane.nearest(v[which], v[seeds], k, itself=same) for v in (features, points))
        pure = [plane.over_groups(plane.purity(near, own, others), root) for near in (layer, laid_out)]
        chance = plane.purity_by_chance(layer, own, others)
        rows.append({"what": what, "layer": pure[0], "plane": pure[1], "chance": chance})
    every = [plane.nearest(v, v, k, itself=True) for v in (features, points)]
    share = min(k, len(points) - 1) / (len(points) - 1)
    both, kept = "neighbours in the layer that are neighbours here, too", plane.over_groups(plane.kept(*every), shown.root)
    return [*rows, {"what": both, "layer": None, "plane": kept, "chance": (share, None, None)}]


def _points(shown: _MapInputs, points: NDArray[np.float64], names: list[str], target: Target) -> list[Row]:
    """A row per point, with its picture."""
    common = {int(c) for c in np.argsort(-np.bincount(shown.label), kind="stable")[:MAP_COLOURS]}
    rows = _table(shown, points, names)
    for row, x, label in zip(rows, shown.x, shown.label.tolist(), strict=True):
        row |= {"colour": row["true"] if label in common else "others", "picture": pictures.small(x, target.bounds)}
    return rows


def _table(shown: _MapInputs, points: NDArray[np.float64], names: list[str]) -> list[Row]:
    flags, numbers = shown.fault.tolist(), (shown.label.tolist(), shown.predicted.tolist(), shown.root.tolist())
    return [
        {"kind": "fault" if fault else "seed", "x": round(x, 3), "y": round(y, 3), "true": class_name(label, names),
         "predicted": class_name(predicted, names), "seed": root}
        for (x, y), fault, label, predicted, root in zip(points.tolist(), flags, *numbers, strict=True)
    ]  # fmt: skip


def _map_spec(rows: list[Row]) -> charts.Spec:
    kinds, classes = ["seed", "fault"], list(dict.fromkeys(row["colour"] for row in rows if row["colour"] != "others"))
    domain = sorted(classes) + (["others"] if any(row["colour"] == "others" for row in rows) else [])
    words = ("kind", "true", "predicted", "seed")
    tooltip = [{"field": "picture", "title": "image"}, *({"field": word, "type": "nominal"} for word in words)]
    x, y = (charts.number(axis, axis=None, scale={"zero": False}) for axis in "xy")
    encoding = {
        "x": x, "y": y, "tooltip": tooltip,
        "color": charts.names("colour", "the class it is", sort=domain, scale={"domain": domain, "scheme": "tableau10"}),
        "shape": charts.names("kind", scale={"domain": kinds, "range": ["circle", "cross"]}),
        "opacity": {"condition": {"test": "datum.kind === 'seed'", "value": 0.45}, "value": 0.95},
    }  # fmt: skip
    mark = {"type": "point", "filled": True, "size": 55}
    return {"width": 620, "height": 440, "data": {"values": rows}, "mark": mark, "encoding": encoding}
