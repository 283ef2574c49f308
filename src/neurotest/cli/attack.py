"""`neurotest attack`: faults along the gradient, with the diversity regulariser on request."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from neurotest.cli import options as opt


@opt.takes_target
@opt.reports_result
def attack(
    target: opt.Target = None,
    seeds: opt.Seeds = None,
    attack: Annotated[
        str,
        typer.Option("--attack", help="pgd, bim, fgsm, cw, deepfool, jsma or autoattack, with options: pgd:eps=0.1,steps=40."),
    ] = "pgd",
    diversity: Annotated[float, typer.Option("--diversity", help="Weight (lambda) of the regulariser; 0: none.")] = 0.0,
    layers: Annotated[
        str | None, typer.Option("--layers", help="Layers to make diverse: globs or a preset (default: pre_activation, all).")
    ] = None,
    reduce: Annotated[
        str | None, typer.Option("--reduce", help="instance (default) or batch, which couples inputs as the study does.")
    ] = None,
    attack_first: Annotated[bool, typer.Option("--attack-first", help="Make diverse only what already fails.")] = False,
    eps: Annotated[str | None, typer.Option("--eps", help="Largest change, a share of the input range: 0.1 or 8/255.")] = None,
    steps: Annotated[int | None, typer.Option("--steps", help="Steps (pgd, bim, cw).")] = None,
    step: Annotated[str | None, typer.Option("--step", help="Size of a step (pgd, bim).")] = None,
    kappa: Annotated[float | None, typer.Option("--kappa", help="Lead in logits another class must have (cw).")] = None,
    keep_wrong: opt.KeepWrong = False,
    files: opt.Files = 500,
    resume: opt.Resume = None,
    out: opt.Out = None,
    seed: opt.Seed = 0,
    limit: opt.Limit = None,
    batch: opt.Batch = 100,
    quiet: opt.Quiet = False,
    *,
    description: dict[str, Any],
) -> opt.Result:
    """Move seeds away from their class along the target's gradient; what still fails as it is saved is a fault."""
    from neurotest.cli import show

    opt.start_or_resume("attack", "TARGET and SEEDS", target is not None and seeds is not None, resume)
    from neurotest.generate.gradient import attack as run

    loaded = opt.open_target(target, description, resume)
    with show.ticking("attacking", quiet=quiet) as progress:
        result = run(
            loaded, seeds, attack, diversity, layers=layers, reduce=reduce, attack_first=attack_first,
            keep_wrong=keep_wrong, limit=limit, batch=batch, seed=seed, files=files, out=out, resume=resume, progress=progress,
            eps=eps, steps=steps, step=step, kappa=kappa,
        )  # fmt: skip
    content = result.to_dict()
    return content, lambda: _show(content, result.table(), quiet)


def _show(content: dict[str, Any], families: list[dict[str, Any]], quiet: bool) -> None:
    from neurotest.cli import show

    rows = [
        [
            content["attack"],
            *_row(content),
            show.number(content["distance"]["linf"], ".3f"),
            show.number(content["evenness"]["faults"], ".3f"),
        ],
        ["random noise of the same size", *_row(content["random"]), "", ""],
    ]
    title = f"{content['outputs']} seeds attacked, {content['set_aside']} set aside because the target gets them wrong"
    show.table(title, ["", "faults", "success", "95 % interval", "mean Linf", "evenness"], rows)
    show.families(families, content["families"])
    low = content["success_interval"][0]
    if low <= content["random"]["success_interval"][1]:
        show.remark("the attack does not clearly beat random noise of the same size.", quiet=quiet)
    if content["unstable"]:
        show.remark(f"{content['unstable']} more failed only before they were rounded to 8 bits: not counted.", quiet=quiet)
    show.remark(f"{content['forwards']:,} forward passes, {content['seconds']:.1f} s; run: {content['run']}", quiet=quiet)


def _row(content: dict[str, Any]) -> list[str]:
    low, high = content["success_interval"]
    return [str(content["faults"]), f"{content['success']:.1%}", f"{low:.1%} .. {high:.1%}"]
