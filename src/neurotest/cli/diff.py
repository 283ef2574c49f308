"""`neurotest diff`: targets driven apart along their gradients, or one driven out of its class."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from neurotest.cli import options as opt
from neurotest.errors import BadInput


@opt.takes_target
@opt.tells
def diff(
    targets: Annotated[list[str] | None, typer.Argument(help="Two or more targets; one for dlfuzz and adapt.")] = None,
    seeds: Annotated[str | None, typer.Option("--seeds", help="Inputs to start from, labelled if possible.")] = None,
    method: Annotated[
        str, typer.Option("--method", help="deepxplore:light|occlusion|blackout, dlfuzz:STRATEGY or adapt, with options.")
    ] = "deepxplore",
    layers: opt.Layers = None,
    steps: Annotated[int | None, typer.Option("--steps", help="Steps along the gradient.")] = None,
    step: Annotated[float | None, typer.Option("--step", help="Size of a step, of a gradient of root mean square 1.")] = None,
    keep_wrong: Annotated[bool, typer.Option("--keep-wrong", help="Also start from seeds the first target gets wrong.")] = False,
    files: opt.Files = 500,
    resume: opt.Resume = None,
    out: opt.Out = None,
    seed: opt.Seed = 0,
    limit: opt.Limit = None,
    batch: opt.Batch = 64,
    quiet: opt.Quiet = False,
    *,
    described: dict[str, Any],
) -> opt.Told:
    """Find inputs on which networks that agreed on the seed differ; what still differs as it is saved is a fault."""
    from neurotest.cli import show

    opt.start_or_resume("diff", "TARGET... and --seeds DATA", bool(targets) and seeds is not None, resume, out)
    from neurotest.generate.differential import diff as run

    if resume is not None and described and not targets:
        raise BadInput(f"--{next(iter(described)).replace('_', '-')}: of which target? Name the run's targets, too.")
    loaded = [opt.opened(target, described, resume) for target in targets or ()]
    with show.ticking("driving apart", quiet=quiet) as progress:
        found = run(
            loaded or None, seeds, method, layers=layers, steps=steps, step=step, keep_wrong=keep_wrong, limit=limit, batch=batch,
            seed=seed, files=files, out=out, resume=resume, progress=progress,
        )  # fmt: skip
    content = found.to_dict()
    return content, lambda: _show(content, found.table(), quiet)


def _show(content: dict[str, Any], families: list[dict[str, Any]], quiet: bool) -> None:
    from neurotest.cli import show

    rows = [
        [content["operator"], str(content["faults"]), _percent(content["seeds_failed"]), _number(content["distance"]["l2"])],
        ["random changes of the same size", str(content["random"]["faults"]), _percent(content["random_seeds_failed"]), ""],
    ]
    aside = (
        f"{content['set_aside']} set aside because the first target gets them wrong, {content['disagreed']} because they differ"
    )
    show.table(f"{content['seeds']} seeds; {aside}", ["", "faults", "seeds with one", "mean L2"], rows)
    if len(content["targets"]) > 1:
        told = [[name, str(n)] for name, n in content["by_target"].items()]
        show.table("which target left the class of the seed", ["target", "faults"], told)
    if families:
        told = [[f"{row['true']} taken for {row['predicted']}", str(row["faults"])] for row in families[:10]]
        show.table(f"{content['families']} fault families, the most frequent first", ["family", "faults"], told)
    if content["success_interval"][0] <= content["random"]["success_interval"][1]:
        show.remark("the method does not clearly beat random changes of the same size.", quiet=quiet)
    if content["unstable"]:
        show.remark(f"{content['unstable']} seeds differed only before rounding to 8 bits: not counted.", quiet=quiet)
    covered = ", ".join(f"{share:.0%}" for share in content["coverage"])
    show.remark(f"neurons covered: {covered}; {content['forwards']:,} forward passes; run: {content['run']}", quiet=quiet)


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:.1%}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"
