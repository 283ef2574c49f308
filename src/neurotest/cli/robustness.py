"""`neurotest robustness`: how far inputs are from another class, estimated and by attack."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from neurotest.cli import options as opt
from neurotest.cli import show
from neurotest.settings.analyse import RobustnessSettings

INPUTS_SHOWN = 20


@opt.command(
    RobustnessSettings,
    numbers=(
        "inputs", "set_aside", "radius", "score", "score_interval.*", "score_median", "least", "upper", "upper_interval.*",
        "reached", "contradicted", "contradicted_interval.*", "at_radius", "random.*", "fits", "fitted", "by.*", "forwards",
        "backwards", "seconds", "rows.*",
    ),
)  # fmt: skip
def robustness(
    target: opt.Target = None,
    data: Annotated[str | None, typer.Argument(help="Inputs, labelled if possible.", show_default=False)] = None,
    *,
    call: opt.Call,
) -> opt.Result:
    """Estimate how far inputs are from another class: CLEVER (not a certificate) and the smallest change that attacks find."""
    from neurotest.evaluate.robustness import robustness as run

    result = call.work(run, "measuring robustness", target=target, data=data)
    content = result.to_dict()
    return content, lambda: _show(content, result.headline(), call.quiet)


def _show(content: dict[str, Any], headline: str, quiet: bool) -> None:
    print(headline)
    rows = [
        [
            row["file"] or str(row["position"]), row["class"], row["nearest"], f"{row['score']:.3g}",
            show.number(row["upper"], ".3g"), row["by"], "yes" if row["contradicted"] else "",
        ]
        for row in content["rows"][:INPUTS_SHOWN]
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
