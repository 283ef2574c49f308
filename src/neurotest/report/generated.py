"""Sections of attack, diff and illuminate: faults beside noise of the same size, accuracy over the size of the change, strips."""

from __future__ import annotations

import numpy as np

from neurotest.generate.outcome import class_name
from neurotest.report import charts, pictures
from neurotest.report.section import Conclusion, Row, command, plural, section
from neurotest.runs.codec import decode
from neurotest.runs.rows import InputRow
from neurotest.runs.store import Run

COMMANDS = ("attack", "diff", "illuminate")
STRIPS_SHOWN = 40  # strips
CURVE_POINTS = 100  # of a curve
NORMS = {"l2": "L2", "linf": "Linf"}
RADII = (
    "How many of the seeds are still recognised when changes up to this size are allowed, by the faults that were found. A "
    "better attack can only lower the curve: it is an upper bound."
)
RADII_HIDE = "what a stronger attack would find, or changes larger than the largest that was made here."


def stored_faults(run: Run) -> list[InputRow]:
    """Outputs that fail, the smallest change first."""
    rows = [row for row in run.inputs() if row.extra.get("fault") and row.label is not None and row.predicted is not None]
    return sorted(rows, key=lambda row: (float(row.extra.get("l2") or 0.0), row.position))


@section("attack", title="What an attack breaks", order=0, commands=("attack",), template="generated.html.j2")
def _attack(run: Run) -> Row:
    summary = run["summary"]
    size = summary["distance"]["linf"]
    changed = "" if size is None else f", their pixels changed by at most {100 * size:.0f} % of the range"
    sentence = f"{_seeds(summary)} fail under {summary['attack']}{changed}"
    return {"subject": run["config"]["target"], "conclusion": _conclusion(run, sentence)}


@section("diff", title="Networks that disagree", order=0, commands=("diff",), template="generated.html.j2")
def _diff(run: Run) -> Row:
    summary = run["summary"]
    by_target = ", ".join(f"{name} on {count}" for name, count in summary["by_target"].items())
    wrong = f"wrong is {by_target}; on one input several can be"
    sentence = f"On {_seeds(summary)} a change makes the networks disagree ({wrong})"
    return {"subject": ", ".join(summary["targets"]), "conclusion": _conclusion(run, sentence), "others": True}


@section(
    "illuminate", title="Which classes can be turned into which", order=0, commands=("illuminate",), template="generated.html.j2"
)
def _illuminate(run: Run) -> Row:
    summary = run["summary"]
    cells = summary["cells"]
    sentence = (
        f"{cells['filled']} of {cells['possible']} possible confusions ({_possible(run)}) can be brought about, in "
        f"{plural(summary['faults'], 'fault')} from {plural(summary['roots'], 'seed')}"
    )
    return {"subject": run["config"]["target"], "conclusion": _conclusion(run, sentence)}


def _possible(run: Run) -> str:
    """What is counted: each class that the seeds have, taken for each of the others."""
    others = len(run["classes"]) - 1 if "classes" in run else 0
    present, rest = divmod(run["summary"]["cells"]["possible"], others) if others > 0 else (0, 1)
    if rest or present < 1:
        return "a class of the seeds taken for another"
    return f"{present} classes among the seeds, each taken for one of {others} others"


def _seeds(summary: Row) -> str:
    return f"{summary['roots']:,} of {summary.get('seeds', summary['outputs']):,} seeds"


def _conclusion(run: Run, sentence: str) -> Conclusion:
    """The faults beside those of noise of the same size, and what to do with them."""
    summary, name = run["summary"], run.path.name
    if quantity := summary.get("quantity"):
        sentence += f" (an answer is a fault if it moves by more than {float(quantity['tolerance']):.4g})"
    sentence += f"; noise of the same size breaks {summary['random']['faults']:,} of {summary['outputs']:,}."
    bad = summary["faults"] > summary["random"]["faults"]
    limits, of_noise = summary.get("success_interval"), summary["random"].get("success_interval")
    if limits and of_noise:
        bad = limits[0] > of_noise[1]
        sentence += "" if bad else " The difference from noise is within chance."
    steps = (("Do they look natural, are they diverse, are all classes hit?", command("evaluate", name)),)
    return Conclusion(sentence, bad=bad, steps=steps if summary["faults"] else ())


@section("noise", title="Beside noise of the same size", order=10, commands=COMMANDS)
def _noise(run: Run) -> Row:
    summary = run["summary"]
    name = summary.get("attack") or summary.get("method") or run["command"]
    return {"rows": [{"name": name, **summary}, {"name": "random noise", **summary["random"]}], "unstable": summary["unstable"]}


@section("radius", title="Accuracy over the size of the change", order=20, commands=("attack", "diff"), template="chart.html.j2")
def _radius(run: Run) -> Row | None:
    """The share of seeds without a fault of at most this size, in both norms."""
    seeds = run["summary"].get("seeds", run["summary"]["outputs"])
    faults = stored_faults(run)
    if not faults or not seeds:
        return None
    rows = []
    for norm, title in NORMS.items():
        least: dict[int, float] = {}
        for row in faults:
            least[row.position] = min(float(row.extra[norm]), least.get(row.position, np.inf))
        changes = np.sort([*least.values()])
        at = np.linspace(0, changes[-1], CURVE_POINTS)
        broken = np.searchsorted(changes, at, side="right")
        rows += [{"norm": title, "size": r, "accuracy": 1 - b / seeds} for r, b in zip(at.tolist(), broken.tolist(), strict=True)]
    y = charts.number("accuracy", "seeds still recognised", scale={"domain": [0, 1]})
    spec = charts.line(charts.number("size", "size of the change", axis={"tickCount": 5}), y, 300, 170, interpolate="step-after")
    panels = charts.panels(rows, "norm", spec, own="x")
    return {"charts": [charts.Chart(name="accuracy-over-radius", spec=panels, shows=RADII, hides=RADII_HIDE)]}


@section("strips", title="Seed, fault, difference", order=50, commands=COMMANDS)
def _strips(run: Run) -> Row | None:
    """Small and large changes, evenly through the order of size."""
    files = {(file.position, file.role): file.file for file in run.files()}
    faults = [row for row in stored_faults(run) if (row.position, "fault") in files]
    if not faults:
        return None
    classes = list(run["classes"]) if "classes" in run else []
    bounds = pictures.bounds_of(run)
    shown = []
    for i in np.unique(np.linspace(0, len(faults) - 1, STRIPS_SHOWN).round().astype(int)):
        row = faults[i]
        fault = decode(files[row.position, "fault"])
        original = files.get((row.position, "original"))
        seed = None if original is None else decode(original)
        assert row.label is not None
        assert row.predicted is not None
        shown.append({
            "position": row.words, "true": class_name(row.label, classes), "predicted": class_name(row.predicted, classes),
            "before": row.extra.get("before"), "after": row.extra.get("after"), "said": row.extra.get("said"),
            "l2": row.extra.get("l2"), "linf": row.extra.get("linf"), "fault": pictures.of_input(fault, bounds, run.rate),
            "seed": None if seed is None else pictures.of_input(seed, bounds, run.rate),
            "difference": None if seed is None else pictures.of_difference(fault, seed, bounds),
        })  # fmt: skip
    title = "Seed, fault, difference" if len(shown) == len(faults) else f"Seed, fault, difference: {len(shown)} of {len(faults)}"
    return {"strips": shown, "total": run["summary"]["faults"], "title": title, "heard": run.rate is not None}
