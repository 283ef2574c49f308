"""`neurotest diff`: targets driven apart along their gradients, or one driven out of its class."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from neurotest.cli import options as opt
from neurotest.errors import BadInput


@opt.takes_target
@opt.reports_result
def diff(
    targets: Annotated[list[str] | None, typer.Argument(help="Two or more targets; one for dlfuzz and adapt.")] = None,
    seeds: Annotated[str | None, typer.Option("--seeds", help="Inputs to start from, labelled if possible.")] = None,
    method: Annotated[
        str, typer.Option("--method", help="deepxplore:light|occlusion|blackout, dlfuzz:STRATEGY or adapt, with options.")
    ] = "deepxplore",
    weights: Annotated[
        list[Path] | None, typer.Option("--weights", help="State dict of the py: targets; repeat it: one for each, in order.")
    ] = None,
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
    description: dict[str, Any],
) -> opt.Result:
    """Find inputs on which networks that agreed on the seed differ; what still differs as it is saved is a fault."""
    from neurotest.cli import show

    opt.start_or_resume("diff", "TARGET... and --seeds DATA", bool(targets) and seeds is not None, resume)
    from neurotest.generate.differential import diff as run

    loaded = _load(targets or [], weights or [], description, resume)
    with show.ticking("driving apart", quiet=quiet) as progress:
        result = run(
            loaded or None, seeds, method, layers=layers, steps=steps, step=step, keep_wrong=keep_wrong, limit=limit, batch=batch,
            seed=seed, files=files, out=out, resume=resume, progress=progress,
        )  # fmt: skip
    content = result.to_dict()
    return content, lambda: _show(content, result.table(), quiet)


def _load(targets: list[str], weights: list[Path], description: dict[str, Any], resume: Path | None) -> list[Any]:
    """The targets; a network of the zoo has a description of its own, unless all are of the zoo."""
    if resume is not None and not targets and (weights or description):
        option = "weights" if weights else next(iter(description)).replace("_", "-")
        raise BadInput(f"--{option}: of which target? Name the run's targets, too.")
    if not weights and "weights" in description:  # of neurotest.toml
        weights = [description.pop("weights")]
    own = [target for target in targets if not target.startswith("zoo:")]
    take = [target for target in targets if target.startswith("py:") or not own]
    if weights and (not take or len(weights) not in (1, len(take))):
        raise BadInput(
            f"--weights {len(weights)} times, but {len(take)} of the targets take it: give one for all, or one for each."
        )
    files = iter(weights if len(weights) > 1 else weights * len(take))
    loaded = []
    for target in targets:
        described = target in own or not own
        about = {name: value for name, value in description.items() if described or name == "device"}
        if target in take and weights:
            about["weights"] = next(files)
        loaded.append(opt.open_target(target, about, resume))
    return loaded


def _show(content: dict[str, Any], families: list[dict[str, Any]], quiet: bool) -> None:
    from neurotest.cli import show

    rows = [
        [
            content["operator"],
            str(content["faults"]),
            show.number(content["seeds_failed"], ".1%"),
            show.number(content["distance"]["l2"], ".2f"),
        ],
        [
            "random changes of the same size",
            str(content["random"]["faults"]),
            show.number(content["random_seeds_failed"], ".1%"),
            "",
        ],
    ]
    aside = (
        f"{content['set_aside']} set aside because the first target gets them wrong, {content['disagreed']} because they differ"
    )
    show.table(f"{content['seeds']} seeds; {aside}", ["", "faults", "seeds with one", "mean L2"], rows)
    if len(content["targets"]) > 1:
        rows = [[name, str(faults)] for name, faults in content["by_target"].items()]
        show.table("which target left the class of the seed", ["target", "faults"], rows)
    show.families(families, content["families"])
    if content["success_interval"][0] <= content["random"]["success_interval"][1]:
        show.remark("the method does not clearly beat random changes of the same size.", quiet=quiet)
    if content["unstable"]:
        show.remark(f"{content['unstable']} seeds differed only before rounding to 8 bits: not counted.", quiet=quiet)
    covered = ", ".join(f"{share:.0%}" for share in content["coverage"])
    show.remark(f"neurons covered: {covered}; {content['forwards']:,} forward passes; run: {content['run']}", quiet=quiet)
