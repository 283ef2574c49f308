"""`neurotest swarm`: faults in the ball around each seed, found by swarms that hidden neurons lead."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from neurotest.cli import options as opt


@opt.takes_target
@opt.reports_result
def swarm(
    target: opt.Target = None,
    seeds: opt.Seeds = None,
    fitness: Annotated[
        str | None,
        typer.Option("--fitness", help="excitability (default), sensitivity or margin, with options: sensitivity:q0.9."),
    ] = None,
    norm: Annotated[str | None, typer.Option("--norm", help="The ball: linf (default), l2 or none.")] = None,
    radius: Annotated[
        float | None, typer.Option("--radius", help="Its radius, a share of the input range (default 0.1).")
    ] = None,
    preset: Annotated[
        str, typer.Option("--preset", help="default, sensitivity-paper, sensitivity-code or excitability-paper.")
    ] = "default",
    moves: Annotated[
        str | None, typer.Option("--moves", help="auto (default): lattice or tiles; or velocity, the papers' particle swarm.")
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
    """Look for faults close to each seed with swarms led by hidden neurons; noise, PGD and a margin swarm run beside."""
    from neurotest.cli import show

    opt.start_or_resume("swarm", "TARGET and SEEDS", target is not None and seeds is not None, resume)
    from neurotest.campaign import swarm as search

    controls = None if beside is None else [name for name in beside.replace(" ", "").split(",") if name not in ("", "none")]
    options: dict[str, Any] = {
        "norm": norm, "radius": radius, "moves": moves, "particles": particles, "evaluations": evaluations,
        "iterations": iterations, "labels": labels, "enough": enough, "start": start, "batch": batch, "seed": seed,
    }  # fmt: skip
    loaded = opt.open_target(target, description, resume)
    with show.ticking("searching", quiet=quiet) as progress:
        result = search(
            loaded, seeds, fitness, preset=preset, train=train, layers=layers, neuron=neuron,
            labels_from=labels_from, keep_wrong=keep_wrong, limit=limit, beside=controls, out=out, resume=resume,
            progress=progress,
            **{name: value for name, value in options.items() if value is not None},
        )  # fmt: skip
    content = result.to_dict()
    return content, lambda: _show(content, result.table(), quiet)


def _show(content: dict[str, Any], families: list[dict[str, Any]], quiet: bool) -> None:
    from neurotest.cli import show
    from neurotest.generate.swarm.controls import NAMES

    rows = [_row(f"swarm, {content['fitness']}", {**content, "failed": content["roots"]})]
    rows += [_row(NAMES[name], one) for name, one in content["controls"].items()]
    ball = f"{content['norm']} {content['radius']:g}" if content["norm"] != "none" else "no ball"
    title = f"{content['seeds']} seeds, {ball}, {content['evaluations_per_seed']:.0f} evaluations each"
    show.table(title, ["", "seeds that fail", "rate", "95 % interval", "wrong labels per seed", "forward passes"], rows)
    show.families(families, content["families"])
    noise = content["controls"].get("noise")
    if noise is not None and content["rate_interval"][0] <= noise["rate_interval"][1]:
        show.remark("the swarm does not clearly beat random noise of equal norm.", quiet=quiet)
    tail = f"; faults: {content['run']} (`neurotest neurons {content['run']}` says which neurons they are caused by)"
    show.remark(
        f"{content['forwards']:,} forward passes, {content['seconds']:.1f} s{tail if content['run'] else ''}", quiet=quiet
    )


def _row(name: str, one: dict[str, Any]) -> list[str]:
    low, high = one["rate_interval"]
    return [
        name,
        str(one["failed"]),
        f"{one['rate']:.1%}",
        f"{low:.1%} .. {high:.1%}",
        f"{one['labels_per_seed']:.2f}",
        f"{one['forwards']:,}",
    ]
