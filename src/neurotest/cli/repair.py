"""`neurotest repair`: retrain on what a run showed, beside controls, and prove that it helped."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from neurotest.cli import options as opt
from neurotest.cli import show
from neurotest.errors import command

if TYPE_CHECKING:
    from neurotest.repair import RepairResult

NUMBERS = ("sets.*", "controls.*", "seconds", "repeats")


@opt.takes_target
@opt.reports_result
@opt.holds(*NUMBERS)
def repair(
    target: opt.Target = None,
    run: Annotated[
        Path | None, typer.Argument(help="The run to learn from: of fuzz, swarm, attack, diff, illuminate, merge or select.")
    ] = None,
    train: Annotated[str | None, typer.Option("--train", help="Training data; interpolated and head do without.")] = None,
    holdout: Annotated[str | None, typer.Option("--holdout", help="Labelled inputs nothing was trained on or made from.")] = None,
    shift: Annotated[str | None, typer.Option("--shift", help="Further labelled inputs, of another origin, to judge by.")] = None,
    pool: Annotated[str | None, typer.Option("--pool", help="What a run of select selected from, for random picks.")] = None,
    protocol: Annotated[
        str | None,
        typer.Option("--protocol", help="One of `neurotest list repair`: default:epochs=5 (without --train: interpolated)."),
    ] = None,
    control: Annotated[
        list[str] | None,
        typer.Option("--control", help="schedule, random, static-pgd, mutated (all by default) or none; repeat."),
    ] = None,
    attack: Annotated[
        list[str] | None,
        typer.Option("--attack", help="What attacks the networks at last (default: fgsm and pgd), or none; repeat."),
    ] = None,
    repeats: Annotated[int, typer.Option("--repeats", help="Seeds; each trains the protocol and its controls anew.")] = 3,
    unseen: Annotated[float, typer.Option("--unseen", help="Share of operator families that nothing is trained with.")] = 0.3,
    no_regression: Annotated[
        bool, typer.Option("--no-regression", help="Exit 1 and keep no weights if they break more of the holdout than they fix.")
    ] = False,
    files: Annotated[int, typer.Option("--files", help="How many fixed and broken inputs are stored as images, of each.")] = 40,
    resume: opt.Resume = None,
    out: opt.Out = None,
    seed: opt.Seed = 0,
    limit: opt.Limit = None,
    quiet: opt.Quiet = False,
    *,
    description: dict[str, Any],
) -> opt.Result:
    """Retrain on the faults or picks of a run and compare with controls on held-out data. The result is a target, too."""
    complete = target is not None and run is not None and holdout is not None
    opt.start_or_resume("repair", "TARGET, RUN and --holdout DATA", complete, resume)
    from neurotest.repair import repair as work

    with opt.working("repairing", target, description, resume, quiet=quiet) as (loaded, progress):
        result = work(
            loaded, run, train, holdout, protocol=protocol, shift=shift, pool=pool, controls=control or None,
            attack=attack or None, repeats=repeats, unseen=unseen, no_regression=no_regression, limit=limit, seed=seed,
            files=files, out=out, resume=resume, progress=progress,
        )  # fmt: skip
    return result.to_dict(), lambda: print_result(result), 0 if result.accepted else 1


def print_result(result: RepairResult) -> None:
    from neurotest.repair.work import WORDS

    print(result.headline())
    controls = list(result.controls)
    cells = [
        [
            WORDS.get(name, name), str(numbers["inputs"]), f"{numbers['before']:.1%}", f"{numbers['after']:.1%}",
            f"{100 * numbers['interval'][0]:.1f} .. {100 * numbers['interval'][1]:.1f}",
            *(f"{result.controls[control][name]['after']:.1%}" for control in controls),
        ]
        for name, numbers in result.sets.items()
    ]  # fmt: skip
    show.table("accuracy", ["", "inputs", "before", "after", "95 % interval", *controls], cells)
    for control, reason in result.absent.items():
        show.remark(f"no control {control}: {reason}")
    if result.weights is not None:
        print(f"weights: {result.weights}; the network with them: run:{result.run}; pictures: `{command('report', result.run)}`")
