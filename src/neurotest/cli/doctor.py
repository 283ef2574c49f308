"""`neurotest doctor`: is this network ready to be tested?"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from neurotest.cli import options as opt


@opt.takes_target
@opt.reports_result
def doctor(
    target: Annotated[str, typer.Argument(help="zoo:NAME, py:FILE_OR_MODULE:CALLABLE or pt2:FILE")],
    data: Annotated[str | None, typer.Argument(help="Inputs it should work on, labelled if possible; without: noise.")] = None,
    limit: opt.Limit = 512,
    batch: opt.Batch = 100,
    quiet: opt.Quiet = False,
    *,
    description: dict[str, Any],
) -> opt.Result:
    """Eval mode, outputs, bounds, classes, determinism, batches, dead neurons, layers, memory, speed: what to mend first."""
    from neurotest.cli import show
    from neurotest.doctor import doctor as examine

    with show.ticking("examining", quiet=quiet) as progress:
        report = examine(target, data, limit=limit or 512, batch=batch, progress=progress, **description)
    content = report.to_dict()

    def print_result() -> None:
        print(report.table())
        show.remark(f"problems: {content['problems']}, warnings: {content['warnings']}", quiet=quiet)

    return content, print_result
