"""The page of a swarm: what it found beside its controls, how it went, the families with images, and the neurons, if asked."""

from __future__ import annotations

from typing import Any

from neurotest.campaign.families import families
from neurotest.campaign.swarm import joined
from neurotest.generate.swarm.controls import NAMES
from neurotest.generate.swarm.engine import Moment
from neurotest.report import charts, fuzz
from neurotest.runs.store import Run

POINTS = 200


def render(run: Run) -> str:
    from jinja2 import Environment, PackageLoader

    found, summary = families(run.path), run["summary"]
    known = set(run.keys())
    courses = run["swarm"]["courses"] if "swarm" in known else []
    course = joined([[Moment(*one) for one in course] for course in courses])
    environment = Environment(loader=PackageLoader("neurotest.report"), autoescape=True)
    rows = [{**summary, "name": f"swarm, {summary['fitness']}", "failed": summary["roots"]}]
    rows += [{**one, "name": NAMES.get(name, name)} for name, one in summary["controls"].items()]
    return environment.get_template("swarm.html.j2").render(
        config=run["config"],
        created=run["created"],
        version=run["version"],
        summary=summary,
        rows=rows,
        families=fuzz._rows(run, found),
        total=len(found.families),
        growth=charts.svg(growth(course, summary["seeds"])) if course else "",
        neurons=run["neurons"] if "neurons" in known else None,
    )


def growth(course: tuple[Moment, ...], seeds: int) -> dict[str, Any]:
    """Seeds that fail, and the mean best fitness, against evaluations per seed."""
    step = max(1, len(course) // POINTS)
    rows = [
        {"evaluations": moment.evaluations, "what": what, "value": value}
        for moment in (*course[::step], course[-1])
        for what, value in (("share of seeds that fail", moment.failed / seeds), ("mean best fitness", moment.fitness))
    ]
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "config": {"font": "sans-serif", "view": {"stroke": None}},
        "data": {"values": rows},
        "facet": {"field": "what", "type": "nominal", "title": None, "sort": "descending"},
        "resolve": {"scale": {"y": "independent"}},
        "spec": {
            "width": 320,
            "height": 160,
            "mark": {"type": "line", "color": charts.COLOURS[0]},
            "encoding": {
                "x": {"field": "evaluations", "type": "quantitative", "title": "evaluations per seed, mean"},
                "y": {"field": "value", "type": "quantitative", "title": None},
            },
        },
    }
