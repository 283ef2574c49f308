"""`neurotest cover`: how much of the network the inputs exercise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from neurotest.cli import options as opt
from neurotest.cli import show
from neurotest.errors import command
from neurotest.settings.analyse import CoverSettings

if TYPE_CHECKING:
    from neurotest.coverage import Coverage

DEFAULT = ("nc", "nlc")  # need no training data
WITH_TRAINING = ("nc", "kmnc:1000", "nbc", "tknc", "nlc")
CLASSES = 24  # rows of a table by class


@opt.command(CoverSettings, workers=True, numbers=("criteria.*", "inputs", "memory"))
def cover(
    target: Annotated[str, typer.Argument(help="zoo:NAME or py:FILE_OR_MODULE:CALLABLE")],
    data: Annotated[
        str, typer.Argument(help="Inputs: npz:FILE#x,y  dir:FOLDER  idx:FOLDER/PREFIX  zoo:NAME/SPLIT, with [:N] for a slice")
    ],
    per_layer: Annotated[bool, typer.Option("--per-layer/--no-per-layer", help="Show every layer's numbers.")] = True,
    plan: opt.Plan = False,
    verbose: opt.Verbose = False,
    *,
    call: opt.Call,
) -> opt.Result:
    """Measure coverage: how much of the network the inputs exercise. It does not say how good they are as tests."""
    from neurotest.coverage import cover as measure

    settings = call.settings
    trained = settings.get("train") or settings.get("profile")
    settings.setdefault("criteria", list(WITH_TRAINING if trained else DEFAULT))
    loaded = call.open_target(target)
    if plan:
        from neurotest.coverage.forecast import forecast_cover

        forecast = forecast_cover(loaded, data, **settings)
        return forecast.to_dict(), lambda: show.forecast(forecast)
    with call.ticking("covering") as progress:
        coverage = measure(loaded, data, **settings, progress=progress, tell=lambda text: show.remark(text, quiet=call.quiet))
    if verbose:
        show.remark(f"the criteria needed about {coverage.memory / 1e6:.0f} MB of memory", quiet=call.quiet)
    return coverage.to_dict(), lambda: tables(coverage, per_layer=per_layer)


def tables(coverage: Coverage, *, per_layer: bool) -> None:
    from neurotest.coverage.result import MEANING

    what = f"{coverage.layers}, {coverage.neuron}"
    title = f"coverage of {coverage.target} by {coverage.inputs:,} inputs of {coverage.data} ({what})"
    columns = ["criterion", "covered", "of", "value", "dead", "half of it after"]
    rows = [
        [name, _count(m.value.covered), _count(m.value.total), _value(m.value.whole), str(m.value.dead), _half(m.growth)]
        for name, m in coverage.criteria.items()
    ]
    if coverage.errors:
        columns.append("did not run because")
        rows += [[name, "", "", "", "", "", reason] for name, reason in coverage.errors.items()]
    show.table(title, columns, rows)
    if per_layer:
        for columns, rows in _layer_tables(coverage):
            show.table("per layer", columns, rows)
    if any(m.by_class for m in coverage.criteria.values()):
        show.table("per class", *_class_table(coverage))
    print(MEANING)
    if coverage.run:
        print(f"growth curves, layers and never-covered neurons: {coverage.run} (`{command('report', coverage.run)}`)")


def _layer_tables(coverage: Coverage) -> list[tuple[list[str], list[list[str]]]]:
    """One table per set of layers: criteria of the same layers stand side by side."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for name, m in coverage.criteria.items():
        if m.value.layers:
            groups.setdefault(tuple(m.value.layers), []).append(name)
    return [
        (["layer", *names], [[layer, *(_value(coverage[name].value.layers[layer]) for name in names)] for layer in layers])
        for layers, names in groups.items()
    ]


def _class_table(coverage: Coverage) -> tuple[list[str], list[list[str]]]:
    values = {name: m.by_class for name, m in coverage.criteria.items() if m.by_class}
    classes = list(dict.fromkeys(c for by_class in values.values() for c in by_class))[:CLASSES]
    rows = [[c, *(_value(by_class[c].whole) if c in by_class else "" for by_class in values.values())] for c in classes]
    return ["class", *values], rows


def _count(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) and not value.is_integer() else f"{int(value):,}"


def _value(share: Any) -> str:
    """A share in per cent, a count or a norm as it is."""
    return f"{100 * share.value:.2f} %" if share.total is not None else _count(share.value)


def _half(growth: tuple[tuple[int, float], ...]) -> str:
    """After how many inputs half of the final value was there."""
    if not growth or growth[-1][1] <= 0:
        return ""
    return f"{next(n for n, value in growth if value >= growth[-1][1] / 2):,}"
