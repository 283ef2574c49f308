"""`neurotest fuzz` and what works on campaigns: status, families, replay, shrink, merge."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from neurotest.cli import options as opt
from neurotest.cli.helping import common
from neurotest.errors import command

if TYPE_CHECKING:
    from neurotest.campaign import FuzzResult

SHOWN = 20  # families in a table
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
    "guide", "forwards", "seconds", "until_dry", "resume", "out", "oracle", "mutations", "train", "weights", "workers", "json",
)  # fmt: skip


@opt.takes_workers
@opt.takes_target
@opt.reports_result
@opt.holds(*NUMBERS)
@common(*USUAL)
def fuzz(
    target: opt.Target = None,
    seeds: Annotated[str | None, typer.Argument(help="Inputs to start from, labelled unless --oracle says otherwise.")] = None,
    guide: Annotated[
        str,
        typer.Option(
            "--guide",
            help="goals: forecasts what mutations do and runs what is new; the only one that finds more families than random. "
            "random: the baseline. A criterion (kmnc:1000, nlc, ...) or deephunter: raises coverage; finds fewer than random. "
            "tensorfuzz: logits far from all before, for faults many small steps away. nsgen: other decision paths.",
        ),
    ] = "goals",
    goal: Annotated[
        list[str] | None,
        typer.Option(
            "--goal", help="What the guide goals looks for (`neurotest list goal`), such as seed:2; repeat for several."
        ),
    ] = None,
    aim: Annotated[
        list[str] | None, typer.Option("--aim", help="Faults the guide goals looks for above all: 'stop sign -> *'; repeatable.")
    ] = None,
    iterations: Annotated[int | None, typer.Option("--iterations", help="Stop after so many turns of seeds.")] = None,
    forwards: Annotated[int | None, typer.Option("--forwards", help="Stop after so many forward passes.")] = None,
    seconds: Annotated[
        float | None, typer.Option("--seconds", help="Stop after so many seconds of wall clock, all included.")
    ] = None,
    max_outputs: Annotated[int | None, typer.Option("--max-outputs", help="Stop after so many outputs.")] = None,
    faults: Annotated[int | None, typer.Option("--faults", help="Stop after so many faults.")] = None,
    until_dry: Annotated[
        bool, typer.Option("--until-dry", help="Stop when the next 1,000 forward passes promise little that is new.")
    ] = False,
    dry_below: Annotated[
        float | None,
        typer.Option("--dry-below", help="Of --until-dry: stop below N expected new goals per 1,000 passes (default 5)."),
    ] = None,
    resume: Annotated[Path | None, typer.Option("--resume", help="Go on with this campaign (a budget given here wins).")] = None,
    again: opt.TargetAgain = None,
    train: Annotated[str | None, typer.Option("--train", help="Training data, for guides that compare with it.")] = None,
    oracle: Annotated[
        list[str] | None, typer.Option("--oracle", help="label (default), metamorphic, quantised:int8, ...; repeat for several.")
    ] = None,
    mutations: Annotated[
        str | None,
        typer.Option("--mutations", help="rules95 (default), rules98, deephunter, tensorfuzz, nss, mild; for audio data: audio."),
    ] = None,
    validity: Annotated[
        str | None,
        typer.Option(
            "--validity", help="valid:alpha=0.2,beta=0.4, or nsgen-paper, nsgen-code, nlc-code, deephunter; of sound audible."
        ),
    ] = None,
    energy: Annotated[str | None, typer.Option("--energy", help="constant or potential.")] = None,
    tries: Annotated[int | None, typer.Option("--tries", help="Mutants per turn of a seed (default 64).")] = None,
    max_depth: Annotated[int | None, typer.Option("--max-depth", help="Mutations on top of each other (default 5).")] = None,
    reuse_failures: Annotated[bool, typer.Option("--reuse-failures", help="Let faults become seeds.")] = False,
    only_accepted: Annotated[
        bool, typer.Option("--only-accepted", help="Drop faults the guide would not keep, as the papers' loops do.")
    ] = False,
    keep_wrong: opt.KeepWrong = False,
    keep: Annotated[
        int, typer.Option("--keep", help="Images kept per family; all other faults are rows that can be replayed.")
    ] = 5,
    disk: Annotated[float, typer.Option("--disk", help="Megabytes of images, at most.")] = 200,
    control: Annotated[
        bool, typer.Option("--control/--no-control", help="Let a random campaign of equal forward passes run beside it.")
    ] = True,
    judge: Annotated[
        str | None,
        typer.Option(
            "--judge", help="A second, better network that says which faults are valid (default: a learner of the seeds)."
        ),
    ] = None,
    islands: Annotated[
        int | None,
        typer.Option(
            "--islands",
            help="Fuzzers that share the seeds and tell each other what they learned; part of the campaign, whatever the number "
            "of workers (default 1, with --workers or --ray 8).",
        ),
    ] = None,
    plan: opt.Plan = False,
    layers: opt.Layers = None,
    neuron: opt.Neuron = None,
    out: opt.Out = None,
    seed: opt.Seed = 0,
    limit: opt.Limit = None,
    batch: opt.Batch = 256,
    threads: opt.Threads = None,
    json: opt.Json = False,
    quiet: opt.Quiet = False,
    *,
    description: dict[str, Any],
) -> opt.Result:
    """Mutate seeds and keep what breaks the network. Ctrl-C stops it, --resume continues."""

    if str(description.get("outputs")).isdigit():  # `--outputs 1000` once was the budget, and still is
        max_outputs = max_outputs or int(description.pop("outputs"))
    dry = dry_below if dry_below is not None else DRY if until_dry else None
    budget = {"iterations": iterations, "forwards": forwards, "seconds": seconds, "outputs": max_outputs, "faults": faults,
              "until_dry": dry}  # fmt: skip
    opt.start_or_resume("fuzz", "TARGET and SEEDS", target is not None and seeds is not None, resume)
    began = time.monotonic()
    opt.set_threads(threads)
    from neurotest.campaign import fuzz as start
    from neurotest.campaign.clock import counting_from
    from neurotest.cli.screen import Screen

    loaded = opt.open_target(again or target, description, resume)
    limits: dict[str, Any] = {"keep": keep, "disk": None if disk is None else disk * 1e6}
    settings: dict[str, Any] = {
        "mutations": mutations, "validity": validity, "energy": energy, "tries": tries, "max_depth": max_depth,
        "reuse_failures": reuse_failures or None, "every_fault": False if only_accepted else None, "seed": seed, "batch": batch,
    }  # fmt: skip
    guide = with_goals(guide, goal, aim)
    if plan:
        return planned(loaded, seeds, guide, resume, budget, control, limit, train, oracle, layers, neuron, settings)
    screen = Screen(json=json, quiet=quiet, classes=getattr(loaded, "classes", None), started=began)
    try:
        with counting_from(began):
            result = start(
                loaded, seeds, guide, train=train, oracle=oracle, keep_wrong=keep_wrong, limit=limit, layers=layers,
                neuron=neuron, **limits, control=control, judge=judge, islands=islands, out=out, resume=resume, watch=screen,
                **{k: v for k, v in {**settings, **budget}.items() if v is not None},
            )  # fmt: skip
    finally:
        screen.close()
    return result.to_dict(), lambda: print_result(result)


def planned(
    loaded: Any, seeds: str | None, guide: Any, resume: Path | None, budget: dict[str, Any], control: bool, limit: int | None,
    train: str | None, oracle: list[str] | None, layers: str | None, neuron: str | None, settings: dict[str, Any],
) -> opt.Result:  # fmt: skip
    """What the campaign will take."""
    from neurotest.campaign.forecast import forecast_fuzz
    from neurotest.cli import show
    from neurotest.errors import BadInput

    if resume is not None or seeds is None:
        raise BadInput("conflict", "plan", "--plan with --resume: what is left depends on the run; leave one of them out.")
    forecast = forecast_fuzz(
        loaded, seeds, guide, budget=budget, control=control, limit=limit, train=train, oracle=oracle, layers=layers,
        neuron=neuron, **settings,
    )  # fmt: skip
    return forecast.to_dict(), lambda: show.forecast(forecast)


def with_goals(guide: str | None, goals: list[str] | None, aims: list[str] | None) -> Any:
    """The guide with the goals that were asked for; aims come on top of the others."""
    if not goals and not aims:
        return guide
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
    for text in (believed(content["believed_valid"]), versus(content)):
        if text:
            print(text)
    rows = [[row["true"], row["predicted"], row["operator"], f"{row['faults']:,}"] for row in result.table()[:SHOWN]]
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


def versus(content: dict[str, Any]) -> str:
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
