"""`neurotest evaluate`: suites judged by faults, diversity, naturalness and impartiality."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from neurotest.cli import options as opt
from neurotest.cli import show
from neurotest.errors import command
from neurotest.settings.analyse import EvaluateSettings


@opt.command(EvaluateSettings, on="run", workers=True)
def evaluate(
    runs: Annotated[list[Path], typer.Argument(help="Runs of attack, diff, fuzz, illuminate, select, swarm; several: compared.")],
    *,
    call: opt.Call,
) -> opt.Result:
    """Judge test suites: fault rate, diversity, naturalness, impartiality, each compared with random and the clean suite."""
    from neurotest.evaluate import evaluate as judge_all

    with call.ticking("judging suites") as progress:
        result = judge_all(*runs, target=call.network, **call.settings, progress=progress)
    content = result.to_dict()
    for name, one in content["suites"].items():
        for warning in one["warnings"]:
            show.remark(f"{name}: {warning}", quiet=call.quiet)
    return content, lambda: _show(content, result.table())


def _show(content: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    for name, one in content["suites"].items():
        cells = [
            [f"{row['part']}: {row['metric']}", show.number(row["value"]), _interval(row["interval"]), show.number(row["random"]),
             show.number(row["clean"])]
            for row in rows
            if row["suite"] == name
        ]  # fmt: skip
        title = f"{name}: {one['outputs']} outputs; features: {one['extractor']}; random: {one['control'] or 'none'}"
        show.table(title, ["", "suite", "95 %", "random", "clean"], cells)
        _show_bias(name, one["class_bias"])
    if content["comparison"] is not None:
        _show_comparison(content["comparison"])
    if content["run"]:
        print(f"everything: {content['run']}; page: {command('report', content['run'])}")


def _show_bias(name: str, bias: dict[str, Any] | None) -> None:
    if bias is None:
        return
    rows = [[r["class"], f"{r['rank']:.1f}", f"{r['coverage']:.3f}", str(r.get("predicted", ""))] for r in bias["classes"]]
    correlation = "" if bias["correlation"] is None else f"; Spearman {bias['correlation']:+.2f}, p {bias['p']:.2g}"
    show.table(
        f"{name}: classes by the coverage of their own inputs{correlation}", ["class", "mean rank", "coverage", "faults"], rows
    )


def _show_comparison(comparison: dict[str, Any]) -> None:
    means = comparison["means"]
    rows = [
        [
            f"{p['metric']}: {p['left']} against {p['right']}",
            *(_mean(means[p["metric"]][p[side]]) for side in ("left", "right")),
            f"{p['a12']:.2f} ({p['magnitude']})",
            show.number(p["p_holm"]),
        ]
        for p in comparison["pairs"]
    ]
    title = f"side by side, means over seeds with 95 % intervals, {comparison['test']} corrected by Holm"
    show.table(title, ["", "left", "right", "A12", "p"], rows)


def _mean(one: dict[str, Any]) -> str:
    low, high = one["interval"]
    return f"{one['mean']:.4g} ({low:.4g} .. {high:.4g})"


def _interval(bounds: list[float] | None) -> str:
    return "" if bounds is None else f"{bounds[0]:.3g} .. {bounds[1]:.3g}"
