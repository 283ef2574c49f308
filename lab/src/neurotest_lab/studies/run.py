"""Running a study: cells are computed once and kept in a run. Nothing else in the studies opens or writes one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from neurotest import registry
from neurotest.errors import BadInput, near
from neurotest.jobs.life import begin, filled, finish, in_place, resumed_settings, safe_point
from neurotest.runs.store import Run
from neurotest_lab.studies.frame import ABSENT, SCALES, Cell, Row, Study
from neurotest_lab.studies.workers import contents

Say = Callable[[str], None]


def run_study(
    name: str,
    scale: str | None = None,
    *,
    out: str | Path | None = None,
    resume: str | Path | None = None,
    only: str | None = None,
    options: dict[str, Any] | None = None,
    say: Say | None = None,
) -> Row:
    """Compute the cells that are missing, and give the tables of all that are there.

    scale: quick (the default) or full. only: a beginning of cell names; others are left for another time. options: settings of
    the study itself. Interrupt it whenever you like: a finished cell is kept.
    """
    if scale is not None and scale not in SCALES:
        raise BadInput("out-of-range", "scale", f"--scale {scale}: expected quick or full.")
    run = _open(name, scale, out, resume, options)
    done: dict[str, Any] = {}
    with safe_point(run, lambda: f"{len(done)} cells" if done else "", new=resume is None):
        config = _config(run, name)
        resumed_settings(run, {"scale": scale}, config)
        if not run.is_filled:  # whoever began it died before it could say so
            filled(run, None)
        scale = str(config["scale"])
        study = _study(name, config.get("options"))
        cells = study.cells(scale)
        done |= {cell.key: run[_key(cell)] for cell in cells if _key(cell) in run}
        _compute(run, cells, done, only, say)
        done = {cell.key: done[cell.key] for cell in cells if cell.key in done}  # tables in one order, however often it went on
        results = study.tables(scale, done)
        missing = [cell.key for cell in cells if cell.key not in done and not cell.optional]
        order = [[title, list(rows[0])] for title, rows in results["tables"].items() if rows]  # a run stores keys by the alphabet
        finish(run, {"tables": results["tables"], "checks": results["checks"], "missing": missing, "order": order})
        return {"study": name, "scale": scale, "missing": missing, **results, "run": str(run.path)}


def _compute(run: Run, cells: Sequence[Cell], done: dict[str, Any], only: str | None, say: Say | None) -> None:
    """What is missing, into the run and into `done`. What could not be computed the last time is tried again: its data or weights
    may be here by now."""
    finished = {key for key, value in done.items() if not (isinstance(value, dict) and ABSENT in value)}
    asked = [cell for cell in cells if (cell.key.startswith(only) if only else not cell.optional)]
    numbers = {cell.key: number for number, cell in enumerate(cells, start=1)}
    for cell, value, seconds in contents([cell for cell in asked if cell.key not in finished]):
        run[_key(cell)] = value
        done[cell.key] = run[_key(cell)]
        if say is not None:
            say(f"{numbers[cell.key]} of {len(cells)}: {cell.key}, {seconds:.0f} s")


def _key(cell: Cell) -> str:
    return f"cell {cell.key}"


def _open(name: str, scale: str | None, out: Any, resume: Any, options: dict[str, Any] | None) -> Run:
    if resume is None:
        _study(name, options)  # a setting that does not fit is refused before there is a run
        return begin("study", out, {"study": name, "scale": scale or SCALES[0], **({"options": options} if options else {})})
    in_place(out)
    if options:
        raise BadInput(
            "conflict",
            "resume",
            f"--{next(iter(options)).replace('_', '-')}: a resumed study keeps its settings; start a new one.",
        )
    return Run.open(resume, write=True)


def _study(name: str, options: dict[str, Any] | None) -> Study:
    entry = registry.find("study", name)
    for option in options or {}:
        if option not in entry.options:
            raise BadInput("unknown-option", option, f"the study {name} has no --{option.replace('_', '-')}.")
    study: Study = entry.make(**(options or {}))
    return study


def _config(run: Run, name: str) -> Row:
    """What the run says of itself: which study it is, how large, with which settings."""
    config = run["config"]
    if run["command"] != "study" or not isinstance(config, dict) or config.get("study") not in registry.entries("study"):
        raise BadInput("wrong-run", "", f"{run.path} is no run of a study. {near(name, registry.entries('study'))}")
    if name != config["study"]:
        raise BadInput("wrong-run", "", f"{run.path} is a run of the study {config['study']}, not of {name}.")
    return config
