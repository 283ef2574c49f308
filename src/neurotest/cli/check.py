"""`neurotest check`: everything that can be said in a few minutes, verdict first."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from neurotest.cli import options as opt
from neurotest.cli import show

if TYPE_CHECKING:
    from neurotest.check import CheckResult

SHOWN = 12  # findings on the terminal


@opt.takes_target
@opt.takes_workers
@opt.reports_result
@opt.holds("alarms", "accuracy", "inputs", "of", "seconds", "examinations.*", "findings.*")
def check(
    target: opt.Target = None,
    data: Annotated[str | None, typer.Argument(help="Inputs it was not trained on, labelled if possible.")] = None,
    train: Annotated[str | None, typer.Option("--train", help="Training data, for what compares with it.")] = None,
    time: Annotated[str, typer.Option("--time", help="How long all of it may take: 90s, 5m, 1h.")] = "5m",
    only: Annotated[
        list[str] | None, typer.Option("--only", help="Only this check (`neurotest list check`); repeat for several.")
    ] = None,
    skip: Annotated[list[str] | None, typer.Option("--skip", help="Leave this check out; repeat for several.")] = None,
    junit: Annotated[Path | None, typer.Option("--junit", help="Write the alarms as JUnit XML, for a build server.")] = None,
    resume: opt.Resume = None,
    again: opt.TargetAgain = None,
    out: opt.Out = None,
    seed: opt.Seed = 0,
    limit: opt.Limit = None,
    batch: opt.Batch = 250,
    quiet: opt.Quiet = False,
    *,
    description: dict[str, Any],
) -> opt.Result:
    """Look at everything in a few minutes: accuracy, labels, weak slices, backdoor patches, attacks, fuzzing, coverage."""
    opt.start_or_resume("check", "TARGET and DATA", target is not None and data is not None, resume)
    from neurotest.check import check as look
    from neurotest.check.api import takes_all_of
    from neurotest.cli.junit import write_junit

    loaded = opt.open_target(again or target, description, resume)
    seconds = None if resume is not None else takes_all_of(time, only, skip)
    with show.ticking("checking", quiet=bool(quiet), seconds=seconds) as progress:
        result = look(
            loaded, data, train=train, time=time, only=only or None, skip=skip or None, limit=limit, seed=seed, batch=batch,
            out=out, resume=resume, progress=progress,
        )  # fmt: skip
    if junit is not None:
        write_junit(junit, result)
    return result.to_dict(), lambda: print_result(result)


def print_result(result: CheckResult) -> None:
    findings = result.findings
    print(f"verdict: {result.verdict}\n")
    for number, finding in enumerate(findings[:SHOWN], start=1):
        print(f"{number:2}. {finding.level:5}  {finding.check}: {finding.sentence}")
        if finding.advice:
            print(f"{'':11}-> {finding.advice}")
        if finding.deeper:
            print(f"{'':11}{finding.deeper}")
    if len(findings) > SHOWN:
        print(f"    and {len(findings) - SHOWN} more on the page")
    print()
    for one in result.examined:
        state = " (not checked)" if one.skipped else " (cut short by the time)" if one.ran_out else ""
        print(f"{one.name:10} {one.seconds:6.1f} s  {one.summary}{state}")
    print()
