"""Sections of `suspects`, labels that look wrong as images, and of `score`: the first picks, and what was set aside."""

from __future__ import annotations

from neurotest.jobs.stored import described
from neurotest.report import pictures
from neurotest.report.section import Conclusion, Row, command, plural, section
from neurotest.runs.store import Run

SUSPECTS_SHOWN = 40
SCORES_SHOWN = 20


@section("suspects", title="Labels that look wrong", order=0, commands=("suspects",))
def _suspects(run: Run) -> Row:
    summary, config = run["summary"], run["config"]
    files = {file.position: file.file for file in run.files("picked")}
    rows = [
        {**row, "picture": pictures.of_file(files.get(row["index"])), "name": row.get("name")}
        for row in summary["suspects"][:SUSPECTS_SHOWN]
    ]
    low, high = (100 * limit for limit in summary["wrong_share_interval"])
    sentence = (
        f"About {100 * summary['wrong_share']:.1f} % ({low:.1f} .. {high:.1f}) of {summary['inputs']:,} labels look wrong; "
        f"{summary['count']:,} are worth a look."
    )
    measure = ("With the labels fixed, measure again", command("check", config["target"], config["data"]))
    conclusion = Conclusion(sentence, bad=low > 0, steps=(measure,) if summary["count"] else ())
    return {"subject": config["data"] or "", "rows": rows, "total": len(summary["suspects"]), "conclusion": conclusion}


@section("score-files", title="Scores", order=0, commands=("score",), template="scores.html.j2")
def _scores(run: Run) -> Row:
    summary, config = run["summary"], run["config"]
    methods = []
    for name, one in summary["methods"].items():
        picks = list(zip(one["ids"], one["scores"], strict=True))[:SCORES_SHOWN]
        methods.append({"name": name, **one, "picks": [{"id": pick, "score": score} for pick, score in picks]})
    sentence = f"{plural(summary['scored'], 'input')} of {summary['inputs']:,} have scores"
    if summary["set_aside"]:
        sentence += f"; {summary['inputs'] - summary['scored']:,} could not be scored and are set aside"
    method, options = next(iter(summary["methods"])), described(config, run.path)
    select = command("select", config["target"], config["data"], "--method", method, *options)
    steps = (("Look at the first picks as images, in a pool that fits memory", select),)
    aside, conclusion = summary["set_aside"][:SCORES_SHOWN], Conclusion(f"{sentence}.", steps=steps)
    return {"subject": config["data"] or "", "methods": methods, "aside": aside, "conclusion": conclusion}
