"""`neurotest doctor`: is this network ready to be tested?"""

from __future__ import annotations

from typing import Annotated

import typer

from neurotest.cli import options as opt


def doctor(
    target: Annotated[str, typer.Argument(help="zoo:NAME, py:FILE_OR_MODULE:CALLABLE or pt2:FILE")],
    data: Annotated[str | None, typer.Argument(help="Inputs it should work on, labelled if possible; without: noise.")] = None,
    limit: opt.Limit = 512,
    batch: opt.Batch = 100,
    threads: opt.Threads = None,
    device: opt.Device = "cpu",
    weights: opt.Weights = None,
    bounds: opt.Bounds = None,
    mean: opt.Mean = None,
    std: opt.Std = None,
    size: opt.Size = None,
    classes: opt.Classes = None,
    outputs: opt.Outputs = None,
    trust_pickle: opt.TrustPickle = False,
    fail_if: opt.FailIf = None,
    json: opt.Json = False,
    quiet: opt.Quiet = False,
) -> None:
    """Eval mode, outputs, bounds, classes, determinism, batches, dead neurons, layers, memory, speed: what to mend first."""
    from neurotest.cli import show

    for condition in fail_if or ():
        show.read_condition(condition)
    described = opt.describe(weights=weights, bounds=bounds, mean=mean, std=std, size=size, classes=classes, outputs=outputs)
    opt.set_threads(threads)
    from neurotest.doctor import doctor as examine

    with show.ticking("examining", quiet=quiet) as progress:
        found = examine(
            target,
            data,
            limit=limit or 512,
            batch=batch,
            progress=progress,
            device=device,
            trust_pickle=trust_pickle,
            **described,
        )
    content = found.to_dict()
    if json:
        show.print_json(content)
    else:
        print(found.table())
        if not quiet:
            show.remark(f"problems: {content['problems']}, warnings: {content['warnings']}")
    show.check_fail_if(fail_if, content)
