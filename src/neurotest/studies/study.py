"""The frame of a study: cells that are computed once, kept in a run, and tables made from those that are there."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from neurotest import registry
from neurotest.errors import BadInput, near
from neurotest.runs.store import Run

SCALES = ("quick", "full")
Say = Callable[[str], None]


@dataclass(frozen=True)
class Cell:
    """One piece of a study: `make` gives plain data, the same whenever it is called."""

    key: str
    make: Callable[[], Any]


class Study(Protocol):
    """What a study consists of, and how its tables come from the cells that are finished."""

    def cells(self, scale: str) -> Sequence[Cell]: ...

    def tables(self, scale: str, done: dict[str, Any]) -> dict[str, Any]: ...


def run_study(
    name: str,
    scale: str = "quick",
    *,
    out: str | Path | None = None,
    resume: str | Path | None = None,
    only: str | None = None,
    say: Say | None = None,
) -> dict[str, Any]:
    """Compute the cells that are missing, one after the other, and give the tables of all that are there.

    only: a beginning of cell names; others are left for another time. Interrupt it whenever you like: a finished cell is kept.
    """
    if scale not in SCALES:
        raise BadInput(f"--scale {scale}: expected quick or full.")
    run = Run.create(out, "study", {"study": name, "scale": scale}) if resume is None else Run.open(resume, write=True)
    with run:
        name, scale = _what(run, resume is not None, name, scale)
        study: Study = registry.build("study", name)
        cells = study.cells(scale)
        done = {cell.key: run[_key(cell)] for cell in cells if _key(cell) in run}
        for number, cell in enumerate(cells, start=1):
            if cell.key in done or (only and not cell.key.startswith(only)):
                continue
            began = time.monotonic()
            result = cell.make()
            run[_key(cell)] = result
            done[cell.key] = run[_key(cell)]
            if say is not None:
                say(f"{number} of {len(cells)}: {cell.key}, {time.monotonic() - began:.0f} s")
        found = study.tables(scale, done)
        missing = [cell.key for cell in cells if cell.key not in done]
        content = {"study": name, "scale": scale, "missing": missing, **found, "run": str(run.path)}
        run.finish({"tables": found["tables"], "checks": found["checks"], "missing": missing})
        run.export()
        return content


def _key(cell: Cell) -> str:
    return f"cell {cell.key}"


def _what(run: Run, resumed: bool, name: str, scale: str) -> tuple[str, str]:
    """A resumed run says itself which study it is."""
    if not resumed:
        return name, scale
    config = run["config"]
    if run["command"] != "study" or not isinstance(config, dict) or config.get("study") not in registry.entries("study"):
        raise BadInput(f"{run.path} is no run of a study. {near(name, registry.entries('study'))}")
    if name != config["study"]:
        raise BadInput(f"{run.path} is a run of the study {config['study']}, not of {name}.")
    return str(config["study"]), str(config["scale"])
