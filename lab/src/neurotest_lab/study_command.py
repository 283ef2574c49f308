"""`neurotest study`: a paper's tables rerun."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Annotated, Any

import typer

from neurotest.cli import options as opt
from neurotest.cli import show
from neurotest.errors import command

SHOWN = 80  # rows of a table on the screen; the run holds all


@opt.takes_workers
@opt.reports_result
def study(
    name: Annotated[str, typer.Argument(help="nss, fuzzing, coverage, ... (`neurotest list study`)")],
    scale: Annotated[str | None, typer.Option("--scale", help="quick (15 minutes, the default) or full")] = None,
    only: Annotated[str | None, typer.Option("--only", help="Only cells whose names begin so, e.g. select/mnist-lenet1.")] = None,
    resume: Annotated[Path | None, typer.Option("--resume", help="Go on with this run; finished cells stay.")] = None,
    from_csv: Annotated[
        Path | None, typer.Option("--from-csv", help="coverage: run the statistics on these published suites only.")
    ] = None,
    out: opt.Out = None,
    threads: opt.Threads = None,
    quiet: opt.Quiet = False,
) -> opt.Result:
    """Rerun a paper's tables: ours beside theirs, random, intervals; every finished cell is kept."""
    from neurotest import registry

    registry.find("study", name)
    opt.set_threads(threads)
    from neurotest_lab.studies.run import run_study

    options = {} if from_csv is None else {"from_csv": str(from_csv)}
    say = functools.partial(show.remark, quiet=quiet)
    result = run_study(name, scale, out=out, resume=resume, only=only, options=options, say=say)
    return result, lambda: print_tables(result)


def print_tables(result: dict[str, Any]) -> None:
    for title, rows in result["tables"].items():
        if rows:
            columns = [name for name in rows[0] if not name.endswith(("png", "wav"))]  # pictures and sounds are for the report
            heading = f"{title} (the first {SHOWN} of {len(rows)} rows)" if len(rows) > SHOWN else title
            show.table(heading, columns, [[_text(row.get(name)) for name in columns] for row in rows[:SHOWN]])
    if result["checks"]:
        show.table("checks", ["claim", "points"], [[name, f"{value:+g}"] for name, value in result["checks"].items()])
    if result["missing"]:
        print(f"{len(result['missing'])} cells are missing: {command('study', result['study'], '--resume', result['run'])}")
    print(f"everything: {result['run']}; charts and pictures: {command('report', result['run'])}")


def _text(value: Any) -> str:
    return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
