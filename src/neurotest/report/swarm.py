"""Sections of a swarm: its faults beside those of its controls, and how it went."""

from __future__ import annotations

from neurotest.campaign.swarm import join_courses
from neurotest.generate.swarm.controls import CONTROL_NAMES
from neurotest.generate.swarm.engine import Moment
from neurotest.report import charts
from neurotest.report.section import Conclusion, Row, command, joined, plural, section
from neurotest.runs.store import Run

COMMANDS = ("swarm",)
POINTS = 200
COURSE = "How many seeds fail, and how high the best fitness of each seed has climbed, over evaluations per seed."
COURSE_HIDES = "whether more evaluations would break the others, or how the controls went (their ends are in the table)."


@section("swarm", title="Inputs that a swarm search breaks", order=0, commands=COMMANDS)
def swarm(run: Run) -> Row:
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
    conclusion = Conclusion(f"{sentence}{_beside(summary)}", bad=bad, steps=steps)
    return {"subject": run["config"]["target"], "conclusion": conclusion}


def _beyond(row: Row, other: Row) -> bool:
    """Whether the interval of the first rate lies above that of the second."""
    return bool(row["rate_interval"][0] > other["rate_interval"][1])


def _beside(summary: Row) -> str:
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


@section("controls", title="Beside controls on the same seeds", order=10, commands=COMMANDS)
def controls(run: Run) -> Row:
    summary = run["summary"]
    rows = [{**summary, "name": f"swarm, {summary['fitness']}", "failed": summary["roots"]}]
    return {"rows": rows + [{**row, "name": CONTROL_NAMES.get(name, name)} for name, row in summary["controls"].items()]}


@section("swarm-growth", title="How it went", order=20, commands=COMMANDS, holds=("swarm",), template="chart.html.j2")
def swarm_growth(run: Run) -> Row | None:
    """Seeds that fail, and the mean best fitness, against evaluations per seed."""
    course = join_courses([[Moment(*moment) for moment in moments] for moments in run["swarm"]["courses"]])
    if not course:
        return None
    seeds = run["summary"]["seeds"]
    rows = [
        {"evaluations": moment.evaluations, "what": what, "value": value}
        for moment in (*course[:: max(1, len(course) // POINTS)], course[-1])
        for what, value in (("share of seeds that fail", moment.failed / seeds), ("mean best fitness", moment.fitness))
    ]
    line = charts.line(charts.number("evaluations", "evaluations per seed, mean"), charts.number("value"), 320, 160)
    spec = charts.panels(rows, "what", line, own="y", sort="descending")
    return {"charts": [charts.Chart(name="course", spec=spec, shows=COURSE, hides=COURSE_HIDES)]}
