"""Sections of campaigns: their faults beside random's, how they went, which mutations fail most, and the fault families."""

from __future__ import annotations

import re

import numpy as np

from neurotest import registry
from neurotest.campaign.believed import sentence as believed
from neurotest.campaign.families import families
from neurotest.campaign.shrink import shrunk_of
from neurotest.campaign.status import tally_of
from neurotest.campaign.store import Store
from neurotest.campaign.verdict import sentence
from neurotest.generate.fuzz.goals.guide import GOALS
from neurotest.generate.fuzz.mutants import Key
from neurotest.report import charts, pictures
from neurotest.report.section import Conclusion, Row, section
from neurotest.runs.codec import decode
from neurotest.runs.store import Run

COMMANDS = ("fuzz", "merge")
SHOWN = 60  # families with pictures
POINTS = 200  # of a curve


@section("merge", title="Merged campaigns", order=0, commands=("merge",), template="fuzz.html.j2")
@section("fuzz", title="Fuzzing", order=0, commands=("fuzz",))
def fuzz(run: Run) -> Row:
    valid = believed(run["summary"].get("believed_valid"))
    return {"subject": run["config"]["target"], "valid": valid, "conclusion": _conclusion(run)}


def _conclusion(run: Run) -> Conclusion:
    """How many seeds broke, in how many ways, beside random."""
    summary, name = run["summary"], run.path.name
    seeds = len(Store(run).seeds()[1])
    if not summary["faults"]:
        passes = f"{summary['forwards']:,} forward passes" if summary.get("forwards") else "this campaign"
        longer = (("Look longer", f"neurotest fuzz --resume {name} --forwards {10 * summary.get('forwards', 1000)}"),)
        return Conclusion(f"No fault was found in {passes}.", steps=longer if run["command"] == "fuzz" else ())
    random = summary.get("random") or {}
    beside = (
        f"; random with as many forward passes finds {random['families']:,} families"
        if random.get("families") is not None
        else ""
    )
    sentence = (
        f"{summary['roots']:,} of {seeds:,} seeds can be changed so that the network errs: {summary['faults']:,} faults in "
        f"{summary['families']:,} fault families{beside}."
    )
    smaller = () if shrunk_of(run) else (("The smallest change of each family", f"neurotest shrink {name}"),)
    steps = (
        *smaller,
        ("Why they fail, neuron by neuron", f"neurotest explain {name}"),
        ("Natural, diverse, fair?", f"neurotest evaluate {name}"),
    )
    return Conclusion(sentence, bad=True, steps=steps)


@section("beside-random", title="Beside random", order=10, commands=COMMANDS)
def beside_random(run: Run) -> Row | None:
    summary = run["summary"]
    if run["config"].get("guide") == "random" or not summary.get("random"):
        return None
    campaigns = [{"name": summary["guide"], **summary}, {"name": "random", **summary["random"]}]
    return {"campaigns": campaigns, "verdict": sentence(summary.get("verdict"))}


@section("goals", title="Goals", order=15, commands=("fuzz",))
def goals(run: Run) -> Row | None:
    """What the guide looked for and reached, and what it expects of going on."""
    details = run["summary"].get("guide_details") or {}
    if not details.get("goals"):
        return None
    summary, kinds = run["summary"], registry.entries("goal")
    order = {name: place for place, name in enumerate(GOALS)}
    rows = []
    for text, count in sorted(details["goals"].items(), key=lambda item: order.get(item[0], len(order))):
        kind = re.split(r"[:(]", str(text), maxsplit=1)[0]
        rows.append((text, kinds[kind].summary.split(": ")[0].rstrip(".") if kind in kinds else "", count))
    return {
        "goals": rows, "expected": details.get("expected_in_next_1000"), "families": summary["families"],
        "estimate": summary.get("families_estimated"), "interval": summary.get("families_estimated_interval"),
    }  # fmt: skip


@section("campaign-growth", title="How it went", order=20, commands=COMMANDS, template="chart.html.j2")
def campaign_growth(run: Run) -> Row | None:
    if not tally_of(run).faults:
        return None
    x, y = charts.number("outputs", "outputs"), charts.number("count")
    rows = [
        {"outputs": n, "what": what, "count": count}
        for n, faults, kinds in _counts(run)
        for what, count in (("faults", faults), ("families", kinds))
    ]
    return {"charts": [charts.svg(charts.panels(rows, "what", charts.line(x, y, 300, 150), own="y"))]}


def _counts(run: Run) -> list[tuple[int, int, int]]:
    """(outputs, faults, families) along the campaign."""
    seen: set[Key] = set()
    points, faults = [], 0
    for n, (family, is_fault) in enumerate(Store(run).outcomes(), start=1):
        if is_fault:
            faults += 1
            seen.add(family)
        points.append((n, faults, len(seen)))
    return [points[i] for i in np.unique(np.linspace(0, len(points) - 1, POINTS).round().astype(int))]


@section("operators", title="Mutations that fail most", order=30, commands=COMMANDS, template="chart.html.j2")
def operators(run: Run) -> Row | None:
    """What share of each mutation's mutants failed."""
    tally = tally_of(run)
    rows = [{"operator": name, "share": tally.operators.get(name, 0) / n} for name, n in tally.tried.items() if n]
    if not rows:
        return None
    spec = charts.bars(rows, charts.names("operator", sort="-x"), charts.number("share", "faults per tested mutant"))
    return {"charts": [charts.svg(spec)]}


@section("neurons", title="Neurons the faults are caused by", order=40, holds=("neurons",))
def neurons(run: Run) -> Row:
    return {"neurons": run["neurons"]}


@section("families", title="Fault families", order=50, commands=(*COMMANDS, "swarm"))
def fault_families(run: Run) -> Row:
    grouped = families(run.path)
    x, rows_of_seeds = Store(run).seeds()
    shrunk, bounds = shrunk_of(run), pictures.bounds_of(run)
    rows = []
    for family, row in list(zip(grouped.families, grouped.table(), strict=True))[:SHOWN]:
        small, seed = shrunk.get(family.key), rows_of_seeds.get(family.representative.root)
        file = family.representative.file
        original = None if seed is None else np.array(x[seed])
        row["picture"] = pictures.of_file(file)
        row["seed"] = None if original is None else pictures.of_input(original, bounds)
        row["difference"] = None if original is None or file is None else pictures.of_difference(decode(file), original, bounds)
        row["shrunk"] = small and {**small, "picture": pictures.of_file(small["file"])}
        rows.append(row)
    swarm = run["command"] == "swarm"
    title = f"Fault families, {len(rows)} of {len(grouped.families)}"
    unshrunk = swarm and not any(row["shrunk"] for row in rows)
    return {"title": title, "families": rows, "mutated": not swarm, "unshrunk": unshrunk}  # a swarm moves pixels: no mutation
