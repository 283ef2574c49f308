"""`neurotest doctor`: is this network ready to be tested?"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from neurotest.cli import options as opt


@opt.takes_target
def doctor(
    target: Annotated[str, typer.Argument(help="zoo:NAME, py:FILE_OR_MODULE:CALLABLE or pt2:FILE")],
    data: Annotated[str | None, typer.Argument(help="Inputs it should work on, labelled if possible; without: noise.")] = None,
    limit: opt.Limit = 512,
    batch: opt.Batch = 100,
    fail_if: opt.FailIf = None,
    json: opt.Json = False,
    quiet: opt.Quiet = False,
    *,
    described: dict[str, Any],
) -> None:
    """Eval mode, outputs, bounds, classes, determinism, batches, dead neurons, layers, memory, speed: what to mend first."""
    from neurotest.cli import show

    for condition in fail_if or ():
        show.read_condition(condition)
    from neurotest.doctor import doctor as examine

    with show.ticking("examining", quiet=quiet) as progress:
        found = examine(
            target,
            data,
            limit=limit or 512,
            batch=batch,
            progress=progress,
            **described,
        )
    content = found.to_dict()
    if json:
        show.print_json(content)
    else:
        print(found.table())
        if not quiet:
            show.remark(f"problems: {content['problems']}, warnings: {content['warnings']}")
    show.check_fail_if(fail_if, content)
