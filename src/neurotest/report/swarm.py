"""Sections of a swarm: its faults beside those of its controls, and how it went."""

from __future__ import annotations

from neurotest.campaign.swarm import join_courses
from neurotest.generate.swarm.controls import NAMES
from neurotest.generate.swarm.engine import Moment
from neurotest.report import charts
from neurotest.report.section import Conclusion, Row, section
from neurotest.runs.store import Run

COMMANDS = ("swarm",)
POINTS = 200


@section("swarm", title="Swarm", order=0, commands=COMMANDS)
def swarm(run: Run) -> Row:
    summary, name, without = run["summary"], run.path.name, "neurons" not in run
    controls = ", ".join(f"{NAMES.get(key, key)} {row['failed']}" for key, row in summary["controls"].items())
    sentence = f"{summary['roots']} of {summary['seeds']} seeds fail, in {summary['families']} fault families"
    steps = (
        ("The smallest change of each family", f"neurotest shrink {name}"),
        ("Which neurons cause them", f"neurotest neurons {name}"),
        ("Natural, diverse, fair?", f"neurotest evaluate {name}"),
    )
    conclusion = Conclusion(
        f"{sentence}{f'; on the same seeds: {controls}' if controls else ''}.", bad=summary["faults"] > 0, steps=steps
    )
    return {"subject": run["config"]["target"], "without_neurons": without, "conclusion": conclusion}


@section("controls", title="Beside controls on the same seeds", order=10, commands=COMMANDS)
def controls(run: Run) -> Row:
    summary = run["summary"]
    rows = [{**summary, "name": f"swarm, {summary['fitness']}", "failed": summary["roots"]}]
    return {"rows": rows + [{**row, "name": NAMES.get(name, name)} for name, row in summary["controls"].items()]}


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
    return {"charts": [charts.svg(charts.panels(rows, "what", line, own="y", sort="descending"))]}
