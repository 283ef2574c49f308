"""`neurotest illuminate`: one fault for every pair of classes and way of change."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from neurotest.cli import options as opt


@opt.takes_target
@opt.reports_result
def illuminate(
    target: opt.Target = None,
    seeds: opt.Seeds = None,
    forwards: Annotated[
        int | None, typer.Option("--forwards", help="Stop after so many forward passes; a backward pass counts as two (2000).")
    ] = None,
    changes: Annotated[str | None, typer.Option("--changes", help="all (default), or some of shading+bend+noise.")] = None,
    steps: Annotated[int | None, typer.Option("--steps", help="Steps towards an aimed class (8).")] = None,
    keep_wrong: opt.KeepWrong = False,
    files: opt.Files = 500,
    resume: opt.Resume = None,
    out: opt.Out = None,
    seed: opt.Seed = 0,
    limit: opt.Limit = None,
    batch: opt.Batch = 32,
    quiet: opt.Quiet = False,
    *,
    description: dict[str, Any],
) -> opt.Result:
    """Fill the map of what is taken for what: for every true and predicted class the smallest change that does it."""
    from neurotest.cli import show

    opt.at_least("forwards", forwards)
    opt.start_or_resume("illuminate", "TARGET and SEEDS", target is not None and seeds is not None, resume)
    from neurotest.generate.illuminate import illuminate as run

    loaded = opt.open_target(target, description, resume)
    with show.ticking("illuminating", quiet=quiet) as progress:
        result = run(
            loaded, seeds, forwards, keep_wrong=keep_wrong, limit=limit, seed=seed, files=files, out=out, resume=resume,
            progress=progress, changes=changes, steps=steps, batch=batch,
        )  # fmt: skip
    content = result.to_dict()
    return content, lambda: _show(content, result.table(), quiet)


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
