"""Sections of campaigns: their faults beside random's, the goals of the guide, and the fault families."""

from __future__ import annotations

import re

import numpy as np

from neurotest import registry
from neurotest.campaign.families import families
from neurotest.campaign.shrink import shrunk_of
from neurotest.campaign.store import Store
from neurotest.campaign.verdict import sentence
from neurotest.errors import BadInput
from neurotest.generate.fuzz.goals.guide import GOALS
from neurotest.report import pictures
from neurotest.report.section import Conclusion, Row, command, section
from neurotest.runs.codec import decode
from neurotest.runs.store import Run
from neurotest.target.outputs import BINS, Bins, read_tolerance

COMMANDS = ("fuzz", "merge")
SHOWN = 60  # families with pictures
SURE = 0.8  # of the faults believed valid: below, the first sentence says so
FIRST = 12  # of them in view, the others folded
PLAYED = 30  # of them, if they are sound, can be played: a page has to stay small


@section("merge", title="Merged campaigns", order=0, commands=("merge",), template="fuzz.html.j2")
@section("fuzz", title="Changed inputs that break the network", order=0, commands=("fuzz",))
def _fuzz(run: Run) -> Row:
    return {"subject": run["config"]["target"], "conclusion": _conclusion(run)}


def _conclusion(run: Run) -> Conclusion:
    """How many seeds broke, in how many ways, beside random."""
    summary, name = run["summary"], run.path.name
    seeds = len(Store(run).seeds()[1])
    if not summary["faults"]:
        passes = f"{summary['forwards']:,} forward passes" if summary.get("forwards") else "this campaign"
        passes_then = 10 * summary.get("forwards", 1000)
        longer = (("Look longer", command("fuzz", "--resume", name, "--forwards", passes_then)),)
        return Conclusion(f"No fault was found in {passes}.", steps=longer if run["command"] == "fuzz" else ())
    random = summary.get("random") or {}
    beside = f"; random changes at equal cost give {random['families']:,} families" if random.get("families") is not None else ""
    sentence = (
        f"{summary['roots']:,} of {seeds:,} inputs can be changed so that the network gets them wrong: {summary['faults']:,} "
        f"faults in {summary['families']:,} families (from which class to which, by which change){beside}.{_believed(summary)}"
    )
    smaller = () if shrunk_of(run) else (("The smallest change of each family", command("shrink", name)),)
    steps = (
        *smaller,
        ("Why they fail, neuron by neuron", command("explain", name)),
        ("Do they look natural, are they diverse, are all classes hit?", command("evaluate", name)),
    )
    return Conclusion(sentence, bad=True, steps=steps)


def _believed(summary: Row) -> str:
    """How many faults still look like their class, where that may be few."""
    valid = summary.get("believed_valid")
    if not valid:
        return ""
    if valid["share"] is None:
        return " How many of them still look like their class cannot be told."
    low, high = valid["interval"]
    if low >= SURE:
        return ""
    return f" About {100 * valid['share']:.0f} % ({100 * low:.0f} .. {100 * high:.0f}) of the faults still look like their class."


@section("beside-random", title="Beside random", order=10, commands=COMMANDS)
def _beside_random(run: Run) -> Row | None:
    summary = run["summary"]
    if run["config"].get("guide") == "random" or not summary.get("random"):
        return None
    campaigns = [{"name": summary["guide"], **summary}, {"name": "random", **summary["random"]}]
    return {"campaigns": campaigns, "verdict": sentence(summary.get("verdict"))}


@section("goals", title="Goals", order=15, commands=("fuzz",))
def _goals(run: Run) -> Row | None:
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


def _tolerance(run: Run) -> float | None:
    """How far an answer may move, where the network predicts a quantity: what the oracle says, or the target's own tolerance."""
    described = run["config"].get("description") or {}
    if not isinstance(described.get("span"), list) or len(described["span"]) != 2:
        return None
    low, high = map(float, described["span"])
    bins = Bins(low, high, int(described.get("bins") or BINS), float(described.get("tolerance") or 0))
    for text in run["config"].get("oracle") or ():
        try:
            oracle = registry.build("oracle", text)
        except BadInput:  # a stranger's
            continue
        limit = getattr(oracle, "bound", None) or getattr(oracle, "tolerance", None)
        if limit is not None:
            return read_tolerance("bound", limit, bins)
    return bins.tolerance


@section("families", title="Fault families", order=50, commands=("fuzz", "merge", "swarm"))
def _fault_families(run: Run) -> Row:
    grouped = families(run.path)
    x, rows_of_seeds = Store(run).seeds()
    shrunk, bounds, rate = shrunk_of(run), pictures.bounds_of(run), run.rate
    rows: list[Row] = []
    for family, row in list(zip(grouped.families, grouped.table(), strict=True))[:SHOWN]:
        small, seed = shrunk.get(family.key), rows_of_seeds.get(family.representative.root)
        file = family.representative.file
        original = None if seed is None else np.array(x[seed])
        played = len(rows) < PLAYED
        row["picture"] = pictures.of_file(file, sound=played)
        row["seed"] = None if original is None else pictures.of_input(original, bounds, rate if played else None)
        row["difference"] = None if original is None or file is None else pictures.of_difference(decode(file), original, bounds)
        row["shrunk"] = small and {**small, "picture": pictures.of_file(small["file"], sound=played)}
        rows.append(row)
    swarm = run["command"] == "swarm"
    title = "Fault families" if len(rows) == len(grouped.families) else f"Fault families, {len(rows)} of {len(grouped.families)}"
    unshrunk = swarm and not any(row["shrunk"] for row in rows)
    tolerance = _tolerance(run)
    about = {"tolerance": tolerance, "title": title, "total": len(grouped.families), "first": FIRST, "heard": rate is not None}
    return {**about, "families": rows, "mutated": not swarm, "unshrunk": unshrunk}  # a swarm moves values: no mutation
