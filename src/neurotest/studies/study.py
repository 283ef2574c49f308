"""The frame of a study: cells that are computed once, kept in a run, and tables made from those that are there."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from neurotest import registry
from neurotest.errors import BadInput, Interrupted, near
from neurotest.runs.store import Run

SCALES = ("quick", "full")
Say = Callable[[str], None]
STOPPED = "interrupted after {done} of {all} cells, all of them are kept. Go on with: neurotest study {name} --resume {path}"


@dataclass(frozen=True)
class Cell:
    """One piece of a study: `make` gives plain data, the same whenever it is called. asked: made only when `only` names it."""

    key: str
    make: Callable[[], Any]
    asked: bool = False


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
    options: dict[str, Any] | None = None,
    say: Say | None = None,
) -> dict[str, Any]:
    """Compute the cells that are missing, one after the other, and give the tables of all that are there.

    only: a beginning of cell names; others are left for another time. options: settings of the study itself. Interrupt it
    whenever you like: a finished cell is kept.
    """
    if scale not in SCALES:
        raise BadInput(f"--scale {scale}: expected quick or full.")
    run = _opened(name, scale, out, resume, options)
    with run:
        name, scale = _what(run, name)
        study = _study(name, run["config"].get("options"))
        cells = study.cells(scale)
        done = {cell.key: run[_key(cell)] for cell in cells if _key(cell) in run}
        try:
            _compute(run, cells, done, only, say)
        except KeyboardInterrupt:
            told = STOPPED.format(done=len(done), all=len(cells), name=name, path=run.path)
            raise Interrupted(told) from None
        found = study.tables(scale, done)
        missing = [cell.key for cell in cells if cell.key not in done and not cell.asked]
        content = {"study": name, "scale": scale, "missing": missing, **found, "run": str(run.path)}
        order = [[title, list(rows[0])] for title, rows in found["tables"].items() if rows]  # a run stores keys by the alphabet
        run.finish({"tables": found["tables"], "checks": found["checks"], "missing": missing, "order": order})
        run.export()
        return content


def _compute(run: Run, cells: Sequence[Cell], done: dict[str, Any], only: str | None, say: Say | None) -> None:
    """What is missing, into the run and into `done`, cell by cell."""
    for number, cell in enumerate(cells, start=1):
        if cell.key in done or not (cell.key.startswith(only) if only else not cell.asked):
            continue
        began = time.monotonic()
        run[_key(cell)] = cell.make()
        done[cell.key] = run[_key(cell)]
        if say is not None:
            say(f"{number} of {len(cells)}: {cell.key}, {time.monotonic() - began:.0f} s")


def _key(cell: Cell) -> str:
    return f"cell {cell.key}"


def _opened(name: str, scale: str, out: Any, resume: Any, options: dict[str, Any] | None) -> Run:
    if resume is None:
        _study(name, options)  # a setting that does not fit is told before a run is made
        return Run.create(out, "study", {"study": name, "scale": scale, **({"options": options} if options else {})})
    if options:
        raise BadInput(f"--{next(iter(options)).replace('_', '-')}: a resumed study keeps its settings; start a new one.")
    return Run.open(resume, write=True)


def _study(name: str, options: dict[str, Any] | None) -> Study:
    entry = registry.find("study", name)
    for option in options or {}:
        if option not in entry.options:
            raise BadInput(f"the study {name} has no --{option.replace('_', '-')}.")
    made: Study = entry.make(**(options or {}))
    return made


def _what(run: Run, name: str) -> tuple[str, str]:
    """The run says itself which study it is, and how large."""
    config = run["config"]
    if run["command"] != "study" or not isinstance(config, dict) or config.get("study") not in registry.entries("study"):
        raise BadInput(f"{run.path} is no run of a study. {near(name, registry.entries('study'))}")
    if name != config["study"]:
        raise BadInput(f"{run.path} is a run of the study {config['study']}, not of {name}.")
    return str(config["study"]), str(config["scale"])
