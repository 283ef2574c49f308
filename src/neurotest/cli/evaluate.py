"""`neurotest evaluate`: suites judged by faults, diversity, naturalness and impartiality."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from neurotest.cli import options as opt


def evaluate(
    runs: Annotated[list[Path], typer.Argument(help="Runs of neurotest attack; two or more are compared.")],
    target: Annotated[str | None, typer.Option("--target", help="The target, for runs that were made elsewhere.")] = None,
    train: Annotated[str | None, typer.Option("--train", help="Training data: how many inputs lie outside its manifold?")] = None,
    extractor: Annotated[
        str, typer.Option("--extractor", help="Network that makes the features: target, reference, or a target's spec.")
    ] = "target",
    corrected: Annotated[bool, typer.Option("--corrected", help="Entropy with Miller and Madow's correction.")] = False,
    batch: opt.Batch = 250,
    seed: opt.Seed = 0,
    threads: opt.Threads = None,
    fail_if: opt.FailIf = None,
    json: opt.Json = False,
    quiet: opt.Quiet = False,
) -> None:
    """Fault rate, diversity, naturalness, impartiality; the clean suite beside each, and two or more suites compared."""
    from neurotest.cli import show

    for condition in fail_if or ():
        show.read_condition(condition)
    opt.at_least("batch", batch)
    opt.set_threads(threads)
    from neurotest.evaluate import evaluate as judge_all

    with show.ticking("judging suites", quiet=quiet) as progress:
        found = judge_all(
            *runs, target=target, train=train, extractor=extractor, corrected=corrected, batch=batch, seed=seed, progress=progress
        )
    content = found.to_dict()
    for name, one in content["suites"].items():
        for warning in one["warnings"]:
            show.remark(f"{name}: {warning}", quiet=quiet)
    if json:
        show.print_json(content)
    else:
        _show(content, found.table())
    show.check_fail_if(fail_if, content)


def _show(content: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    from neurotest.cli import show

    for name, one in content["suites"].items():
        told = [
            [f"{row['part']}: {row['metric']}", _number(row["value"]), _number(row["clean"])]
            for row in rows
            if row["suite"] == name
        ]
        show.table(
            f"{name}: {one['outputs']} outputs; features: {one['extractor']}", ["", "suite", "random noise", "clean"], told
        )
    if content["comparison"] is None:
        return
    means = content["comparison"]["means"]
    told = [
        [
            f"{p['metric']}: {p['left']} against {p['right']}",
            *(_mean(means[p["metric"]][p[side]]) for side in ("left", "right")),
            f"{p['a12']:.2f} ({p['magnitude']})",
            _number(p["p_holm"]),
        ]
        for p in content["comparison"]["pairs"]
    ]
    title = f"side by side, 95 % intervals, {content['comparison']['test']} corrected by Holm"
    show.table(title, ["", "left", "right", "A12", "p"], told)


def _mean(found: dict[str, Any]) -> str:
    low, high = found["interval"]
    return f"{found['mean']:.4g} ({low:.4g} .. {high:.4g})"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"
