"""`neurotest check`: everything that can be said in a few minutes, verdict first."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from neurotest.cli import options as opt
from neurotest.settings.analyse import CheckSettings

if TYPE_CHECKING:
    from neurotest.check import CheckResult

FINDINGS_SHOWN = 12  # findings on the terminal


@opt.command(
    CheckSettings, workers=True, numbers=("alarms", "accuracy", "inputs", "of", "seconds", "examinations.*", "findings.*")
)
def check(
    target: opt.Target = None,
    data: Annotated[str | None, typer.Argument(help="Inputs it was not trained on, labelled if possible.")] = None,
    junit: Annotated[Path | None, typer.Option("--junit", help="Write the alarms as JUnit XML, for a build server.")] = None,
    again: opt.TargetAgain = None,
    *,
    call: opt.Call,
) -> opt.Result:
    """Look at everything in a few minutes: accuracy, labels, weak slices, backdoor patches, attacks, fuzzing, coverage."""
    call.needs(target=again or target, data=data)
    from neurotest.check import check as look
    from neurotest.check.api import takes_all_of
    from neurotest.cli.junit import write_junit

    loaded = call.open_target(again or target)
    seconds = None if call.resume is not None else takes_all_of(call.settings)
    with call.ticking("checking", seconds=seconds) as progress:
        result = look(loaded, data, **call.settings, progress=progress)
    if junit is not None:
        write_junit(junit, result)
    return result.to_dict(), lambda: print_result(result)


def print_result(result: CheckResult) -> None:
    findings = result.findings
    print(f"verdict: {result.verdict}\n")
    for number, finding in enumerate(findings[:FINDINGS_SHOWN], start=1):
        print(f"{number:2}. {finding.level:5}  {finding.check}: {finding.sentence}")
        if finding.advice:
            print(f"{'':11}-> {finding.advice}")
        if finding.deeper:
            print(f"{'':11}{finding.deeper}")
    if len(findings) > FINDINGS_SHOWN:
        print(f"    and {len(findings) - FINDINGS_SHOWN} more on the page")
    print()
    for one in result.examined:
        state = " (not checked)" if one.skipped else " (cut short by the time)" if one.ran_out else ""
        print(f"{one.name:10} {one.seconds:6.1f} s  {one.summary}{state}")
    print()
