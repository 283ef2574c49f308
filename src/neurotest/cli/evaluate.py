"""`neurotest evaluate`: suites judged by faults, diversity, naturalness and impartiality."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from neurotest.cli import options as opt
from neurotest.cli import show
from neurotest.errors import command


@opt.overrides_target
@opt.takes_workers
@opt.reports_result
def evaluate(
    runs: Annotated[list[Path], typer.Argument(help="Runs of attack, diff, fuzz, illuminate, select, swarm; several: compared.")],
    train: Annotated[str | None, typer.Option("--train", help="Training data: how many inputs lie outside its manifold?")] = None,
    extractor: Annotated[
        str, typer.Option("--extractor", help="Network that makes the features: target, reference, or a target's spec.")
    ] = "target",
    layer: Annotated[
        str, typer.Option("--extractor-layer", help="last_hidden, globs over layer names, or output (it returns features).")
    ] = "last_hidden",
    extractor_weights: Annotated[
        Path | None, typer.Option("--extractor-weights", help="State dict for an extractor py:...")
    ] = None,
    metric: Annotated[
        list[str] | None, typer.Option("--metric", help="A number that must be had (fid, kid, ...); if it cannot, exit 2.")
    ] = None,
    faults_only: Annotated[bool, typer.Option("--faults-only", help="Judge only what fails.")] = False,
    corrected: Annotated[bool, typer.Option("--corrected", help="Entropy with Miller and Madow's correction.")] = False,
    paired: Annotated[bool, typer.Option("--paired", help="Compare seed by seed (seeds that all suites share).")] = False,
    class_bias: Annotated[
        str | None, typer.Option("--class-bias", help="Labelled data: do faults favour classes whose inputs cover more?")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", help="Outputs judged per suite; larger ones are drawn from at random.")] = 5000,
    out: opt.Out = None,
    batch: opt.Batch = 250,
    seed: opt.Seed = 0,
    quiet: opt.Quiet = False,
    *,
    network: Any = None,
) -> opt.Result:
    """Judge test suites: fault rate, diversity, naturalness, impartiality, each compared with random and the clean suite."""
    from neurotest.evaluate import evaluate as judge_all

    with show.ticking("judging suites", quiet=quiet) as progress:
        result = judge_all(
            *runs, target=network, train=train, extractor=extractor, layer=layer, weights=extractor_weights, metrics=metric or (),
            faults_only=faults_only, corrected=corrected, paired=paired, classes=class_bias, limit=limit, batch=batch, seed=seed,
            out=out, progress=progress,
        )  # fmt: skip
    content = result.to_dict()
    for name, one in content["suites"].items():
        for warning in one["warnings"]:
            show.remark(f"{name}: {warning}", quiet=quiet)
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
