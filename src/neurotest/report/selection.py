"""Sections of a selection: how good each order is, faults found per label, and the first picks as pictures."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from neurotest.errors import BadInput
from neurotest.generate.outcome import class_name
from neurotest.report import charts, pictures
from neurotest.report.section import Conclusion, Row, command, section
from neurotest.runs.rows import InputRow, RankedRow
from neurotest.runs.store import Run
from neurotest.select.exchange import ROUNDS
from neurotest.select.selection import LIKELY

COMMANDS = ("select", "demo")
IMAGES_PER_METHOD = 12  # pictures per method
IMAGES_OF_FIRST_METHOD = 200  # pictures of the first method
BEYOND = 1.25  # a curve goes on to so many times the budget
LEAST_CURVE_LABELS = 10  # labels, where the budget is small
LEAST_SHARE = 0.005  # shares of a change below are not shown
CURVE_POINTS = 200  # of a curve
CURVES = (
    "How many faults are known after so many labels, for each method. Dashed: random labelling. Dotted: the best any order "
    "could do. Vertical line: the budget; the curves go a quarter beyond it, to show what a few more labels would bring."
)
CURVES_HIDE = "how much of the distance between two methods is chance (the table says it), or anything far beyond the budget."


def _methods(run: Run, number: str | None = None) -> list[Row]:
    """What the run says of each method, in the order of its rankings; only those that have the number."""
    summary = run["summary"]["methods"]
    rows = [{"name": method.name, **summary.get(method.name, {})} for method in run.methods()]
    return [row for row in rows if number is None or number in row]


def wrong_inputs(inputs: list[InputRow]) -> dict[int, bool] | None:
    """Which inputs the network gets wrong; None where some have no label."""
    if any(row.label is None for row in inputs):
        return None
    return {row.position: row.label != row.predicted for row in inputs}


@section("selection", title="Label these first", order=0, commands=COMMANDS)
def _selection(run: Run) -> Row:
    inputs = run.inputs()
    wrong = wrong_inputs(inputs)
    picked = next((method.picked for method in run.methods()), 0)
    return {
        "adaptive": wrong is not None and any(row["name"].startswith("adaptive") for row in _methods(run)),
        "subject": run["config"]["pool"], "pool": len(inputs), "picked": picked,
        "conclusion": _conclusion(run, picked, len(inputs)),
        "faults": None if wrong is None else sum(wrong.values()),
        "notes": [*dict.fromkeys(note for row in _methods(run) for note in row.get("notes", ()))],
        "duplicates": [inputs[p].words for p in run["training duplicates"]], "skipped": run["skipped"],
    }  # fmt: skip


def _conclusion(run: Run, picked: int, pool: int) -> Conclusion:
    """The best method beside random where labels are there; otherwise what to do to get them."""
    name = run.path.name
    steps = (
        ("The picks, to be labelled", command("export", name, "--format", "csv", "--out", "batch.csv")),
        ("When the column label is filled in", command("labels", name, "add", "batch.csv")),
    )
    judged = [row for row in _methods(run, "fdr") if row["fdr"] is not None]
    if not judged:
        return Conclusion(f"Label these {picked:,} of {pool:,} inputs first. How many are faults, labels will tell.", steps=steps)
    best = max(judged, key=lambda row: float(row["fdr"]))
    random = best["random"]
    low, high = (100 * limit for limit in random["fdr_interval"])
    chance = f"as many random picks hold {100 * random['fdr']:.0f} % ({low:.0f} .. {high:.0f})"
    if best["fdr"] <= random["fdr_interval"][1]:
        return Conclusion(
            f"No method beats random here: of {picked:,} picks the best finds {100 * best['fdr']:.0f} % faults; {chance}."
        )
    return Conclusion(
        f"{best['name']} is best: of the {picked:,} inputs it picks out of {pool:,}, {100 * best['fdr']:.0f} % are faults of the "
        f"network; {chance}.",
        steps=(("These picks as a list", command("export", name, "--format", "csv", "--out", "picks.csv")),),
    )


@section("looks", title="What the pool looks like", order=5, commands=COMMANDS, template="looks.html.j2")
def _looks(run: Run) -> Row | None:
    """What was found in the unlabelled pool, and what each round of an adaptive method promised and held."""
    methods = _methods(run, "prior")
    shared = next((row["prior"] for row in methods if row["prior"].get("shares")), None)
    rounds = {row["name"]: [*_held(row["rounds"])] for row in methods if row.get("rounds")}
    if shared is None and not rounds:
        return None
    shares = sorted((shared or {}).get("shares", {}).items(), key=lambda item: -item[1])
    return {"shares": [(name, share) for name, share in shares if share >= LEAST_SHARE], "prior": shared, "rounds": rounds}


def _held(rounds: list[Row]) -> Iterator[Row]:
    before = 0
    for number, row in enumerate(rounds, start=1):
        held = row["faults"] - before
        before = row["faults"]
        gain = (before - row["deepgini"]) / max(row["labels"], 1)
        yield {**row, "number": number, "measured": held / row["size"], "gain": gain}


@section("rounds", title="Rounds of labelling", order=1, commands=COMMANDS, requires=(ROUNDS,))
def _rounds(run: Run) -> Row:
    """What people's labels showed, beside random; a scan that cannot be read takes away this section and not the page."""
    from neurotest.select.adaptive.rounds import status_of  # and the whole of adaptive selection

    try:
        return {"status": status_of(run), "problem": None}
    except BadInput as error:
        return {"status": None, "problem": str(error)}


@section("accuracy", title="Accuracy, estimated from the labelled picks", order=10, commands=COMMANDS)
def _accuracy(run: Run) -> Row | None:
    methods = _methods(run, "accuracy")
    return {"methods": methods} if methods else None


@section("picked-faults", title="Share of the picked inputs that are faults", order=20, commands=COMMANDS)
def _picked_faults(run: Run) -> Row | None:
    methods = _methods(run, "fdr")
    return {"methods": methods} if methods else None


@section("faults-per-label", title="Faults found per labels spent", order=2, commands=COMMANDS, template="chart.html.j2")
def _faults_per_label(run: Run) -> Row | None:
    wrong = wrong_inputs(run.inputs())
    ranked = [method.name for method in run.methods() if method.ranked]
    if wrong is None or not ranked or not _methods(run, "fdr"):
        return None
    curves = {name: np.cumsum([wrong[row.position] for row in run.ranking(name)]) for name in ranked}
    spec = _found_curves(curves, sum(wrong.values()), run.methods()[0].picked)
    rows = spec["layer"][-1]["data"]["values"]
    return {"charts": [charts.Chart(name="faults-per-label", spec=spec, rows=rows, shows=CURVES, hides=CURVES_HIDE)]}


def _found_curves(curves: dict[str, np.ndarray], total: int, picked: int) -> charts.Spec:
    """Faults found per labels spent, one line per method, with the diagonal of random and the ceiling."""
    n = min(len(next(iter(curves.values()))), max(math.ceil(BEYOND * picked), LEAST_CURVE_LABELS))
    at = np.unique(np.linspace(0, n, CURVE_POINTS).round().astype(int))
    counts = {name: [0, *curve.tolist()] for name, curve in curves.items()}
    rows = [{"method": name, "labels": m, "faults": faults[m]} for name, faults in counts.items() for m in at.tolist()]
    x = charts.number("labels", "labels spent", scale={"domain": [0, n], "nice": False})
    y = charts.number("faults", "faults found")
    colour = charts.names("method", "method", scale=charts.colours(curves))

    def reference(points: list[tuple[float, float]], dash: list[int]) -> charts.Spec:
        values = [{"labels": labels, "faults": faults} for labels, faults in points]
        mark = {"type": "line", "strokeDash": dash, "color": charts.GREY}
        return {"data": {"values": values}, "mark": mark, "encoding": {"x": x, "y": y}}

    layers = [
        reference([(0, 0), (min(n, total), min(n, total)), (n, min(n, total))], [2, 3]),
        reference([(0, 0), (n, total * n / len(next(iter(curves.values()))))], [6, 4]),
        {"data": {"values": [{"labels": picked}]}, "mark": {"type": "rule", "color": "#bbbbbb"}, "encoding": {"x": x}},
        {"data": {"values": rows}, "mark": {"type": "line", "strokeWidth": 2}, "encoding": {"x": x, "y": y, "color": colour}},
    ]
    return {"width": 640, "height": 340, "layer": layers}


@section("picks", title="", order=4, commands=COMMANDS)
def _picks(run: Run) -> Row:
    inputs = {row.position: row for row in run.inputs()}
    labels = {row.position: row.label for row in run.labels()}
    inputs |= {p: row._replace(label=labels[p]) for p, row in inputs.items() if p in labels and row.label is None}
    files = {(file.position, file.role): file.file for file in run.files()}
    classes = run["classes"]
    likely = run[LIKELY] if LIKELY in run else {}  # noqa: SIM401 - a run is no mapping
    galleries: dict[str, Row] = {}
    for number, method in enumerate(run.methods()):
        ranking = run.ranking(method.name)[: IMAGES_PER_METHOD if number else IMAGES_OF_FIRST_METHOD]
        rows = [(row, files.get((row.position, "picked"))) for row in ranking if row.picked]
        shown = [
            {
                **_pick(row, inputs[row.position], classes),
                "picture": picture,
                "original": pictures.of_file(files.get((row.position, "original"))),
                "likely": [(class_name(number, classes), share) for number, share in likely.get(str(row.position), [])],
            }
            for row, path in rows
            if (picture := pictures.of_file(path)) is not None
        ]
        galleries[method.name] = {"picked": method.picked, "first": shown[:IMAGES_PER_METHOD], "more": shown[IMAGES_PER_METHOD:]}
    paired = any(pick["original"] for gallery in galleries.values() for pick in gallery["first"])
    return {"galleries": galleries, "paired": paired, "labelled": any(row.label is not None for row in inputs.values())}


def _pick(row: RankedRow, about: InputRow, classes: list[str]) -> Row:
    predicted, label = (None if number is None else class_name(number, classes) for number in (about.predicted, about.label))
    return {
        "rank": row.rank, "position": row.position, "predicted": predicted, "label": label,
        "wrong": about.label is not None and about.label != about.predicted,
        "change": _change(about.extra.get("draw")), "file": about.name, "score": row.score,
    }  # fmt: skip


def _change(draw: Any) -> str:
    if not isinstance(draw, dict):
        return ""
    values = [f"{value:.2f}".rstrip("0").rstrip(".") for value in draw.get("parameters", []) if value]
    return f"{draw.get('operator', '')} {', '.join(values)}"
