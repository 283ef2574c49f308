"""`neurotest select`: label these first."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from neurotest.cli import options as opt
from neurotest.errors import BadInput
from neurotest.settings import declared
from neurotest.settings.select import SelectSettings

if TYPE_CHECKING:
    from neurotest.select import Selection
    from neurotest.select.selection import Comparison, Quality
    from neurotest.stats.bootstrap import Interval

ROUNDS_SHOWN = 8  # rounds of a table
LEAST_SHARE = 0.005  # shares below are left out of the table
NUMBERS = (
    "fdr", "fdr_interval.*", "relative_fdr", "fdr_ceiling", "apfd", "apfd_interval.*", "ftcr", "ftcr_auc", "random.*", "accuracy",
    "accuracy_*", "near_duplicates*", "prior.*", "rounds.*", "methods.*", "pool", "budget", "indices.*", "scores.*",
    "predicted.*", "in_training.*",
)  # fmt: skip


@opt.command(SelectSettings, workers=True, numbers=NUMBERS, unless=("resume", "status"))
def select(
    target: Annotated[
        str | None, typer.Argument(help="zoo:NAME, py:FILE_OR_MODULE:CALLABLE, pt2:, onnx:, timm:, torchvision:, hf:")
    ] = None,
    pool: Annotated[
        str | None,
        typer.Argument(
            help="Candidates: npz:FILE#x,y  dir:FOLDER  dir:FOLDER#LABELS.csv  idx:FOLDER/PREFIX  zoo:NAME/SPLIT, "
            "with [:N] for a slice"
        ),
    ] = None,
    plan: opt.Plan = False,
    *,
    call: opt.Call,
) -> opt.Result:
    """Choose which inputs to label first: those the network probably misclassifies."""
    from neurotest.cli import show

    status, resume = (call.settings.pop(name, None) for name in ("status", "resume"))
    if status is not None:
        from neurotest.cli.labels import stands

        if target is not None or call.typed - {"status"}:
            raise BadInput("conflict", "status", "--status RUN stands alone: it looks at the run and changes nothing.")
        return stands(status)
    if resume is not None:
        return _resumed(resume, target, pool, call)
    if target is None or pool is None:
        raise BadInput(
            "missing", "target", "say which: `neurotest select TARGET POOL`, or `neurotest select --resume RUN`, or --status RUN."
        )
    from neurotest.select import compare
    from neurotest.select.api import default_method
    from neurotest.target import load

    loaded = load(target, **call.description)
    call.settings.setdefault("methods", [default_method(loaded)])
    if plan:
        from neurotest.select.forecast import forecast_select

        forecast = forecast_select(loaded, pool, **call.settings)
        return forecast.to_dict(), lambda: show.forecast(forecast)
    with call.ticking("scoring") as progress:
        selections = compare(loaded, pool, **call.settings, progress=progress)
    content = selections.to_dict()
    return content, lambda: tell(selections, content["run"], loaded.classes)


def _resumed(run: Path, target: str | None, pool: str | None, call: opt.Call) -> opt.Result:
    """The next batch of an adaptive selection. Its settings stay; the one argument, if there is one, is its pool."""
    from neurotest.cli.labels import resume_selection

    known = declared(SelectSettings)
    typed = [known[name].option for name in known if name in call.typed - {"resume", "budget", "files"}]
    typed += [f"--{name.replace('_', '-')}" for name in call.description]
    if typed:
        raise BadInput(
            "conflict",
            typed[0].removeprefix("--").replace("-", "_"),
            f"{typed[0]} with --resume: the selection goes on with the network, the settings and the scores it was started with. "
            "Leave it out.",
        )
    if target is not None and pool is not None:
        raise BadInput(
            "conflict", "resume", "select --resume RUN [POOL]: it needs no network, and the pool only if it was moved."
        )
    return resume_selection(run, call.settings.get("budget"), target, call.settings.get("files"))


def tell(selections: Comparison, run: str | Path | None, classes: Sequence[str] | None = None) -> None:
    from neurotest.cli import show

    first, *_ = selections.values()
    _tell_prior(selections)
    _tell_rounds(selections)
    judged = any(selection.quality is not None for selection in selections.values())
    if judged:
        show.table(*_quality_table(selections))
    elif first.estimate is None:
        picks = first.table()[:20]
        rows = [[_cell(name, value, classes) for name, value in row.items()] for row in picks]
        show.table(f"label these first ({first.method}: {first.picked} of {len(first.order):,})", list(picks[0]), rows)
    for name, selection in selections.items():
        if selection.estimate is not None:
            print(estimated(name, selection))
        if (near := selection.near) is not None:
            here, plain, chance = (_percent(share) for share in (near.spread, near.plain, near.random))
            print(f"near duplicates by {name}: {here} of the picks, {plain} without --spread, {chance} of a random batch")
    if not judged:
        for name, reason in selections.errors.items():
            print(f"{name} did not run: {reason}")
    if first.in_training:
        at = first.in_training[0]
        named = f"{at} {first.files[at]}" if first.files is not None else str(at)
        print(f"{len(first.in_training)} candidates stand in the training data (first: {named}).")
    if run:
        print(f"picked inputs and all scores: {run}")


def _cell(name: str, value: Any, classes: Sequence[str] | None) -> str:
    if name == "predicted" and classes is not None:
        return str(classes[value])
    return f"{value:.4g}" if name == "score" else str(value)


def estimated(name: str, selection: Selection) -> str:
    """The accuracy that follows from the labelled picks."""
    assert selection.estimate is not None
    e = selection.estimate
    truth = "" if e.truth is None else f"; all labels of the pool say {_percent(e.truth)}"
    return f"accuracy by {name} from {e.labelled:,} labels: {_percents(e.accuracy)}{truth}"


def _quality_table(selections: Comparison) -> tuple[str, list[str], list[list[str]]]:
    """Every method beside random, with 95 % intervals."""
    first, *_ = selections.values()
    judged = {name: selection.quality for name, selection in selections.items() if selection.quality is not None}
    chance = next(iter(judged.values()))
    title = f"label {first.picked:,} of {len(first.order):,} inputs: share of them that are faults (95 % interval)"
    rows = [
        [name, _percents(q.fdr), _percent(q.relative_fdr), _decimals(q.apfd), _percent(q.ftcr), _decimal(q.ftcr_auc), _verdict(q)]
        for name, q in judged.items()
    ]
    rows += [[name, "", "", "", "", "", f"did not run: {reason}"] for name, reason in selections.errors.items()]
    rows.append(["(expected at random)", _percents(chance.random_fdr), "", "0.500", "", _decimal(chance.random_ftcr_auc.value)])
    rows.append(["(ceiling)", _percent(chance.ceiling), "100.0 %"])
    return title, ["method", "FDR", "of findable", "APFD", "fault types", "type area", ""], rows


def _verdict(q: Quality) -> str:
    """Whether so many faults would be a surprise at random: outside the exact 95 % interval of random picks."""
    if q.fdr.value > q.random_fdr.high:
        return "beats random"
    return "below random" if q.fdr.value < q.random_fdr.low else "like random"


def _percent(share: float) -> str:
    return "-" if math.isnan(share) else f"{100 * share:.1f} %"


def _percents(share: Interval) -> str:
    return f"{_percent(share.value)} ({100 * share.low:.1f} .. {100 * share.high:.1f})"


def _decimal(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.3f}"


def _decimals(value: Interval) -> str:
    return "-" if math.isnan(value.value) else f"{value.value:.3f} ({value.low:.3f} .. {value.high:.3f})"


def _tell_prior(selections: Comparison) -> None:
    """Once for all methods that share it."""
    from neurotest.cli import show

    priors = [s.details["prior"] for s in selections.values() if "shares" in s.details.get("prior", {})]
    if not priors:
        return
    prior = priors[0]
    shares = sorted(prior["shares"].items(), key=lambda item: -item[1])
    rows = [[name, f"{100 * share:.0f} %"] for name, share in shares if share >= LEAST_SHARE]
    words = f", roughly: of {prior['training_images']} training images only" if prior.get("rough") else ""
    show.table(f"what the pool looks like, without a label{words}", ["change", "share"], rows)
    if prior["looks_natural"]:
        print("expected gain over deepgini before the first label: none, the pool looks natural; the start is deepgini's order")
    else:
        print(f"expected gain over deepgini before the first label: {100 * prior['expected_gain']:+.1f} points")


def _tell_rounds(selections: Comparison) -> None:
    """What each round of an adaptive method promised, held, and gained over DeepGini so far."""
    from neurotest.cli import show

    for name, selection in selections.items():
        rounds: list[dict[str, Any]] = list(selection.details.get("rounds", ()))
        if not rounds:
            continue
        before = [0, *(r["faults"] for r in rounds)]
        step = -(-len(rounds) // ROUNDS_SHOWN)
        rows = [
            [str(i + 1), str(r["labels"]), f"{100 * r['expected']:.0f} %", f"{100 * (r['faults'] - before[i]) / r['size']:.0f} %",
             f"{r['faults']}", f"{r['deepgini']:.0f}", f"{100 * (r['faults'] - r['deepgini']) / max(r['labels'], 1):+.1f}"]
            for i, r in enumerate(rounds) if (i + 1) % step == 0 or i in (0, len(rounds) - 1)
        ]  # fmt: skip
        columns = ["round", "labels", "expected", "measured", "faults so far", "deepgini's", "gain in points"]
        show.table(f"{name}: faults of each round, and the gain so far over deepgini as its labels tell", columns, rows)
