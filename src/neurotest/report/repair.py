"""Sections of a repair: before and after beside its controls, and what was fixed and what broke as pictures."""

from __future__ import annotations

from typing import Any

from neurotest.jobs.stored import described
from neurotest.repair.work import WORDS
from neurotest.report import charts, pictures
from neurotest.report.section import Conclusion, Row, command, plural, section
from neurotest.runs.store import Run

COMMANDS = ("repair",)
SHOWS = (
    "How many inputs of each set are answered right before, after the repair, and by networks that the controls trained alike."
)
HIDES = "whether a difference is more than chance; the intervals in the table say it."


@section("repair", title="Repair", order=0, commands=COMMANDS)
def _repair(run: Run) -> Row:
    summary = run["summary"]
    controls = summary["controls"]
    rows = [
        {"name": WORDS.get(name, name), **numbers, "controls": [controls[control][name] for control in controls]}
        for name, numbers in _ordered(summary["sets"])
    ]
    return {
        "subject": summary["target"],
        "rows": rows,
        "sides": _sides(summary),
        "names": list(controls),
        "conclusion": _conclusion(run),
        "chart": _accuracies(rows, list(controls)),
    }


def _accuracies(rows: list[Row], controls: list[str]) -> charts.Chart:
    """Accuracy of every set before, after, and of the networks that the controls made."""
    points = []
    for row in rows:
        values = {"before": row["before"], "repaired": row["after"]}
        values |= {name: one["after"] for name, one in zip(controls, row["controls"], strict=True)}
        points += [
            {"set": row["name"], "network": name, "accuracy": value} for name, value in values.items() if value is not None
        ]
    networks = ["before", "repaired", *controls]
    colours = ["#555555", charts.COLOURS[1], *(charts.COLOURS[2 + i % 4] for i in range(len(controls)))]
    encoding = {
        "y": charts.names("set", sort=[row["name"] for row in rows], axis={"labelLimit": 260}),
        "x": charts.number("accuracy", "accuracy", axis={"format": ".0%"}, scale={"domain": [0, 1]}),
        "color": charts.names("network", sort=networks, scale={"domain": networks, "range": colours}),
        "shape": charts.names("network", sort=networks, scale={"domain": networks}),
    }
    mark = {"type": "point", "filled": True, "size": 70, "opacity": 0.85}
    spec = {"width": 420, "height": {"step": 24}, "data": {"values": points}, "mark": mark, "encoding": encoding}
    return charts.Chart(name="repair", spec=spec, shows=SHOWS, hides=HIDES)


def _conclusion(run: Run) -> Conclusion:
    summary = run["summary"]
    clean, accepted = summary["sets"]["clean"], summary["accepted"]
    refused = "" if accepted else "Refused: the new weights break more of the holdout than they fix. "
    fixed = plural(clean["fixed"], "input was", "inputs were")
    sentence = (
        f"{refused}Clean accuracy {100 * clean['before']:.1f} % before, {100 * clean['after']:.1f} % after; of the holdout "
        f"{fixed} fixed and {clean['broken']} broken.{_mended(summary)}{_beside(summary)}"
    )
    data = run["config"].get("holdout") or "DATA"
    deeper = ("The repaired network from all sides", command("check", f"run:{run.path.name}", data))
    pair = (run["config"]["target"], f"run:{run.path.name}")
    may_replace = ("May it replace the old one?", command("gate", *pair, data, *described(run["config"], run.path)))
    kept = accepted and bool(run["config"].get("no_regression"))
    return Conclusion(sentence, bad=not accepted, good=kept, steps=(deeper, may_replace) if accepted else ())


def _mended(summary: Row) -> str:
    """How many of the faults that nothing was trained with are answered right now, beside the best control."""
    faults = summary["sets"].get("faults-seen")
    if not faults or not faults["inputs"]:
        return ""
    beside = {name: sets["faults-seen"]["after"] for name, sets in summary["controls"].items() if "faults-seen" in sets}
    best = max(beside, key=lambda name: float(beside[name])) if beside else None
    chance = "" if best is None else f" (best control, {best}: {100 * beside[best]:.0f} %)"
    return f" Of {faults['inputs']:,} held-out faults {100 * faults['after']:.0f} % are answered right now{chance}."


def _compared(summary: Row) -> dict[str, list[str]]:
    """Sets on which the repaired network is better than every control, worse than one, or neither, by the 95 % intervals."""
    sides: dict[str, list[str]] = {"better": [], "open": [], "worse": []}
    for name, _ in _ordered(summary["sets"]):
        limits = [sets[name].get("gain_interval") for sets in summary["controls"].values() if name in sets]
        pairs = [pair for pair in limits if pair and None not in pair]
        if pairs:
            lost, won = any(pair[1] < 0 for pair in pairs), all(pair[0] > 0 for pair in pairs)
            sides["worse" if lost else "better" if won else "open"].append(name)
    return sides


def _sides(summary: Row) -> list[tuple[str, str]]:
    heads = {
        "better": "Better than every control",
        "open": "Not clearly better than the best control",
        "worse": "Worse than a control",
    }
    return [
        (heads[side], "; ".join(WORDS.get(name, name) for name in names)) for side, names in _compared(summary).items() if names
    ]


def _beside(summary: Row) -> str:
    """On how many sets it is more than its controls, and which control is better where one is."""
    sides = _compared(summary)
    total = sum(map(len, sides.values()))
    if not total:
        return ""
    text = f" It beats every control on {len(sides['better'])} of {total} sets"
    if sides["worse"]:
        stronger = [
            name
            for name, sets in summary["controls"].items()
            if any((sets.get(one, {}).get("gain_interval") or [0, 0])[1] < 0 for one in sides["worse"])
        ]
        words = "; ".join(WORDS.get(name, name) for name in sides["worse"])
        text += f"; control {', '.join(stronger)} is better on {len(sides['worse'])} ({words})"
    return text + (f"; on {len(sides['open'])} it is not clearly better than the best control." if sides["open"] else ".")


def _ordered(sets: dict[str, Any]) -> list[tuple[str, Any]]:
    """A run stores keys by the alphabet; data come before attacks here."""
    known = list(WORDS)
    return sorted(sets.items(), key=lambda one: (known.index(one[0]) if one[0] in known else len(known), one[0]))


@section("repair-flips", title="What changed", order=10, commands=COMMANDS)
def _repair_flips(run: Run) -> Row | None:
    classes = run["classes"]
    files = {(file.position, file.role): file.file for file in run.files()}
    groups: dict[str, list[Row]] = {"fixed": [], "broken": []}
    for row in run.inputs():
        role = str(row.extra["role"])
        numbers = (row.label, row.predicted, int(row.extra["after"]))
        label, before, after = (classes[n] if n is not None and 0 <= n < len(classes) else n for n in numbers)
        picture = pictures.of_file(files.get((row.position, role)))
        about = {"label": label, "before": before, "after": after, "set": WORDS.get(row.extra["set"], row.extra["set"])}
        groups[role].append({"picture": picture, "index": row.extra["index"], **about})
    return {"groups": groups} if any(groups.values()) else None
