"""What is taken for what: true against predicted classes, with a fault as a picture in every cell."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from neurotest.campaign.families import families
from neurotest.generate.outcome import class_name
from neurotest.report import pictures
from neurotest.report.generated import COMMANDS as SUITES
from neurotest.report.generated import stored_faults
from neurotest.report.section import Row, section
from neurotest.runs.folder import RunFile
from neurotest.runs.store import Run

COMMANDS = ("fuzz", "merge", "swarm", "attack", "diff", "illuminate")
SIDE = 20  # classes in a row or column; more are counted, not shown
LABELS = 8  # of more classes than these a cell has no room for a large picture


class _ClassPair(NamedTuple):
    """Faults of one pair of classes, and the file of the one that shows them best."""

    true: int
    predicted: int
    faults: int
    file: RunFile | None


@section("matrix", title="What is taken for what", order=5, commands=COMMANDS)
def _matrix(run: Run) -> Row | None:
    """Classes without faults have neither row nor column; the most frequent ones come first where there are too many."""
    groups = _suite(run) if run["command"] in SUITES else _campaign(run)
    if not groups:
        return None
    names = list(run["classes"]) if "classes" in run else []
    rows, columns = _most((g.true, g.faults) for g in groups), _most((g.predicted, g.faults) for g in groups)
    cells = {
        (g.true, g.predicted): {"faults": g.faults, "picture": pictures.of_file(g.file, sound=False)}
        for g in _shown(groups, rows, columns)
    }
    left_out = sum(g.faults for g in groups if (g.true, g.predicted) not in cells)
    return {
        "rows": [(number, class_name(number, names)) for number in rows], "cells": cells,
        "columns": [(number, class_name(number, names)) for number in columns],
        "left_out": left_out, "pairs": len(groups), "small": len(columns) > LABELS,
    }  # fmt: skip


def _most(counts: Iterable[tuple[int, int]]) -> list[int]:
    """The classes with the most faults, by number."""
    total: Counter[int] = Counter()
    for number, faults in counts:
        total[number] += faults
    return sorted(number for number, _ in total.most_common(SIDE))


def _shown(groups: list[_ClassPair], rows: list[int], columns: list[int]) -> list[_ClassPair]:
    return [group for group in groups if group.true in rows and group.predicted in columns]


def _campaign(run: Run) -> list[_ClassPair]:
    """Families by their classes; the representative is that of the family with the smallest change."""
    pairs: dict[tuple[int, int], list[tuple[float, int, RunFile | None]]] = {}
    for family in families(run.path).families:
        change = family.representative
        pairs.setdefault(family.key[:2], []).append((change.distance[1], family.faults, change.file))
    return [
        _ClassPair(*pair, sum(n for _, n, _ in rows), min(rows, key=lambda row: (row[2] is None, row[0]))[2])
        for pair, rows in pairs.items()
    ]


def _suite(run: Run) -> list[_ClassPair]:
    files = {file.position: file.file for file in run.files("fault")}
    pairs: dict[tuple[int, int], list[tuple[float, RunFile | None]]] = {}
    for row in stored_faults(run):
        assert row.label is not None
        assert row.predicted is not None
        distance = float(row.extra.get("l2") or 0.0)
        pairs.setdefault((row.label, row.predicted), []).append((distance, files.get(row.position)))
    return [_ClassPair(*pair, len(rows), min(rows, key=lambda row: (row[1] is None, row[0]))[1]) for pair, rows in pairs.items()]
