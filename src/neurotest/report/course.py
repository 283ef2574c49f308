"""Charts of campaigns: how they went beside random, which mutations pay, and how far their faults are believed to be valid."""

from __future__ import annotations

from collections import Counter

import numpy as np

from neurotest.campaign import course
from neurotest.campaign.believed import sentence as believed
from neurotest.campaign.status import control_of, tally_of
from neurotest.campaign.store import Store
from neurotest.generate.fuzz.mutants import Key
from neurotest.report import charts
from neurotest.report.section import Row, section
from neurotest.runs.store import Run
from neurotest.stats.bootstrap import wilson

COMMANDS = ("fuzz", "merge")
POINTS = 150  # of a curve
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
    curves = [("families", guide, course.new_families(own)), ("seeds with a fault", guide, course.new_seeds(own))]
    if control and guide != "random":
        curves += [
            ("families", "random", course.new_families(control)),
            ("seeds with a fault", "random", course.new_seeds(control)),
        ]
    curves.append(("faults", guide, course.faults(run, own)))
    ends = {"random": (control_of(run) or tally_of(run)).forwards}
    rows = [row for what, by, curve in curves for row in _points(what, by, curve, ends.get(by, tally_of(run).forwards))]
    beside = ", beside random with as many passes" if control else ""
    x, y = charts.number("forwards", "forward passes", axis={"tickCount": 4}), charts.number("count", axis={"tickCount": 4})
    line = charts.line(x, y, 210, 150, interpolate="step-after")
    line["encoding"]["color"] = charts.names("by", scale=charts.colours(dict.fromkeys(by for _, by, _ in curves)))
    del line["mark"]["color"]
    spec = charts.panels(rows, "what", line, own="y", sort=["families", "seeds with a fault", "faults"], columns=3)
    return {"charts": [charts.Chart(name="course", spec=spec, shows=PASSES.format(beside=beside), hides=PASSES_HIDE)]}


def _points(what: str, by: str, curve: course.Curve, end: int) -> list[Row]:
    """From nothing to the end of the campaign, thinned evenly."""
    at = np.unique(np.linspace(0, len(curve.counts) - 1, POINTS).round().astype(int))
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
    return [points[i] for i in np.unique(np.linspace(0, len(points) - 1, POINTS).round().astype(int))]


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
        ("seeds", about.get("seeds_recognised")), ("mutants it still gets right", about.get("others_recognised")),
        ("faults", about["recognised"]),
    )  # fmt: skip
    rows = [{"images": name, "recognised": share} for name, share in values if share is not None]
    x = charts.number("recognised", "recognised by the judge", scale={"domain": [0, 1]}, axis={"format": ".0%"})
    spec = charts.bars(rows, charts.names("images"), x)
    chart = charts.Chart(name="validity", spec=spec, shows=VALID, hides=VALID_HIDE)
    return {"text": f"{sentence}.", "charts": [chart]}
