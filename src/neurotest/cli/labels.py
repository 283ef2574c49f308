"""Picks and labels for people and their tools: `neurotest labels`, `neurotest export`, and rounds of adaptive selection."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from neurotest.cli import options as opt
from neurotest.cli import show
from neurotest.errors import BadInput, command
from neurotest.settings.select import ExportSettings, LabelsSettings

ROWS_SHOWN = 20  # rows of a table
ACTIONS = {
    "show": "neurotest labels RUN show",
    "add": "neurotest labels RUN add FILE",
    "undo": "neurotest labels RUN undo [FILE_OR_POSITION]",
    "history": "neurotest labels RUN history",
}


@opt.command(LabelsSettings, on="")
def labels(
    run: Annotated[Path, typer.Argument(help="An adaptive selection.")],
    action: Annotated[
        str,
        typer.Argument(
            help="add: take labels from a file. show: those that count. undo: take back what was added last, or the label of one "
            "input. history: every label there ever was."
        ),
    ] = "show",
    file: Annotated[
        str | None,
        typer.Argument(
            help="add: CSV (file,label), JSON lines, Label Studio JSON, an exported folder or one per class. undo: an input, by "
            "the name of its file or its position."
        ),
    ] = None,
    *,
    call: opt.Call,
) -> opt.Result:
    """Add labels from a file to an adaptive selection. `neurotest select --resume RUN` then proposes the next batch."""
    if action not in ACTIONS:
        raise BadInput(
            "unknown-name", "action", f"{action!r}: expected one of {', '.join(f'`{line}`' for line in ACTIONS.values())}."
        )
    settings = LabelsSettings.of(call.settings)
    for name in ("replace", "confirmed"):
        if getattr(settings, name) and action != "add":
            raise BadInput("conflict", name, f"--{name} goes with `{ACTIONS['add']}`: leave it out.")
    if action in ("show", "history"):
        if file is not None:
            raise BadInput("conflict", "file", f"{action} {file}: `{ACTIONS[action]}` takes no file; `{ACTIONS['add']}` does.")
        return _shown(run, history=action == "history")
    if action == "undo":
        return _undone(run, file, settings.by)
    if file is None:
        raise BadInput(
            "missing",
            "file",
            "add: which file? `neurotest labels RUN add FILE`, with the columns file (or content, or position) and label.",
        )
    from neurotest.select.adaptive.labelling import add_labels

    result = add_labels(run, file, **vars(settings))
    return result, lambda: print(_added(result, run))


def _added(result: dict[str, Any], run: Path) -> str:
    counts = [f"{result['added']} labels added"]
    counts += [f"{result[name]} {words}" for name, words in (
        ("replaced", "replaced"), ("known", "known before"), ("skipped", "for files that cannot be read, left out")
    ) if result[name]]  # fmt: skip
    pending = result["pending"]
    more = f"{pending} inputs of round {result['round']} have none yet; " if pending else ""
    return f"{', '.join(counts)}; {result['labels']} in all; {more}next: {command('select', '--resume', run)}"


def _undone(path: Path, which: str | None, by: str) -> opt.Result:
    from neurotest.select.adaptive.labelling import undo

    result = undo(path, which, by)
    rows = [[_input(one), one["label"], one["now"] or "none"] for one in result["inputs"]]
    title = f"{result['undone']} labels taken back, {result['labels']} count"
    return result, lambda: show.table(title, ["input", "taken back", "now"], rows[:ROWS_SHOWN])


def _input(one: dict[str, Any]) -> str:
    """An input for people: its position, and the name of its file where it has one."""
    return str(one["position"]) if one.get("file") is None else f"{one['position']} {one['file']}"


def _shown(path: Path, *, history: bool) -> opt.Result:
    from neurotest.select.adaptive.labelling import listed

    rows = listed(path, history=history)
    content = {"run": str(path), "labels": rows}
    columns = ["input", "label", "predicted", "by", *(["at", "row", "state"] if history else [])]
    shown = [
        [_input(r), r["label_name"], r["predicted_name"], r["by"], *([r["at"], str(r["n"]), r["state"]] if history else [])]
        for r in rows
    ]
    return content, lambda: show.table(f"{len(rows)} {'rows' if history else 'labels'}", columns, shown)


def stands(run: Path) -> opt.Result:
    """Where an adaptive selection stands."""
    from neurotest.select.adaptive.rounds import status

    result = status(run)
    return result, lambda: _tell_status(result)


def _tell_status(s: dict[str, Any]) -> None:
    rows = [
        [
            str(r["round"]),
            str(r["size"]),
            str(r["labels"]),
            str(r["faults"]),
            show.number(r["expected"], ".1f"),
            str(r["pending"]),
        ]
        for r in s["rounds"]
    ]
    show.table(f"{s['method']}: {len(rows)} rounds", ["round", "inputs", "labels", "faults", "expected", "pending"], rows)
    unclear = f" ({s['unclear']} unclear)" if s["unclear"] else ""
    print(f"{s['labels']} labels{unclear} of {s['pool']:,} inputs, {s['faults']} faults", end="")
    if s["random"] is None:
        print()
    else:
        random, (low, high) = s["random"]["faults"], s["random"]["faults_interval"]
        verdict = "more than random" if s["beats_random"] else "no more than random may give"
        print(f"; as many random labels: about {random:.1f} ({low:.0f} .. {high:.0f}): {verdict}; ", end="")
        print(f"deepgini's first: about {s['deepgini']['faults']:.0f}")
    low, high = s["remaining_interval"]
    basis = "the model's guess" if s["remaining_by"] == "model" else f"by {s['remaining_by']}"
    print(f"faults left: about {s['remaining']:.0f} ({low:.0f} .. {high:.0f}, {basis})")
    if s["suspects"]:
        print("labels that look wrong: " + ", ".join(f"{_input(one)} ({one['label']})" for one in s["suspects"][:20]))
    print(s["advice"] + ("" if s["command"] is None else f" Next: {s['command']}"))


def resume_selection(run: Path, budget: str | None, pool: str | None, files: int | None) -> opt.Result:
    """Propose the next batch of an adaptive selection."""
    from neurotest.runs.store import Run
    from neurotest.select.adaptive.rounds import resume
    from neurotest.stats.faults import budget as read_budget

    size = None
    if budget is not None:
        with Run.open(run) as opened:
            size = read_budget(budget, len(opened.inputs()))
    result = resume(run, size, pool=pool, files=files)
    return result, lambda: _tell_round(result)


def _tell_round(proposal: dict[str, Any]) -> None:
    if proposal["stop"]:
        print(f"stop: the next batch is expected to hold {100 * proposal['expected_rate']:.1f} % faults.")
        return
    again = ", proposed before and not labelled yet" if proposal["again"] else ""
    named = any(proposal["files"])
    rows = zip(
        *(proposal[key] for key in ("indices", "files" if named else "contents", "scores", "predicted_names")), strict=True
    )
    shown = [[str(p), word or "", f"{chance:.3f}", predicted] for p, word, chance, predicted in list(rows)[:20]]
    columns = ["position", "file" if named else "content", "fault probability", "predicted"]
    show.table(f"round {proposal['round']}: label these {len(proposal['indices'])}{again}", columns, shown)
    if (last := proposal["last_round"]) is not None:
        c = proposal["compared"]
        promised = "" if last["expected"] is None else f", expected were {last['expected']:.1f}"
        print(f"the last batch held {last['faults']} faults in {last['labels']} labels{promised}")
        gain = 100 * (c["faults"] - c["deepgini"]) / max(c["labels"], 1)
        so_far = f"so far {c['faults']} faults in {c['labels']} labels"
        print(f"{so_far}, deepgini's first would hold about {c['deepgini']:.0f}: {gain:+.1f} points")
    if proposal["suspects"]:
        pairs = zip(proposal["suspects"][:20], proposal["suspect_files"], strict=False)
        print("labels that look wrong: " + ", ".join(_input({"position": p, "file": file}) for p, file in pairs))


@opt.command(ExportSettings, on="")
def export(
    run: Annotated[Path, typer.Argument(help="A run of `neurotest select`; for --format faults, of fuzz or merge.")],
    form: Annotated[
        str, typer.Option("--format", help="csv, folder (one per class the network says) or label-studio; of campaigns faults")
    ],
    out: Annotated[Path, typer.Option("--out", help="File or folder to write.")],
    *,
    call: opt.Call,
) -> opt.Result:
    """Export picks as a table, a folder of images or Label Studio tasks, or faults as a file of recipes.

    Of an adaptive selection: the inputs of its newest round that have no label yet. Of a campaign (--format faults): a small file
    of recipes without images, which pytest and `neurotest gate` run again.
    """
    if form == "faults":
        return _faults(run, out, call.settings)
    if "per_family" in call.settings:
        raise BadInput("conflict", "per_family", "--per-family goes with --format faults: leave it out.")
    from neurotest.select.exchange import export as write

    result = write(run, form, out, **call.settings)

    def print_result() -> None:
        rounds = result["rounds"]
        of = "" if not rounds else f" of round {rounds[-1]}" if len(rounds) == 1 else f" of rounds {rounds[0]} to {rounds[-1]}"
        print(f"{result['exported']} picks{of} in {result['out']}")
        if result["without_picture"]:
            print(f"{result['without_picture']} picks have no picture in the run and are left out (select with more --files).")

    return result, print_result


def _faults(run: Path, out: Path, settings: dict[str, Any]) -> opt.Result:
    if settings.keys() - {"per_family"}:
        raise BadInput("conflict", "format", "--method and --all are of selections: --format faults takes neither.")
    from neurotest.campaign.faults import export_faults

    result = export_faults(run, out, **settings)

    def print_result() -> None:
        print(f"{result['exported']} faults of {result['families']} families in {result['out']}")
        if result["left_out"]:
            print(
                f"{result['left_out']} faults follow no rule, are not of 8 bits or were not kept as images, and cannot be made "
                "again: left out."
            )

    return result, print_result
