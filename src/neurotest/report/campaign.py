"""Sections of campaigns and swarms: faults compared with random's, progress over time, mutations that pay, fault families."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np

from neurotest import registry
from neurotest.campaign import course
from neurotest.campaign.believed import sentence as believed
from neurotest.campaign.families import families
from neurotest.campaign.shrink import shrunk_of
from neurotest.campaign.status import control_of, tally_of
from neurotest.campaign.store import Store
from neurotest.campaign.swarm import join_courses
from neurotest.campaign.verdict import sentence
from neurotest.errors import BadInput
from neurotest.generate.fuzz.goals.guide import GOALS
from neurotest.generate.fuzz.mutants import Key
from neurotest.generate.swarm.controls import CONTROL_NAMES
from neurotest.generate.swarm.engine import Moment
from neurotest.report import charts, pictures
from neurotest.report.section import Conclusion, Row, command, joined, plural, section
from neurotest.runs.codec import decode
from neurotest.runs.store import Run
from neurotest.stats.bootstrap import wilson
from neurotest.target.outputs import BINS, Bins, read_tolerance

COMMANDS = ("fuzz", "merge")
WITH_SWARM = ("fuzz", "merge", "swarm")
FAMILIES_SHOWN = 60  # families with pictures
MOSTLY_VALID = 0.8  # of the faults believed valid: below, the first sentence says so
FAMILIES_UNFOLDED = 12  # of them in view, the others folded
FAMILIES_PLAYED = 30  # of them, if they are sound, can be played: a page has to stay small


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
    if low >= MOSTLY_VALID:
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


@section("families", title="Fault families", order=50, commands=WITH_SWARM)
def _fault_families(run: Run) -> Row:
    grouped = families(run.path)
    x, rows_of_seeds = Store(run).seeds()
    shrunk, bounds, rate = shrunk_of(run), pictures.bounds_of(run), run.rate
    rows: list[Row] = []
    for family, row in list(zip(grouped.families, grouped.table(), strict=True))[:FAMILIES_SHOWN]:
        small, seed = shrunk.get(family.key), rows_of_seeds.get(family.representative.root)
        file = family.representative.file
        original = None if seed is None else np.array(x[seed])
        played = len(rows) < FAMILIES_PLAYED
        row["picture"] = pictures.of_file(file, sound=played)
        row["seed"] = None if original is None else pictures.of_input(original, bounds, rate if played else None)
        row["difference"] = None if original is None or file is None else pictures.of_difference(decode(file), original, bounds)
        row["shrunk"] = small and {**small, "picture": pictures.of_file(small["file"], sound=played)}
        rows.append(row)
    swarm, total = run["command"] == "swarm", len(grouped.families)
    return {
        "title": "Fault families" if len(rows) == total else f"Fault families, {len(rows)} of {total}",
        "total": total,
        "families": rows,
        "first": FAMILIES_UNFOLDED,
        "tolerance": _tolerance(run),
        "heard": rate is not None,
        "mutated": not swarm,  # a swarm moves values
        "unshrunk": swarm and not any(row["shrunk"] for row in rows),
    }


CURVE_POINTS = 150  # of a curve
PASSES = "Families, seeds with a fault and faults over forward passes{beside}. A curve that still rises has not found everything."
PASSES_HIDE = (
    "how different the faults of one family are; random's faults are not kept one by one, so it has no curve in that panel."
)
OUTPUTS = "Faults and fault families over the outputs of the campaigns, in the order they were merged."
OUTPUTS_HIDE = "forward passes: merged campaigns were not made one after the other."
PAYING = "How often a mutant fails, by its last mutation, with 95 % intervals, and how many fault families each mutation opened."
PAYING_HIDE = (
    "which mutation is the cause where several were applied, or whether a person would still see the class (see the pictures)."
)
VALID = "How often the judge recognises the seed's class: in seeds, in mutants that the network still gets right, and in faults."
VALID_HIDE = "a person's judgement; a judge errs, too, which is why faults are compared with mutants that are changed as much."


@section("campaign-growth", title="How it went", order=20, commands=COMMANDS, template="chart.html.j2")
def _campaign_growth(run: Run) -> Row | None:
    if not tally_of(run).faults:
        return None
    own, control = Store(run).firsts()
    if own is None:
        return {"charts": [_over_outputs(run)]}
    guide = str(run["summary"].get("guide") or "guide")
    curves = []
    for by, firsts in ((guide, own), ("random", control if guide != "random" else None)):
        if firsts:
            curves += [("families", by, course.new_families(firsts)), ("seeds with a fault", by, course.new_seeds(firsts))]
    curves.append(("faults", guide, course.faults(run, own)))
    ends = {"random": (control_of(run) or tally_of(run)).forwards}
    rows = [row for what, by, curve in curves for row in _points(what, by, curve, ends.get(by, tally_of(run).forwards))]
    beside = ", compared with random at as many passes" if control else ""
    x, y = charts.number("forwards", "forward passes", axis={"tickCount": 4}), charts.number("count", axis={"tickCount": 4})
    line = charts.line(x, y, 210, 150, interpolate="step-after")
    line["encoding"]["color"] = charts.names("by", scale=charts.colours(dict.fromkeys(by for _, by, _ in curves)))
    del line["mark"]["color"]
    spec = charts.panels(rows, "what", line, own="y", sort=["families", "seeds with a fault", "faults"], columns=3)
    return {"charts": [charts.Chart(name="course", spec=spec, shows=PASSES.format(beside=beside), hides=PASSES_HIDE)]}


def _points(what: str, by: str, curve: course.Curve, end: int) -> list[Row]:
    """From nothing to the end of the campaign, thinned evenly."""
    at = np.unique(np.linspace(0, len(curve.counts) - 1, CURVE_POINTS).round().astype(int))
    points = [(0, 0), *zip(curve.forwards[at].tolist(), curve.counts[at].tolist(), strict=True)]
    if end > points[-1][0]:
        points.append((end, points[-1][1]))
    return [{"what": what, "by": by, "forwards": forwards, "count": count} for forwards, count in points]


def _over_outputs(run: Run) -> charts.Chart:
    rows = [
        {"outputs": n, "what": what, "count": count}
        for n, faults, kinds in _counts(run)
        for what, count in (("faults", faults), ("families", kinds))
    ]
    line = charts.line(charts.number("outputs", "outputs"), charts.number("count"), 300, 150)
    return charts.Chart(name="course", spec=charts.panels(rows, "what", line, own="y"), shows=OUTPUTS, hides=OUTPUTS_HIDE)


def _counts(run: Run) -> list[tuple[int, int, int]]:
    """(outputs, faults, families) along the campaign."""
    seen: set[Key] = set()
    points, faults = [], 0
    for n, (family, is_fault) in enumerate(Store(run).outcomes(), start=1):
        if is_fault:
            faults += 1
            seen.add(family)
        points.append((n, faults, len(seen)))
    return [points[i] for i in np.unique(np.linspace(0, len(points) - 1, CURVE_POINTS).round().astype(int))]


@section("operators", title="Mutations that pay", order=30, commands=COMMANDS, template="chart.html.j2")
def _operators(run: Run) -> Row | None:
    """What share of each mutation's mutants failed, and how many families it opened."""
    tally = tally_of(run)
    opened = Counter(operator for _, _, operator in tally.families)
    rows: list[Row] = []
    for name, tried in tally.tried.items():
        if tried:
            failed = tally.operators.get(name, 0)
            limits = wilson(min(failed, tried), tried)
            share = {"faults": failed, "tested": tried, "share": failed / tried, "low": limits.low, "high": limits.high}
            rows.append({"operator": name, **share, "families": opened[name]})
    if not rows:
        return None
    rows.sort(key=lambda row: -float(row["share"]))
    return {"charts": [charts.Chart(name="mutations", spec=_paying(rows), shows=PAYING, hides=PAYING_HIDE)]}


def _paying(rows: list[Row]) -> charts.Spec:
    order = [row["operator"] for row in rows]
    y = charts.names("operator", sort=order)
    bars: charts.Spec = {"mark": {"type": "bar", "color": charts.COLOURS[0]}}
    bars["encoding"] = {"y": y, "x": charts.number("share", "faults per tested mutant", axis={"format": ".0%", "tickCount": 5})}
    limits: charts.Spec = {"mark": {"type": "rule", "color": "#222222"}}
    limits["encoding"] = {"y": y, "x": {**bars["encoding"]["x"], "field": "low"}, "x2": {"field": "high"}}
    families: charts.Spec = {"mark": {"type": "bar", "color": charts.COLOURS[2]}, "width": 220}
    families["encoding"] = {"y": {**y, "axis": None}, "x": charts.number("families", "fault families", axis={"tickCount": 4})}
    return {"data": {"values": rows}, "hconcat": [{"width": 330, "layer": [bars, limits]}, families]}


@section("validity", title="Are they still valid images?", order=35, commands=COMMANDS, template="chart.html.j2")
def _validity(run: Run) -> Row | None:
    """What the judge recognises, of which the share of valid faults is made."""
    about = run["summary"].get("believed_valid")
    sentence = believed(about)
    if not about or not sentence or about.get("recognised") is None:
        return None
    values = (
        ("seeds", about.get("seeds_recognised")),
        ("mutants it still gets right", about.get("others_recognised")),
        ("faults", about["recognised"]),
    )
    rows = [{"images": name, "recognised": share} for name, share in values if share is not None]
    x = charts.number("recognised", "recognised by the judge", scale={"domain": [0, 1]}, axis={"format": ".0%"})
    spec = charts.bars(rows, charts.names("images"), x)
    chart = charts.Chart(name="validity", spec=spec, shows=VALID, hides=VALID_HIDE)
    return {"text": f"{sentence}.", "charts": [chart]}


SWARM_POINTS = 200
SWARM_SHOWS = "How many seeds fail, and how high the best fitness of each seed has climbed, over evaluations per seed."
SWARM_HIDES = "whether more evaluations would break the others, or how the controls went (their ends are in the table)."


@section("swarm", title="Inputs that a swarm search breaks", order=0, commands=("swarm",))
def _swarm(run: Run) -> Row:
    summary, name = run["summary"], run.path.name
    ways = plural(summary["families"], "fault family", "fault families")
    sentence = f"{summary['roots']} of {plural(summary['seeds'], 'seed')} fail, in {ways}."
    stronger = [CONTROL_NAMES.get(key, key) for key, row in summary["controls"].items() if _beyond(row, summary)]
    causes = () if "neurons" in run else (("Which neurons cause them", command("neurons", name)),)
    attack = command("attack", run["config"]["target"], run["config"]["seeds"])
    steps = (
        *((("A stronger test here", attack),) if stronger else ()),
        ("The smallest change of each family", command("shrink", name)),
        *causes,
        ("Do they look natural, are they diverse, are all classes hit?", command("evaluate", name)),
    )
    noise = summary["controls"].get("noise")
    bad = summary["faults"] > 0 and (noise is None or _beyond(summary, noise))
    conclusion = Conclusion(f"{sentence}{_beside_controls(summary)}", bad=bad, steps=steps)
    return {"subject": run["config"]["target"], "conclusion": conclusion}


def _beyond(row: Row, other: Row) -> bool:
    """Whether the interval of the first rate lies above that of the second."""
    return bool(row["rate_interval"][0] > other["rate_interval"][1])


def _beside_controls(summary: Row) -> str:
    """The controls on the same seeds, and which of them are no more apart than chance."""
    controls = {CONTROL_NAMES.get(key, key): row for key, row in summary["controls"].items()}
    if not controls:
        return ""
    words = [f"{row['failed']} with {name}" for name, row in controls.items()]
    failed = joined([words[0].replace(" with ", " fail with ", 1), *words[1:]])
    close = [name for name, row in controls.items() if not _beyond(summary, row) and not _beyond(row, summary)]
    chance = f" The difference from {joined(close)} is within chance (the 95 % intervals overlap)." if close else ""
    stronger = [name for name, row in controls.items() if _beyond(row, summary)]
    beaten = f" This search is weaker here than {joined(stronger)}." if stronger else ""
    return f" Of the same seeds {failed}.{beaten}{chance}"


@section("controls", title="Beside controls on the same seeds", order=10, commands=("swarm",))
def _controls(run: Run) -> Row:
    summary = run["summary"]
    rows = [{**summary, "name": f"swarm, {summary['fitness']}", "failed": summary["roots"]}]
    return {"rows": rows + [{**row, "name": CONTROL_NAMES.get(name, name)} for name, row in summary["controls"].items()]}


@section("swarm-growth", title="How it went", order=20, commands=("swarm",), requires=("swarm",), template="chart.html.j2")
def _swarm_growth(run: Run) -> Row | None:
    """Seeds that fail, and the mean best fitness, against evaluations per seed."""
    moments = join_courses([[Moment(*moment) for moment in part] for part in run["swarm"]["courses"]])
    if not moments:
        return None
    seeds = run["summary"]["seeds"]
    rows = [
        {"evaluations": moment.evaluations, "what": what, "value": value}
        for moment in (*moments[:: max(1, len(moments) // SWARM_POINTS)], moments[-1])
        for what, value in (("share of seeds that fail", moment.failed / seeds), ("mean best fitness", moment.fitness))
    ]
    line = charts.line(charts.number("evaluations", "evaluations per seed, mean"), charts.number("value"), 320, 160)
    spec = charts.panels(rows, "what", line, own="y", sort="descending")
    return {"charts": [charts.Chart(name="course", spec=spec, shows=SWARM_SHOWS, hides=SWARM_HIDES)]}


@section("neurons", title="Neurons the faults are caused by", order=40, commands=WITH_SWARM, requires=("neurons",))
def _neurons(run: Run) -> Row:
    """What `neurotest neurons` put into the run."""
    return {"neurons": run["neurons"]}
