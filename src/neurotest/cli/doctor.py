"""`neurotest doctor`: is this network ready to be tested?"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from neurotest.cli import options as opt


@opt.takes_target
@opt.tells
def doctor(
    target: Annotated[str, typer.Argument(help="zoo:NAME, py:FILE_OR_MODULE:CALLABLE or pt2:FILE")],
    data: Annotated[str | None, typer.Argument(help="Inputs it should work on, labelled if possible; without: noise.")] = None,
    limit: opt.Limit = 512,
    batch: opt.Batch = 100,
    quiet: opt.Quiet = False,
    *,
    described: dict[str, Any],
) -> opt.Told:
    """Eval mode, outputs, bounds, classes, determinism, batches, dead neurons, layers, memory, speed: what to mend first."""
    from neurotest.cli import show
    from neurotest.doctor import doctor as examine

    with show.ticking("examining", quiet=quiet) as progress:
        found = examine(target, data, limit=limit or 512, batch=batch, progress=progress, **described)
    content = found.to_dict()

    def tell() -> None:
        print(found.table())
        show.remark(f"problems: {content['problems']}, warnings: {content['warnings']}", quiet=quiet)

    return content, tell
