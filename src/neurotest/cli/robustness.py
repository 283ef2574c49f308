"""`neurotest robustness`: how far inputs are from another class, estimated and by attack."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from neurotest.cli import options as opt
from neurotest.cli import show

SHOWN = 20


@opt.takes_target
@opt.reports_result
@opt.holds(
    "inputs", "set_aside", "radius", "score", "score_interval.*", "score_median", "least", "upper", "upper_interval.*", "reached",
    "contradicted", "contradicted_interval.*", "at_radius", "random.*", "fits", "fitted", "by.*", "forwards", "backwards",
    "seconds", "rows.*",
)  # fmt: skip
def robustness(
    target: opt.Target = None,
    data: Annotated[str | None, typer.Argument(help="Inputs, labelled if possible.", show_default=False)] = None,
    method: Annotated[
        str, typer.Option("--method", help="clever, with options: clever:norm=linf,radius=0.3; clever:paper has the paper's.")
    ] = "clever",
    norm: Annotated[str | None, typer.Option("--norm", help="l2 (default), l1 or linf.")] = None,
    radius: Annotated[
        float | None, typer.Option("--radius", help="How far it looks, a share of the input range (l2 5, l1 100, linf 0.3).")
    ] = None,
    samples: Annotated[int | None, typer.Option("--samples", help="Random points in a batch (128; the paper's 1024).")] = None,
    batches: Annotated[int | None, typer.Option("--batches", help="Batches whose largest gradients count (50; 500).")] = None,
    inputs: Annotated[int, typer.Option("--inputs", help="How many inputs, drawn at random.")] = 20,
    towards: Annotated[
        str | None, typer.Option("--towards", help="Distance to this class (name or number) instead of to any other.")
    ] = None,
    attacks: Annotated[
        bool, typer.Option("--attacks/--no-attacks", help="Look for the smallest change that attacks find, too.")
    ] = True,
    resume: opt.Resume = None,
    out: opt.Out = None,
    seed: opt.Seed = 0,
    limit: opt.Limit = None,
    batch: Annotated[int, opt.batch_option("Inputs after which the work is saved.")] = 10,
    quiet: opt.Quiet = False,
    *,
    description: dict[str, Any],
) -> opt.Result:
    """Estimate how far inputs are from another class: CLEVER (not a certificate) and the smallest change that attacks find."""
    opt.start_or_resume("robustness", "TARGET and DATA", target is not None and data is not None, resume)
    from neurotest.evaluate.robustness import robustness as run

    with opt.working("measuring robustness", target, description, resume, quiet=quiet) as (loaded, progress):
        result = run(
            loaded, data, method, norm=norm, radius=radius, samples=samples, batches=batches, inputs=inputs, towards=towards,
            attacks=attacks, seed=seed, limit=limit, batch=batch, out=out, resume=resume, progress=progress,
        )  # fmt: skip
    content = result.to_dict()
    return content, lambda: _show(content, result.headline(), quiet)


def _show(content: dict[str, Any], headline: str, quiet: bool) -> None:
    print(headline)
    rows = [
        [
            row["file"] or str(row["position"]), row["class"], row["nearest"], f"{row['score']:.3g}",
            show.number(row["upper"], ".3g"), row["by"], "yes" if row["contradicted"] else "",
        ]
        for row in content["rows"][:SHOWN]
    ]  # fmt: skip
    title = f"the least robust of {content['inputs']} inputs ({content['set_aside']} more are classified wrongly)"
    show.table(title, ["input", "class", "nearest", "estimate", "found", "by", "contradicted"], rows)
    changed, of = content["random"]["inputs"], content["inputs"]
    show.remark(
        f"random points within {content['radius']:g} change the class of {changed} of {of} inputs; {content['fitted']} of "
        f"{content['fits']} distributions fit, elsewhere the largest gradient seen stands for the bound; "
        f"{content['forwards']:,} forward and {content['backwards']:,} backward passes, {content['seconds']:.1f} s; "
        f"run: {content['run']}",
        quiet=quiet,
    )
