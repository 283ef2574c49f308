"""`neurotest attack`, `diff`, `illuminate` and `swarm`: inputs made from seeds so that the network fails on them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from neurotest.cli import options as opt
from neurotest.cli import show
from neurotest.errors import BadInput, command
from neurotest.settings.generate import AttackSettings, DiffSettings, IlluminateSettings, SwarmSettings

NUMBERS = (
    "outputs", "faults", "families", "roots", "by_predicted.*", "forwards", "backwards", "seconds", "evenness.*", "distance.*",
    "random.*", "unstable", "set_aside",
)  # fmt: skip


@opt.command(AttackSettings, numbers=(*NUMBERS, "success", "success_interval.*", "diversity"))
def attack(target: opt.Target = None, seeds: opt.Seeds = None, *, call: opt.Call) -> opt.Result:
    """Attack seeds along the network's gradient (PGD, CW, ...) and keep the faults. A fault still fails after it was saved."""
    from neurotest.generate.gradient import attack as run

    result = call.work(run, "attacking", target=target, seeds=seeds)
    content = result.to_dict()
    return content, lambda: _show_attack(content, result.table(), call.quiet)


def _show_attack(content: dict[str, Any], families: list[dict[str, Any]], quiet: bool) -> None:
    rows = [
        [
            content["attack"],
            *_attack_row(content),
            show.number(content["distance"]["linf"], ".3f"),
            show.number(content["evenness"]["faults"], ".3f"),
        ],
        ["random noise of the same size", *_attack_row(content["random"]), "", ""],
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


def _attack_row(content: dict[str, Any]) -> list[str]:
    low, high = content["success_interval"]
    return [str(content["faults"]), f"{content['success']:.1%}", f"{low:.1%} .. {high:.1%}"]


@opt.command(
    DiffSettings,
    numbers=(
        *NUMBERS, "success", "success_interval.*", "diversity", "by_target.*", "coverage.*", "seeds", "seeds_failed",
        "random_seeds_failed", "mean_steps", "disagreed",
    ),
)  # fmt: skip
def diff(
    targets: Annotated[list[str] | None, typer.Argument(help="Two or more targets; one for dlfuzz and adapt.")] = None,
    seeds: Annotated[str | None, typer.Option("--seeds", help="Inputs to start from, labelled if possible.")] = None,
    weights: Annotated[
        list[Path] | None,
        typer.Option("--weights", help="State dict of the targets, of py: ones if there are any; repeat it for each, in order."),
    ] = None,
    *,
    call: opt.Call,
) -> opt.Result:
    """Find inputs on which several networks disagree. They agree on the seed; the difference survives saving."""
    call.needs({"seeds": "--seeds DATA"}, targets=targets, seeds=seeds)
    from neurotest.generate.differential import diff as run

    loaded = load_targets(targets or [], weights or [], call.description, call.resume)
    with call.ticking("driving apart") as progress:
        result = run(loaded or None, seeds, **call.settings, progress=progress)
    content = result.to_dict()
    return content, lambda: _show_diff(content, result.table(), call.quiet)


def load_targets(targets: list[str], weights: list[Path], description: dict[str, Any], resume: Path | None) -> list[Any]:
    """The targets; a network of the zoo has a description of its own, unless all are of the zoo."""
    if resume is not None and not targets and (weights or description):
        option = "weights" if weights else next(iter(description)).replace("_", "-")
        raise BadInput("missing", "targets", f"--{option}: of which target? Name the run's targets, too.")
    if not weights and "weights" in description:  # of neurotest.toml
        weights = [description.pop("weights")]
    own = [target for target in targets if not target.startswith("zoo:")]
    take = [target for target in own if target.startswith("py:")] or own or list(targets)
    if weights and (not take or len(weights) not in (1, len(take))):
        raise BadInput(
            "wrong-count",
            "weights",
            f"--weights {len(weights)} times, but {len(take)} of the targets take it: give one for all, or one for each.",
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


def _show_diff(content: dict[str, Any], families: list[dict[str, Any]], quiet: bool) -> None:
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


@opt.command(IlluminateSettings, numbers=(*NUMBERS, "archive", "cells.*", "root_label_pairs", "by_change.*", "spent"))
def illuminate(target: opt.Target = None, seeds: opt.Seeds = None, *, call: opt.Call) -> opt.Result:
    """Find the smallest change that turns one class into another, for every pair of classes."""
    from neurotest.generate.illuminate import illuminate as run

    result = call.work(run, "illuminating", target=target, seeds=seeds)
    content = result.to_dict()
    return content, lambda: _show_illuminate(content, result.table(), call.quiet)


def _show_illuminate(content: dict[str, Any], cells: list[dict[str, Any]], quiet: bool) -> None:
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


@opt.command(
    SwarmSettings,
    workers=True,
    numbers=(
        "outputs", "faults", "families", "roots", "by_predicted.*", "forwards", "seconds", "radius", "seeds", "set_aside", "rate",
        "rate_interval.*", "labels_per_seed", "evaluations_per_seed", "errors", "best_fitness", "controls.*", "unstable",
    ),
)  # fmt: skip
def swarm(target: opt.Target = None, seeds: opt.Seeds = None, *, call: opt.Call) -> opt.Result:
    """Search for faults close to each seed with particle swarms guided by hidden neurons. Noise and PGD are baselines."""
    from neurotest.campaign import swarm as search

    result = call.work(search, "searching", target=target, seeds=seeds)
    content = result.to_dict()
    return content, lambda: _show_swarm(content, result.table(), call.quiet)


def _show_swarm(content: dict[str, Any], families: list[dict[str, Any]], quiet: bool) -> None:
    from neurotest.generate.swarm.controls import CONTROL_NAMES

    rows = [_swarm_row(f"swarm, {content['fitness']}", {**content, "failed": content["roots"]})]
    rows += [_swarm_row(CONTROL_NAMES[name], one) for name, one in content["controls"].items()]
    ball = f"{content['norm']} {content['radius']:g}" if content["norm"] != "none" else "no ball"
    title = f"{content['seeds']} seeds, {ball}, {content['evaluations_per_seed']:.0f} evaluations each"
    show.table(title, ["", "seeds that fail", "rate", "95 % interval", "wrong labels per seed", "forward passes"], rows)
    show.families(families, content["families"])
    noise = content["controls"].get("noise")
    if noise is not None and content["rate_interval"][0] <= noise["rate_interval"][1]:
        show.remark("the swarm does not clearly beat random noise of equal norm.", quiet=quiet)
    tail = f"; faults: {content['run']} (`{command('neurons', content['run'])}` says which neurons they are caused by)"
    show.remark(
        f"{content['forwards']:,} forward passes, {content['seconds']:.1f} s{tail if content['run'] else ''}", quiet=quiet
    )


def _swarm_row(name: str, one: dict[str, Any]) -> list[str]:
    low, high = one["rate_interval"]
    return [
        name,
        str(one["failed"]),
        f"{one['rate']:.1%}",
        f"{low:.1%} .. {high:.1%}",
        f"{one['labels_per_seed']:.2f}",
        f"{one['forwards']:,}",
    ]
