"""`neurotest study`: a paper's tables rerun."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from neurotest.cli import options as opt


def study(
    name: Annotated[str, typer.Argument(help="nss (`neurotest list study`)")],
    scale: Annotated[str, typer.Option("--scale", help="quick (15 minutes) or full")] = "quick",
    only: Annotated[str | None, typer.Option("--only", help="Only cells whose names begin so, e.g. select/mnist-lenet1.")] = None,
    resume: Annotated[Path | None, typer.Option("--resume", help="Go on with this run; finished cells stay.")] = None,
    out: opt.Out = None,
    threads: opt.Threads = None,
    fail_if: opt.FailIf = None,
    json: opt.Json = False,
    quiet: opt.Quiet = False,
) -> None:
    """Rerun a paper's tables: ours beside theirs, random, intervals; every finished cell is kept."""
    from neurotest import registry
    from neurotest.cli import show

    for condition in fail_if or ():
        show.read_condition(condition)
    registry.find("study", name)
    opt.set_threads(threads)
    from neurotest.studies.study import run_study

    found = run_study(name, scale, out=out, resume=resume, only=only, say=lambda text: show.remark(text, quiet=quiet))
    if json:
        show.print_json(found)
    else:
        tell(found)
    show.check_fail_if(fail_if, found)


def tell(found: dict[str, Any]) -> None:
    from neurotest.cli import show

    for title, rows in found["tables"].items():
        if rows:
            show.table(title, list(rows[0]), [[_text(value) for value in row.values()] for row in rows])
    if found["checks"]:
        show.table("checks", ["claim", "points"], [[name, f"{value:+g}"] for name, value in found["checks"].items()])
    if found["missing"]:
        print(f"{len(found['missing'])} cells are missing: neurotest study {found['study']} --resume {found['run']}")
    print(f"everything: {found['run']}")


def _text(value: Any) -> str:
    return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
