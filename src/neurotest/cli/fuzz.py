"""`neurotest fuzz` and what works on campaigns: status, families, replay, shrink, merge."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from neurotest.cli import options as opt
from neurotest.cli.helping import common
from neurotest.errors import command
from neurotest.settings.generate import FuzzSettings

if TYPE_CHECKING:
    from neurotest.campaign import FuzzResult

FAMILIES_SHOWN = 20  # families in a table
LONGEST = 30  # letters of a guide in a table; its options stand in the run
DRY = 5.0  # new goals in 1,000 passes that are little

RunPath = Annotated[Path, typer.Argument(help="The campaign's run.")]


# Of a campaign and of its control.
COUNTED = (
    "outputs", "faults", "families", "roots", "pairs", "by_predicted.*", "forwards", "seconds", "iterations", "accepted",
    "accepted_faults", "rft", "rft_interval.*", "faults_per_1000_forwards", "faults_per_1000_forwards_interval.*", "classes.*",
    "evenness", "families_estimated", "families_estimated_interval.*",
)  # fmt: skip
NUMBERS = (
    *COUNTED, *(f"random.{name}" for name in COUNTED), "seconds_by.*", "verdict.*", "believed_valid.*", "by_operator.*", "unseen",
    "unstable", "seeds", "set_aside", "coverage", "guide_details.*", "islands",
)  # fmt: skip


# What its help shows.
USUAL = (
    "guide", "forwards", "seconds", "dry", "resume", "out", "oracle", "mutations", "train", "weights", "workers", "json",
)  # fmt: skip


@opt.command(FuzzSettings, workers=True, numbers=NUMBERS)
@common(*USUAL)
def fuzz(
    target: opt.Target = None,
    seeds: Annotated[str | None, typer.Argument(help="Inputs to start from, labelled unless --oracle says otherwise.")] = None,
    goal: Annotated[
        list[str] | None,
        typer.Option(
            "--goal", help="What the guide goals looks for (`neurotest list goal`), such as seed:2; repeat for several."
        ),
    ] = None,
    aim: Annotated[
        list[str] | None, typer.Option("--aim", help="Faults the guide goals looks for above all: 'stop sign -> *'; repeatable.")
    ] = None,
    dry: Annotated[
        bool, typer.Option("--until-dry", help="Stop when the next 1,000 forward passes promise little that is new.")
    ] = False,
    again: opt.TargetAgain = None,
    plan: opt.Plan = False,
    json: opt.Json = False,
    *,
    call: opt.Call,
) -> opt.Result:
    """Mutate seeds and keep what breaks the network. Ctrl-C stops it, --resume continues."""
    settings = call.settings
    if str(call.description.get("outputs")).isdigit():  # `--outputs 1000` once was the budget, and still is
        settings.setdefault("outputs", int(call.description.pop("outputs")))
    if dry:
        settings.setdefault("until_dry", DRY)
    call.needs(target=target, seeds=seeds)
    began = time.monotonic()
    from neurotest.campaign import fuzz as start
    from neurotest.campaign.clock import counting_from
    from neurotest.cli.screen import Screen

    loaded = call.open_target(again or target)
    if goal or aim:
        settings["guide"] = _with_goals(settings.get("guide"), goal, aim)
    if plan:
        return planned(loaded, seeds, call)
    screen = Screen(json=json, quiet=call.quiet, classes=getattr(loaded, "classes", None), started=began)
    try:
        with counting_from(began):
            result = start(loaded, seeds, **settings, watch=screen)
    finally:
        screen.close()
    return result.to_dict(), lambda: print_result(result)


def planned(loaded: Any, seeds: str | None, call: opt.Call) -> opt.Result:
    """What the campaign will take."""
    from neurotest.campaign.forecast import forecast_fuzz
    from neurotest.cli import show
    from neurotest.errors import BadInput

    if call.resume is not None or seeds is None:
        raise BadInput(
            "conflict", "estimate", "--estimate with --resume: what is left depends on the run; leave one of them out."
        )
    forecast = forecast_fuzz(loaded, seeds, **call.settings)
    return forecast.to_dict(), lambda: show.forecast(forecast)


def _with_goals(guide: str | None, goals: list[str] | None, aims: list[str] | None) -> Any:
    """The guide with the goals that were asked for; aims come on top of the others."""
    import dataclasses

    from neurotest.errors import BadInput
    from neurotest.generate.fuzz.goals import Goals
    from neurotest.generate.fuzz.guides import build_guide

    built = build_guide(guide or "goals")
    if not isinstance(built, Goals):
        raise BadInput("conflict", "goal", f"--goal and --aim belong to the guide goals, not to {guide}.")
    return dataclasses.replace(built, goals=(*(goals or built.goals), *(f"aim(at={aim!r})" for aim in aims or ())))


def print_result(result: FuzzResult) -> None:
    from neurotest.campaign.believed import sentence as believed
    from neurotest.cli import show
    from neurotest.cli.screen import advice, goals_line

    content = result.to_dict()
    print(
        f"{content['faults']:,} faults in {content['families']} families from {content['roots']:,} seeds; "
        f"{content['forwards']:,} forward passes"
        + (f"; {result.set_aside:,} seeds the target gets wrong were set aside" if result.set_aside else "")
    )
    took = ", ".join(f"{name} {seconds:.1f}" for name, seconds in content["seconds_by"].items() if seconds >= 0.05)
    print(f"{content['seconds']:.1f} s in all{took and ': '}{took}")
    if result.islands > 1:
        again = f"--islands {result.islands} gives the same with any number of workers"
        print(f"{result.islands} islands, {result.workers} worker{'s' * (result.workers > 1)}: {again}")
    guide = result.guide if len(result.guide) <= LONGEST else f"{result.guide.partition('(')[0]}(...)"
    rows = [_numbers(guide, content)]
    if content["random"] is not None and result.control is not result.tally:
        rows.append(_numbers("random", content["random"]))
    columns = ["guide", "forwards", "families", "seeds broken", "pairs", "faults", "per 1,000 forwards", "of those kept, faults"]
    show.table("the guide, and random beside it", columns, rows)
    for text in (believed(content["believed_valid"]), _versus(content)):
        if text:
            print(text)
    rows = [[row["true"], row["predicted"], row["operator"], f"{row['faults']:,}"] for row in result.table()[:FAMILIES_SHOWN]]
    show.table(f"fault families, the first {len(rows)} of {content['families']}", ["true", "predicted", "after", "faults"], rows)
    details = content.get("guide_details", {})
    print(goals_line({**details, "expected_goals": details.get("expected_in_next_1000")}), end="")
    if content["families_estimated"] is not None:
        low, high = content["families_estimated_interval"]
        print(f"families in all, by Chao's estimate: {content['families_estimated']:.0f} ({low:.0f} .. {high:.0f})")
    stopped = "few new goals are expected" if result.stopped == "new goals" else f"{result.stopped} spent"
    print(f"{advice(result.faults, content['unseen'])}; stopped: {stopped}")
    if result.run:
        print(f"images and chains: {result.run} (`{command('families', result.run)}`, `{command('shrink', result.run)}`)")


def _numbers(name: str, content: dict[str, Any]) -> list[str]:
    return [
        name, f"{content['forwards']:,}", f"{content['families']:,}", f"{content['roots']:,}", f"{content['pairs']:,}",
        f"{content['faults']:,}",
        _share(content["faults_per_1000_forwards"], content["faults_per_1000_forwards_interval"], 1, ""),
        _share(content["rft"], content["rft_interval"], 100, " %"),
    ]  # fmt: skip


def _share(value: float | None, interval: list[float] | None, times: float, unit: str) -> str:
    if value is None or interval is None:
        return ""
    return f"{times * value:.1f}{unit} ({times * interval[0]:.1f} .. {times * interval[1]:.1f})"


def _versus(content: dict[str, Any]) -> str:
    """Who found more families, seeds broken and pairs of classes, the guide or its control, in a sentence."""
    from neurotest.campaign.verdict import sentence

    random = content["random"]
    return sentence(content["verdict"], (content["faults"], random["faults"])) if random else ""


@opt.reports_result
def status(runs: Annotated[list[Path], typer.Argument(help="Campaigns.")]) -> opt.Result:
    """Show how campaigns progress, also while they run."""
    from neurotest.campaign import status as read_status
    from neurotest.cli import show

    states = [read_status(path) for path in runs]
    columns = ["run", "state", "guide", "iterations", "forwards", "outputs", "faults", "families"]
    rows = [
        [str(one[c]) if isinstance(one[c], str) else f"{one[c]:,}" for c in columns]
        + [f"{one['random']['faults']:,} in {one['random']['families']:,}" if one["random"] else ""]
        + [_share(one["believed_valid"]["share"], one["believed_valid"]["interval"], 100, " %") if one["believed_valid"] else ""]
        for one in states
    ]
    return {"runs": states}, lambda: show.table("campaigns", [*columns, "random's faults and families", "believed valid"], rows)


@opt.reports_result
def families(run: RunPath) -> opt.Result:
    """List fault families: true class, predicted class, mutation, and a representative fault."""
    from neurotest.campaign import families as read_families
    from neurotest.cli import show

    result = read_families(run)
    rows = [
        [
            r["true"],
            r["predicted"],
            r["operator"],
            f"{r['faults']:,}",
            f"{r['roots']:,}",
            r["change"],
            r["file"] or f"#{r['fault']}",
            str(r["root"]) if r["root_file"] is None else f"{r['root']} {r['root_file']}",
        ]
        for r in result.table()
    ]
    columns = ["true", "predicted", "after", "faults", "seeds", "smallest change", "image", "its seed"]
    return result.to_dict(), lambda: show.table(str(run), columns, rows)


@opt.overrides_target
@opt.reports_result
def replay(
    file: Annotated[str, typer.Argument(help="RUN/faults/fault-000123.png, RUN#123, or RUN and 123.")],
    fault: Annotated[int | None, typer.Argument(help="The fault's number, after RUN.", show_default=False)] = None,
    *,
    network: Any = None,
) -> opt.Result:
    """Rebuild a fault from its seed and mutations and run it again; exit 1 if it no longer fails."""
    from neurotest.campaign import replay as make_again

    result = make_again(file if fault is None else f"{file}#{fault}", network)

    def print_fault() -> None:
        values = "the same values" if result.same_values else "OTHER values than were stored"
        verdict = "fails again" if result.fails else f"no longer fails that way (it was {result.expected})"
        print(f"fault {result.fault}: {result.change}; {values}; {result.true} taken for {result.predicted}: {verdict}")

    return result.to_dict(), print_fault, 0 if result.same_values and result.fails else 1


@opt.overrides_target
@opt.reports_result
def shrink(
    run: RunPath,
    fault: Annotated[int | None, typer.Argument(help="Only the family of this fault (its number).")] = None,
    quiet: opt.Quiet = False,
    *,
    network: Any = None,
) -> opt.Result:
    """Find a minimal example of each fault family: fewer mutations, milder ones, a smaller region."""
    from neurotest.campaign import shrink as make_smaller
    from neurotest.cli import show

    run, fault = opt.run_and_fault(run, fault)
    with show.ticking("shrinking", quiet=quiet) as progress:
        content = make_smaller(run, network, progress, fault=fault)
    rows = [
        [r["true"], r["predicted"], r["before"], r["after"], f"{r['l2_before']:.2f} -> {r['l2_after']:.2f}", r["file"] or ""]
        for r in content["families"]
    ]
    columns = ["true", "predicted", "before", "after", "L2", "image"]
    return content, lambda: show.table(f"{run}: before and after", columns, rows)


@opt.reports_result
def merge(runs: Annotated[list[Path], typer.Argument(help="Campaigns.")], out: opt.Out = None) -> opt.Result:
    """Merge campaigns against one target into one run; every family stays."""
    from neurotest.campaign import merge as join

    content = join(runs, out)
    return content, lambda: print(f"{content['faults']:,} faults in {content['families']} families: {content['run']}")
