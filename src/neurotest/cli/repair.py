"""`neurotest repair`: retrain on what a run showed, beside controls, and prove that it helped."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from neurotest.cli import options as opt
from neurotest.cli import show
from neurotest.errors import BadInput, command
from neurotest.settings.analyse import RepairSettings

if TYPE_CHECKING:
    from neurotest.repair import RepairResult


@opt.command(RepairSettings, numbers=("sets.*", "controls.*", "seconds", "repeats"))
def repair(
    target: opt.Target = None,
    run: Annotated[
        Path | None, typer.Argument(help="The run to learn from: of fuzz, swarm, attack, diff, illuminate, merge or select.")
    ] = None,
    *,
    call: opt.Call,
) -> opt.Result:
    """Retrain on the faults or picks of a run and compare with controls on held-out data. The result is a target, too."""
    if call.resume is None and not (target and run and call.settings.get("holdout")):
        raise BadInput("missing", "target", "repair needs TARGET, RUN and --holdout DATA, or --resume RUN.")
    from neurotest.repair import repair as work

    result = call.work(work, "repairing", target=target, run=run)
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
