"""The section of a run of `score`: how scores are distributed, the first picks, and what was set aside."""

from __future__ import annotations

from neurotest.jobs.stored import described
from neurotest.report.section import Conclusion, Row, command, plural, section
from neurotest.runs.store import Run

SHOWN = 20


@section("score-files", title="Scores", order=0, commands=("score",), template="scores.html.j2")
def _scores(run: Run) -> Row:
    summary, config = run["summary"], run["config"]
    methods = [{"name": name, **one, "picks": _picks(one)} for name, one in summary["methods"].items()]
    sentence = f"{plural(summary['scored'], 'input')} of {summary['inputs']:,} have scores"
    if summary["set_aside"]:
        sentence += f"; {summary['inputs'] - summary['scored']:,} could not be scored and are set aside"
    method, options = next(iter(summary["methods"])), described(config, run.path)
    select = command("select", config["target"], config["data"], "--method", method, *options)
    return {
        "subject": config["data"] or "",
        "methods": methods,
        "aside": summary["set_aside"][:SHOWN],
        "conclusion": Conclusion(
            f"{sentence}.", steps=(("Look at the first picks as pictures, in a pool that fits memory", select),)
        ),
    }


def _picks(one: Row) -> list[Row]:
    picks = zip(one["ids"], one["scores"], strict=True)
    return [{"id": name, "score": value} for name, value in list(picks)[:SHOWN]]
