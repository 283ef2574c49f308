"""Sections of an evaluation: suites beside random, clean and each other, their faults by class, and pictures."""

from __future__ import annotations

from neurotest.generate.outcome import class_name
from neurotest.report import charts
from neurotest.report.section import Conclusion, Row, command, section
from neurotest.runs.store import Run

COMMANDS = ("evaluate",)
# What a reader looks at first; the tables have everything.
OVERVIEW_METRICS = {
    ("defects", "seeds_failed"): "share of seeds with a fault (more: finds more)",
    ("defects", "fault_rate"): "faults per output (more: finds more)",
    ("naturalness", "ssim"): "SSIM to the original (1: the same image)",
    ("naturalness", "feature_distance"): "feature distance (less: more natural)",
    ("naturalness", "outside"): "share outside the manifold (less: more natural)",
    ("impartiality", "faults"): "evenness of faults (1: all classes alike)",
    ("diversity", "vendi"): "Vendi score (more: more diverse)",
}
SHARES = {
    title for (_, metric), title in OVERVIEW_METRICS.items() if metric in ("seeds_failed", "ssim", "outside", "faults")
}  # of 1
FEW = {"tickCount": 5}
ALIKE = 0.5  # SSIM below which a picture is not much like its original
NAMES = {
    "fault_rate": "faults per output", "roots": "seeds with a fault", "faults_per_seed": "faults per seed",
    "root_label_pairs": "different (seed, wrong class) pairs", "class_pairs": "different (true, predicted) pairs",
    "families": "fault families", "true_classes": "true classes among the faults",
    "predicted_classes": "predicted classes among the faults", "originally_correct": "outputs whose seed was right",
    "success": "share that fails, of outputs whose seed was right", "seeds_failed": "share of seeds with a fault",
    "faults_per_1000_forwards": "faults per 1,000 forward passes", "nearest": "distance to the nearest other output",
    "pairwise": "mean distance of two outputs", "vendi": "Vendi score (different inputs it is worth)",
    "l0": "share of values changed (L0)", "l2": "size of the change (L2)", "linf": "largest change of a value (Linf)",
    "ssim": "SSIM to the original (1: the same)", "total_variation": "total variation",
    "total_variation_ratio": "total variation, output over original", "feature_distance": "distance in features",
    "outside": "share outside the manifold", "fid": "FID", "fid_shrunk": "FID, shrunk covariances", "kid": "KID",
    "inception_score": "inception score",
}  # fmt: skip
SUITES = 3  # with a next step
EVEN = {"all": "evenness of all outputs over classes (1: even)", "faults": "evenness of faults over classes (1: even)"}
TABLE = ("suite", "part", "metric", "value", "interval", "random", "clean")
OVERVIEW_HIDES = "whether a fault matters to you, or which of two suites is better: numbers of different kinds do not add up."
CONFUSED = "How many faults go from which class to which, suite by suite."
CONFUSED_HIDES = "how many inputs of each class there were: a class with more seeds can have more faults."
OVERVIEW = (
    "Every suite, beside its random control and the clean inputs where they were measured. Lines are 95 % intervals (shares: "
    "Wilson; evenness: bootstrap over seeds). What random is stands above each table below; clean are the inputs the suite was "
    "made from."
)


@section("evaluation", title="How good these tests are", order=0, commands=COMMANDS)
def _evaluation(run: Run) -> Row:
    subject = ", ".join(run["summary"]["suites"])
    return {"subject": subject, "conclusion": _conclusion(run["summary"]["rows"], run["summary"]["suites"])}


def _conclusion(rows: list[Row], suites: Row) -> Conclusion | None:
    """What share of seeds fails in each suite, beside random where that is measured."""
    failed = [row for row in rows if (row["part"], row["metric"]) == ("defects", "seeds_failed") and row["value"] is not None]
    if not failed:
        return None
    words = [
        f"{row['suite']}: {100 * row['value']:.0f} % of the inputs it started from have a fault"
        + (f", {100 * row['random']:.0f} % with random changes at equal cost" if row["random"] is not None else "")
        for row in failed
    ]
    even = [row for row in rows if (row["part"], row["metric"]) == ("impartiality", "faults") and row["value"] is not None]
    spread = [
        f" They are spread over the classes with an evenness of {row['value']:.2f}"
        + (f" (random {row['random']:.2f}, 1 is even)." if row["random"] is not None else " (1 is even).")
        for row in even[:1]
        if len(failed) == 1
    ]
    alike = [row for row in rows if (row["part"], row["metric"]) == ("naturalness", "ssim") and row["value"] is not None]
    far = ": they are changed a lot, so look whether they are still valid"
    spread += [
        f" Likeness to the originals (SSIM) is {row['value']:.2f} of 1{far if row['value'] < ALIKE else ''}."
        for row in alike[:1]
        if len(failed) == 1
    ]
    steps = tuple((f"The faults of {name} as pictures", command("report", name)) for name in list(suites)[:SUITES])
    return Conclusion(f"{'; '.join(words)}.{''.join(spread)}", steps=steps)


@section("suites-overview", title="At a glance", order=10, commands=COMMANDS, template="chart.html.j2")
def _suites_overview(run: Run) -> Row:
    rows = run["summary"]["rows"]
    table = [{key: _one(row.get(key)) for key in TABLE} for row in rows]
    chart = charts.Chart(name="suites", spec=_overview(rows), rows=table, shows=OVERVIEW, hides=OVERVIEW_HIDES)
    return {"charts": [chart]}


def _one(value: object) -> object:
    """A cell: an interval as text."""
    return " .. ".join(map(str, value)) if isinstance(value, (list, tuple)) else value


def _overview(rows: list[Row]) -> charts.Spec:
    """A panel per number: every suite with its interval, its random control in grey, the clean suite as a ring."""
    points: dict[str, list[Row]] = {}
    limits: dict[str, list[Row]] = {}
    for row in rows:
        title = OVERVIEW_METRICS.get((row["part"], row["metric"]))
        if title is None:
            continue
        points.setdefault(title, []).extend(
            {"suite": row["suite"], "what": what, "at": row[column]}
            for what, column in (("suite", "value"), ("random", "random"), ("clean", "clean"))
            if row[column] is not None
        )
        if row["interval"]:
            low, high = row["interval"]
            limits.setdefault(title, []).append({"suite": row["suite"], "low": low, "high": high})
    titles = [title for title in OVERVIEW_METRICS.values() if points.get(title)]
    return {"columns": 2, "concat": [_panel(title, points[title], limits.get(title, [])) for title in titles]}


def _panel(title: str, points: list[Row], limits: list[Row]) -> charts.Spec:
    whole: Row = {"scale": {"domain": [0, 1]}} if title in SHARES else {}
    kinds = ["suite", "random", "clean"]
    scale = {"domain": kinds, "range": [charts.COLOURS[0], charts.GREY, charts.COLOURS[4]]}
    y = charts.names("suite")
    line = {
        "data": {"values": limits},
        "mark": {"type": "rule", "color": charts.COLOURS[0], "strokeWidth": 2},
        "encoding": {"x": charts.number("low", axis=FEW, **whole), "x2": {"field": "high"}, "y": y},
    }
    colour, shape = charts.names("what", scale=scale), charts.names("what", scale={"domain": kinds})
    dots = {
        "data": {"values": points},
        "mark": {"type": "point", "filled": True, "size": 70},
        "encoding": {"x": charts.number("at", axis=FEW, **whole), "y": y, "color": colour, "shape": shape},
    }
    heading = {"text": title, "fontSize": 12, "anchor": "start"}
    return {"title": heading, "width": 330, "height": {"step": 24}, "layer": [line, dots] if limits else [dots]}


@section("suites", title="", order=20, commands=COMMANDS)
def _suites(run: Run) -> Row:
    summary, classes = run["summary"], run["classes"]
    pictures = {name: [_named(one, classes) for one in rows] for name, rows in (summary.get("pictures") or {}).items()}
    return {"suites": summary["suites"], "rows": [{**row, "words": _words(row)} for row in summary["rows"]], "pictures": pictures}


def _words(row: Row) -> str:
    """A metric in plain words, after its part."""
    names = EVEN if row["part"] == "impartiality" else NAMES
    return f"{row['part']}: {names.get(row['metric'], row['metric'])}"


def _named(row: Row, classes: list[str]) -> Row:
    return {**row, "true": class_name(row["true"], classes), "predicted": class_name(row["predicted"], classes)}


@section("confusions", title="What is taken for what", order=30, commands=COMMANDS, template="chart.html.j2")
def _confusions(run: Run) -> Row | None:
    """From which class to which, one panel per suite."""
    classes = run["classes"]
    cells = [{"suite": name, **_named(cell, classes)} for name, rows in run["summary"]["matrix"].items() for cell in rows]
    x, y = (charts.names(column, column, sort=list(classes) or None) for column in ("predicted", "true"))
    if not cells:
        return None
    spec = charts.heat_map(cells, "suite", x, y, "faults", 280, 260, 2)
    return {"charts": [charts.Chart(name="confusions", spec=spec, shows=CONFUSED, hides=CONFUSED_HIDES)]}


@section("comparison", title="Side by side", order=40, commands=COMMANDS)
def _comparison(run: Run) -> Row | None:
    compared = run["summary"].get("comparison")
    return {"comparison": compared} if compared else None
