"""`neurotest attack`, `diff`, `illuminate` and `swarm`: inputs made from seeds so that the network fails on them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from neurotest.cli import options as opt
from neurotest.cli import show
from neurotest.errors import BadInput, command

NUMBERS = (
    "outputs", "faults", "families", "roots", "by_predicted.*", "forwards", "backwards", "seconds", "evenness.*", "distance.*",
    "random.*", "unstable", "set_aside",
)  # fmt: skip


@opt.takes_target
@opt.reports_result
@opt.holds(*NUMBERS, "success", "success_interval.*", "diversity")
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
        str | None,
        typer.Option("--reduce", help="suite (default: units summed over a batch), instance, or batch as in the study's code."),
    ] = None,
    direction: Annotated[
        str | None, typer.Option("--direction", help="uniform (default): KL(uniform || shares); or shares: the other way round.")
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
    """Attack seeds along the network's gradient (PGD, CW, ...) and keep the faults. A fault still fails after it was saved."""
    opt.start_or_resume("attack", "TARGET and SEEDS", target is not None and seeds is not None, resume)
    from neurotest.generate.gradient import attack as run

    with opt.working("attacking", target, description, resume, quiet=quiet) as (loaded, progress):
        result = run(
            loaded, seeds, attack, diversity, layers=layers, reduce=reduce, attack_first=attack_first, direction=direction,
            keep_wrong=keep_wrong, limit=limit, batch=batch, seed=seed, files=files, out=out, resume=resume, progress=progress,
            eps=eps, steps=steps, step=step, kappa=kappa,
        )  # fmt: skip
    content = result.to_dict()
    return content, lambda: _show_attack(content, result.table(), quiet)


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


@opt.takes_target
@opt.reports_result
@opt.holds(
    *NUMBERS, "success", "success_interval.*", "diversity", "by_target.*", "coverage.*", "seeds", "seeds_failed",
    "random_seeds_failed", "mean_steps", "disagreed",
)  # fmt: skip
def diff(
    targets: Annotated[list[str] | None, typer.Argument(help="Two or more targets; one for dlfuzz and adapt.")] = None,
    seeds: Annotated[str | None, typer.Option("--seeds", help="Inputs to start from, labelled if possible.")] = None,
    method: Annotated[
        str, typer.Option("--method", help="deepxplore:light|occlusion|blackout, dlfuzz:STRATEGY or adapt, with options.")
    ] = "deepxplore",
    weights: Annotated[
        list[Path] | None,
        typer.Option("--weights", help="State dict of the targets, of py: ones if there are any; repeat it for each, in order."),
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
    """Find inputs on which several networks disagree. They agree on the seed; the difference survives saving."""
    opt.start_or_resume("diff", "TARGET... and --seeds DATA", bool(targets) and seeds is not None, resume)
    from neurotest.generate.differential import diff as run

    loaded = load_targets(targets or [], weights or [], description, resume)
    with show.ticking("driving apart", quiet=quiet) as progress:
        result = run(
            loaded or None, seeds, method, layers=layers, steps=steps, step=step, keep_wrong=keep_wrong, limit=limit, batch=batch,
            seed=seed, files=files, out=out, resume=resume, progress=progress,
        )  # fmt: skip
    content = result.to_dict()
    return content, lambda: _show_diff(content, result.table(), quiet)


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


@opt.takes_target
@opt.reports_result
@opt.holds(*NUMBERS, "archive", "cells.*", "root_label_pairs", "by_change.*", "spent")
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
    """Find the smallest change that turns one class into another, for every pair of classes."""
    opt.at_least("forwards", forwards)
    opt.start_or_resume("illuminate", "TARGET and SEEDS", target is not None and seeds is not None, resume)
    from neurotest.generate.illuminate import illuminate as run

    with opt.working("illuminating", target, description, resume, quiet=quiet) as (loaded, progress):
        result = run(
            loaded, seeds, forwards, keep_wrong=keep_wrong, limit=limit, seed=seed, files=files, out=out, resume=resume,
            progress=progress, changes=changes, steps=steps, batch=batch,
        )  # fmt: skip
    content = result.to_dict()
    return content, lambda: _show_illuminate(content, result.table(), quiet)


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


@opt.takes_target
@opt.takes_workers
@opt.reports_result
@opt.holds(
    "outputs", "faults", "families", "roots", "by_predicted.*", "forwards", "seconds", "radius", "seeds", "set_aside", "rate",
    "rate_interval.*", "labels_per_seed", "evaluations_per_seed", "errors", "best_fitness", "controls.*", "unstable",
)  # fmt: skip
def swarm(
    target: opt.Target = None,
    seeds: opt.Seeds = None,
    fitness: Annotated[
        str | None,
        typer.Option("--fitness", help="excitability (default), sensitivity or margin, with options: sensitivity:q0.9."),
    ] = None,
    norm: Annotated[str | None, typer.Option("--norm", help="The ball: linf (default), l2, none or, of sound, snr.")] = None,
    radius: Annotated[
        float | None, typer.Option("--radius", help="Its radius, a share of the input range (default 0.1); of snr decibels, 30.")
    ] = None,
    preset: Annotated[
        str,
        typer.Option(
            "--preset",
            help="default, sensitivity-paper, -code, excitability-paper, -gradient or, of sound, -sound-paper, -sound-gradient.",
        ),
    ] = "default",
    moves: Annotated[
        str | None,
        typer.Option("--moves", help="auto (default): chords, tones, lattice or tiles, as fits; or velocity, the papers'."),
    ] = None,
    particles: Annotated[int | None, typer.Option("--particles", help="Positions per seed and iteration (default 4).")] = None,
    evaluations: Annotated[int | None, typer.Option("--evaluations", help="Forward passes per seed (default 1000).")] = None,
    iterations: Annotated[int | None, typer.Option("--iterations", help="Iterations at most.")] = None,
    labels: Annotated[
        int | None, typer.Option("--wrong-labels", help="Different wrong labels after which a seed is done (default 1).")
    ] = None,
    enough: Annotated[
        float | None, typer.Option("--enough", help="Fitness at which a seed is done (the papers' epsilon).")
    ] = None,
    start: Annotated[str | None, typer.Option("--start", help="random (default) or fixed: every particle at the seed.")] = None,
    train: Annotated[str | None, typer.Option("--train", help="Data that says how far neurons spread (sensitivity).")] = None,
    labels_from: Annotated[
        str, typer.Option("--labels-from", help="data, or prediction: unlabelled seeds keep what the target says.")
    ] = "data",
    beside: Annotated[
        str, typer.Option("--controls", help="Controls on the same seeds: noise,pgd,margin (default all), or none.")
    ] = "noise,pgd,margin",
    keep_wrong: opt.KeepWrong = False,
    resume: opt.Resume = None,
    layers: opt.Layers = None,
    neuron: opt.Neuron = None,
    out: opt.Out = None,
    seed: opt.Seed = 0,
    limit: opt.Limit = None,
    batch: opt.Batch = 2500,
    quiet: opt.Quiet = False,
    *,
    description: dict[str, Any],
) -> opt.Result:
    """Search for faults close to each seed with particle swarms guided by hidden neurons. Noise and PGD are baselines."""
    opt.start_or_resume("swarm", "TARGET and SEEDS", target is not None and seeds is not None, resume)
    from neurotest.campaign import swarm as search

    controls = None if beside is None else [name for name in beside.replace(" ", "").split(",") if name not in ("", "none")]
    options: dict[str, Any] = {
        "norm": norm, "radius": radius, "moves": moves, "particles": particles, "evaluations": evaluations,
        "iterations": iterations, "labels": labels, "enough": enough, "start": start, "batch": batch, "seed": seed,
    }  # fmt: skip
    with opt.working("searching", target, description, resume, quiet=quiet) as (loaded, progress):
        result = search(
            loaded, seeds, fitness, preset=preset, train=train, layers=layers, neuron=neuron,
            labels_from=labels_from, keep_wrong=keep_wrong, limit=limit, beside=controls, out=out, resume=resume,
            progress=progress,
            **{name: value for name, value in options.items() if value is not None},
        )  # fmt: skip
    content = result.to_dict()
    return content, lambda: _show_swarm(content, result.table(), quiet)


def _show_swarm(content: dict[str, Any], families: list[dict[str, Any]], quiet: bool) -> None:
    from neurotest.generate.swarm.controls import NAMES

    rows = [_swarm_row(f"swarm, {content['fitness']}", {**content, "failed": content["roots"]})]
    rows += [_swarm_row(NAMES[name], one) for name, one in content["controls"].items()]
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
