"""Picks and labels for people and their tools: `neurotest labels`, `neurotest export`, and rounds of adaptive selection."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from neurotest.cli import options as opt
from neurotest.cli import show
from neurotest.errors import BadInput


@opt.reports_result
def labels(
    run: Annotated[Path, typer.Argument(help="An adaptive selection.")],
    action: Annotated[str, typer.Argument(help="add: take labels from a file. show: those there are.")] = "show",
    file: Annotated[Path | None, typer.Argument(help="CSV, Label Studio JSON or an exported folder.")] = None,
    by: Annotated[str, typer.Option("--by", help="Who labelled.")] = "",
) -> opt.Result:
    """Bring labels into an adaptive selection; `neurotest select --resume RUN` then proposes the next batch."""
    if action not in ("add", "show"):
        raise BadInput(f"{action!r}: expected `neurotest labels RUN add FILE` or `neurotest labels RUN show`.")
    if action == "show":
        return _shown(run)
    if file is None:
        raise BadInput("add: which file? `neurotest labels RUN add FILE`, with the columns label and content or position.")
    from neurotest.select.adaptive.rounds import add_labels

    result = add_labels(run, file, by)
    sentence = f"{result['added']} labels added, {result['labels']} in all; next: neurotest select --resume {run}"
    return result, lambda: print(sentence)


def _shown(path: Path) -> opt.Result:
    from neurotest.runs.store import Run

    with Run.open(path) as run:
        rows = run.labels()
        predicted = {row.position: row.predicted for row in run.inputs()}
    content = {"run": str(path), "labels": [{**row._asdict(), "predicted": predicted[row.position]} for row in rows]}
    shown = [[str(r.position), "unclear" if r.label is None else str(r.label), str(predicted[r.position]), r.by] for r in rows]
    return content, lambda: show.table(f"{len(rows)} labels", ["position", "label", "predicted", "by"], shown)


def go_on(run: Path, budget: str | None, pool: str | None, files: int | None) -> opt.Result:
    """Propose the next batch of an adaptive selection."""
    from neurotest.runs.store import Run
    from neurotest.select.adaptive.rounds import resume
    from neurotest.stats.faults import budget as read_budget

    size = None
    if budget is not None:
        with Run.open(run) as opened:
            size = read_budget(budget, len(opened.inputs()))
    result = resume(run, size, pool=pool, files=files)
    return result, lambda: tell_round(result)


def tell_round(proposal: dict[str, Any]) -> None:
    if proposal["stop"]:
        print(f"stop: the next batch is expected to hold {100 * proposal['expected_rate']:.1f} % faults.")
        return
    again = ", proposed before and not labelled yet" if proposal["again"] else ""
    rows = zip(proposal["indices"], proposal["contents"], proposal["scores"], proposal["predicted"], strict=True)
    shown = [[str(p), content, f"{chance:.3f}", str(predicted)] for p, content, chance, predicted in list(rows)[:20]]
    columns = ["position", "content", "fault probability", "predicted"]
    show.table(f"round {proposal['round']}: label these {len(proposal['indices'])}{again}", columns, shown)
    if (last := proposal["last_round"]) is not None:
        c = proposal["compared"]
        promised = "" if last["expected"] is None else f", expected were {last['expected']:.1f}"
        print(f"the last batch held {last['faults']} faults in {last['labels']} labels{promised}")
        gain = 100 * (c["faults"] - c["deepgini"]) / max(c["labels"], 1)
        so_far = f"so far {c['faults']} faults in {c['labels']} labels"
        print(f"{so_far}, deepgini's first would hold about {c['deepgini']:.0f}: {gain:+.1f} points")
    if proposal["suspects"]:
        print(f"labels that look wrong: {', '.join(map(str, proposal['suspects'][:20]))}")


@opt.reports_result
def export(
    run: Annotated[Path, typer.Argument(help="A run of `neurotest select`.")],
    form: Annotated[str, typer.Option("--format", help="csv, folder (one per class the network says) or label-studio")],
    out: Annotated[Path, typer.Option("--out", help="File or folder to write.")],
    method: Annotated[str | None, typer.Option("--method", help="Whose picks (default: the run's first method).")] = None,
) -> opt.Result:
    """Hand out the picks: a table, a folder of pictures, or Label Studio tasks with the network's guess and the score."""
    from neurotest.select.exchange import export as write

    result = write(run, form, out, method=method)

    def print_result() -> None:
        print(f"{result['exported']} picks in {result['out']}")
        if result["without_picture"]:
            print(f"{result['without_picture']} picks have no picture in the run and are left out (select with more --files).")

    return result, print_result
