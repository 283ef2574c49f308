"""Cells of a study by whoever does the work: each is computed by itself, and the command that runs the study writes them down."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from neurotest.errors import BadInput
from neurotest.executor import Lost, current
from neurotest_lab.studies.frame import ABSENT, Cell

Content = tuple[Any, float]  # of a cell, and the seconds it took


def contents(cells: Sequence[Cell]) -> Iterator[tuple[Cell, Any, float]]:
    """Every cell with its content, as they are finished."""
    by_key = {cell.key: cell for cell in cells}
    work = ((cell.key, cell.make) for cell in cells)
    for (key, _), result in current().attempt(_content, None, work, ordered=False):
        if isinstance(result, Lost):
            raise BadInput(
                "worker-lost",
                "",
                f"the worker of the cell {key} was lost ({result.reason}; memory?): go on with --resume and fewer --workers.",
            )
        yield by_key[key], *result


def _content(shared: None, work: tuple[str, Callable[[], Any]]) -> Content:
    return content(work[1])


def content(make: Callable[[], Any]) -> Content:
    """What a cell holds; one that cannot be computed here says why."""
    began = time.monotonic()
    try:
        value = make()
    except BadInput as error:
        value = {ABSENT: str(error)}
    return value, time.monotonic() - began
