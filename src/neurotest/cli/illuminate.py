"""`neurotest illuminate`: one fault for every pair of classes and way of change."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from neurotest.cli import options as opt


@opt.takes_target
def illuminate(
    target: Annotated[str | None, typer.Argument(help="zoo:NAME, py:FILE_OR_MODULE:CALLABLE, pt2:FILE (none: --resume)")] = None,
    seeds: Annotated[str | None, typer.Argument(help="Inputs to start from, labelled if possible.")] = None,
    forwards: Annotated[
        int | None, typer.Option("--forwards", help="Stop after so many forward passes; a backward pass counts as two (2000).")
    ] = None,
    changes: Annotated[str | None, typer.Option("--changes", help="all (default), or some of shading+bend+noise.")] = None,
    steps: Annotated[int | None, typer.Option("--steps", help="Steps towards an aimed class (8).")] = None,
    keep_wrong: Annotated[bool, typer.Option("--keep-wrong", help="Also start from seeds the target gets wrong.")] = False,
    files: Annotated[int, typer.Option("--files", help="How many faults of the archive are stored as images.")] = 500,
    resume: Annotated[Path | None, typer.Option("--resume", help="Go on with this interrupted run.")] = None,
    out: opt.Out = None,
    seed: opt.Seed = 0,
    limit: opt.Limit = None,
    batch: opt.Batch = 32,
    fail_if: opt.FailIf = None,
    json: opt.Json = False,
    quiet: opt.Quiet = False,
    *,
    described: dict[str, Any],
) -> None:
    """Fill the map of what is taken for what: for every true and predicted class the smallest change that does it."""
    from neurotest.cli import show
    from neurotest.errors import BadInput

    for condition in fail_if or ():
        show.read_condition(condition)
    opt.at_least("limit", limit)
    opt.at_least("batch", batch)
    opt.at_least("forwards", forwards)
    if resume is None and (target is None or seeds is None):
        raise BadInput("illuminate needs TARGET and SEEDS, or --resume RUN.")
    if resume is not None and out is not None:
        raise BadInput("--resume goes on in the run itself: leave out --out.")
    from neurotest.generate.illuminate import illuminate as run
    from neurotest.target.load import load

    loaded = None if target is None else load(target, **described)
    with show.ticking("illuminating", quiet=quiet) as progress:
        found = run(
            loaded, seeds, forwards, keep_wrong=keep_wrong, limit=limit, seed=seed, files=files, out=out, resume=resume,
            progress=progress, changes=changes, steps=steps, batch=batch,
        )  # fmt: skip
    content = found.to_dict()
    for note in content["notes"]:
        show.remark(note, quiet=quiet)
    if json:
        show.print_json(content)
    else:
        _show(content, found.table(), quiet)
    show.check_fail_if(fail_if, content)


def _show(content: dict[str, Any], cells: list[dict[str, Any]], quiet: bool) -> None:
    from neurotest.cli import show

    filled, possible = content["cells"]["filled"], content["cells"]["possible"]
    print(
        f"{filled} of {possible} pairs of true and predicted class have a fault; the archive holds {content['archive']} "
        f"({', '.join(f'{n} by {name}' for name, n in content['by_change'].items())}), {content['faults']} faults were found; "
        f"of random changes of the same size {content['random']['faults']} of {content['archive']} fail"
    )
    rows = [[f"{row['true']} taken for {row['predicted']}", row["operator"], f"{row['l2']:.2f}"] for row in cells[:10]]
    show.table("the smallest changes of the archive", ["cell", "change", "L2"], rows)
    show.remark(
        f"{content['spent']:,} passes spent ({content['forwards']:,} forward with those over the seeds, {content['backwards']:,} "
        f"backward); stopped: {content['stopped']}; run: {content['run']}",
        quiet=quiet,
    )
