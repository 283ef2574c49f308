"""Sections of pages about one network: its check with findings and evidence, the gate, and its robustness."""

from __future__ import annotations

from neurotest import registry
from neurotest.jobs.stored import described
from neurotest.report import charts, pictures
from neurotest.report.section import Conclusion, Row, command, section
from neurotest.runs.store import Run

COMMANDS = ("check",)
NEXT_STEPS = 3  # commands that go deeper, of the gravest findings
UNKNOWN_ORDER = 1000  # the place of a check that is not installed here


@section("check", title="Check", order=0, commands=COMMANDS)
def _check(run: Run) -> Row:
    summary = run["summary"]
    steps = tuple((row["sentence"], row["deeper"]) for row in summary["findings"] if row.get("deeper"))[:NEXT_STEPS]
    unfinished = any(row.get("ran_out") or row.get("skipped") for row in summary["examinations"].values())
    good = not summary["findings"] and not unfinished
    return {"subject": summary["target"], "conclusion": Conclusion(_sentence(summary), summary["alarms"] > 0, steps, good)}


def _sentence(summary: Row) -> str:
    """The verdict as a sentence, with the accuracy where labels are there and how much there is to read."""
    verdict = str(summary["verdict"])
    right = summary.get("accuracy")
    accuracy = "" if right is None else f" {100 * right:.1f} % of the labelled inputs are answered right."
    others = [row["sentence"].rstrip(".") for row in summary["findings"] if row["severity"] != "alarm"]
    first = "" if summary["alarms"] else f"; the first: {others[0]}" if others else ""
    notes = f" {len(others)} {'weakness' if len(others) == 1 else 'weaknesses'} below{first}." if others else ""
    return f"{verdict[:1].upper()}{verdict[1:].rstrip('.')}.{accuracy}{notes}"


@section("check-findings", title="Findings", order=10, commands=COMMANDS)
def _check_findings(run: Run) -> Row | None:
    shown: dict[int, list[Row]] = {}
    files = {file.position: file.file for file in run.files("shown")}
    for row in run.inputs():
        picture = pictures.of_file(files.get(row.position))
        if picture is not None:
            shown.setdefault(int(row.extra["finding"]), []).append({"picture": picture, "caption": str(row.extra["caption"])})
    findings = [{**finding, "pictures": shown.get(number, [])} for number, finding in enumerate(run["summary"]["findings"])]
    return {"findings": findings} if findings else None


@section("check-examinations", title="Checks", order=20, commands=COMMANDS)
def _check_examinations(run: Run) -> Row:
    known = registry.entries("check")
    rows = [{"name": name, **row} for name, row in run["summary"]["examinations"].items()]
    return {"rows": sorted(rows, key=lambda row: known[row["name"]].make.order if row["name"] in known else UNKNOWN_ORDER)}  # type: ignore[attr-defined]


CLASSES_NAMED = 5  # classes in the first sentence
GATE_ROWS = 30  # rows of the chart
GATE_SHOWS = "Accuracy of the new network minus that of the old one, row by row, with 95 % intervals of paired differences."
GATE_HIDES = (
    "which inputs changed; a row whose interval holds the line may be chance, and of many rows a few are beyond it by chance."
)


@section("gate", title="May the new network replace the old one?", order=0, commands=("gate",))
def _gate(run: Run) -> Row:
    summary = run["summary"]
    tables = [(f"by {what}", summary[f"by_{key}"]) for what, key in (("class", "class"), ("fault family", "family"))]
    tables = [(title, table) for title, table in tables if table]
    sentence = f"{summary['verdict']}{_worse(summary['by_class'])}"
    config = run["config"]
    new = {"target": summary["new"], "description": config["descriptions"][1]}
    check = command("check", summary["new"], config.get("data") or "DATA", *described(new, run.path))
    steps = (("The new network from all sides", check),)
    return {
        "subject": f"{summary['old']} → {summary['new']}",
        "tables": tables,
        "chart": _differences(tables[0][1]) if tables else None,
        "conclusion": Conclusion(sentence, bad=not summary["may_replace"], good=summary["may_replace"], steps=steps),
    }


def _worse(rows: list[Row] | None) -> str:
    """The classes that lost more accuracy than chance explains, by name; those within chance are only counted."""
    fallen = sorted((row for row in rows or [] if row["new"] < row["old"]), key=lambda row: float(row["new"] - row["old"]))
    beyond = [row for row in fallen if row["difference_interval"][1] is not None and row["difference_interval"][1] < 0]
    within = len(fallen) - len(beyond)
    words = [f"{row['name']} ({100 * (row['new'] - row['old']):+.1f} points)" for row in beyond[:CLASSES_NAMED]]
    more = f" and {len(beyond) - CLASSES_NAMED} more" if len(beyond) > CLASSES_NAMED else ""
    sentence = f" Worse than before, beyond chance: {', '.join(words)}{more}." if beyond else ""
    return sentence + (f" {within} {'class is' if within == 1 else 'classes are'} lower within chance." if within else "")


def _differences(rows: list[Row]) -> charts.Chart | None:
    """New minus old, with intervals, beside the line where nothing changes."""
    points = []
    for row in rows[:GATE_ROWS]:
        low, high = row.get("difference_interval") or (None, None)
        if low is not None:
            about = {key: row[key] for key in ("name", "old", "new", "inputs")}
            points.append({**about, "difference": row["new"] - row["old"], "low": low, "high": high})
    if not points:
        return None
    axis = {"format": "+.0%", "tickCount": 6, "labelOverlap": False}
    x = charts.number("difference", "accuracy, new minus old (0: nothing changes)", axis=axis)
    zero = {"datum": 0, **{key: value for key, value in x.items() if key != "field"}}
    y = charts.names("name")
    layers = [
        {"mark": {"type": "rule", "color": charts.GREY, "strokeDash": [4, 3]}, "encoding": {"x": zero}},
        {"mark": {"type": "rule", "color": charts.COLOURS[0], "strokeWidth": 2},
         "encoding": {"y": y, "x": {**x, "field": "low"}, "x2": {"field": "high"}}},
        {"mark": {"type": "point", "filled": True, "size": 60, "color": charts.COLOURS[0]}, "encoding": {"y": y, "x": x}},
    ]  # fmt: skip
    spec = {"width": 460, "data": {"values": points}, "layer": layers}
    return charts.Chart(name="gate", spec=spec, shows=GATE_SHOWS, hides=GATE_HIDES)


NORMS = {"l1": "L1 norm", "l2": "L2 norm", "linf": "Linf norm"}
ROBUSTNESS_ROWS = 50  # inputs, the least robust first
ROBUSTNESS_SHOWS = "For each input, how far another class is by estimate, and the smallest change with which an attack got there."
ROBUSTNESS_HIDES = (
    "that no smaller change exists. The estimate is no guarantee: where a smaller change than it was found, it is wrong."
)


@section("robustness", title="How small a change fools the network", order=0, commands=("robustness",))
def _robustness(run: Run) -> Row:
    summary = run["summary"]
    rows = sorted(summary["rows"], key=lambda row: (row["score"] is None, row["score"] or 0.0))[:ROBUSTNESS_ROWS]
    chart, conclusion = _distances(rows, summary["norm"]), _robustness_conclusion(run)
    return {"subject": run["config"]["target"], "rows": rows, "chart": chart, "conclusion": conclusion}


def _distances(rows: list[Row], norm: str) -> charts.Chart | None:
    """Estimate and smallest change of each input, the least robust first."""
    kinds = {"score": "estimate", "upper": "smallest change found"}
    points = [
        {"input": str(row["position"]), "class": row["class"], "what": words, "distance": row[key]}
        for row in rows
        for key, words in kinds.items()
        if row[key] is not None
    ]
    if not points:
        return None
    order = list(dict.fromkeys(point["input"] for point in points))
    shapes = {"domain": list(kinds.values()), "range": [charts.COLOURS[0], charts.COLOURS[1]]}
    encoding = {
        "x": charts.names("input", "input, the least robust first", sort=order, axis={"labelOverlap": True, "labelAngle": 0}),
        "y": charts.number("distance", f"distance to another class, {norm}"),
        "color": charts.names("what", scale=shapes),
        "shape": charts.names("what", scale={"domain": shapes["domain"]}),
    }
    mark = {"type": "point", "filled": True, "size": 50}
    spec = {"width": 560, "height": 200, "data": {"values": points}, "mark": mark, "encoding": encoding}
    return charts.Chart(name="robustness", spec=spec, shows=ROBUSTNESS_SHOWS, hides=ROBUSTNESS_HIDES)


def _robustness_conclusion(run: Run) -> Conclusion:
    """The estimate, the bound from the other side, and how often the two contradict each other."""
    summary = run["summary"]
    changes = sorted(row["upper"] for row in summary["rows"] if row["upper"] is not None)
    norm = NORMS.get(summary["norm"], summary["norm"])
    where = f"where one did, on {len(changes)} of {summary['inputs']:,} inputs"
    attacks = (
        f"Attacks change the answer with a change of {sum(changes) / len(changes):.3g} ({norm}; mean {where}), on the weakest "
        f"with {changes[0]:.3g}."
        if changes
        else f"No attack changed the answer on {summary['inputs']:,} inputs."
    )
    score = summary["score"]
    estimate = (
        "" if score is None else f" The estimated least change, a mean over the same inputs, is {score:.3g}; it is no proof."
    )
    wrong = f" On {summary['contradicted']} a smaller change than the estimate was found." if summary["contradicted"] else ""
    steps = (("Changes that do it, as pictures", command("attack", run["config"]["target"], run["config"]["data"])),)
    return Conclusion(f"{attacks}{estimate}{wrong}", steps=steps)
