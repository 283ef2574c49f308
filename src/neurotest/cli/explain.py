"""`neurotest explain`: why a fault came about, layer by layer, and what a campaign's faults have in common."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from neurotest.cli import options as opt
from neurotest.cli import show
from neurotest.errors import BadInput
from neurotest.settings.analyse import ExplainSettings

SUBSTITUTIONS_SHOWN = 20  # substitutions in a table


@opt.command(ExplainSettings, on="run")
def explain(
    run: Annotated[Path, typer.Argument(help="The run of a campaign.")],
    fault: Annotated[
        str | None,
        typer.Argument(help="A fault's number or image; RUN#NUMBER works, too (none: what all faults share)."),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Write it to this .html, .md or .json file too.")] = None,
    *,
    call: opt.Call,
) -> opt.Result:
    """Explain a fault: the deciding neurons, their descriptions and maps, and where its path leaves that of the seed."""
    from neurotest.campaign.explain import Explanation
    from neurotest.campaign.explain import explain as make
    from neurotest.report.explain import write_explanation

    _check_ending(out)
    run, fault = opt.run_and_fault(run, fault)
    result = make(run, fault, target=call.network, **call.settings)
    if out is not None:
        show.remark(f"written to {write_explanation(result, out)}", quiet=call.quiet)
    return result.to_dict(), lambda: print_fault(result) if isinstance(result, Explanation) else _print_patterns(result)


def _check_ending(out: Path | None) -> None:
    """Before anything is computed."""
    if out is not None and out.suffix.lower() not in (".html", ".htm", ".md", ".json"):
        raise BadInput("out-of-range", "out", f"--out {out}: expected a name that ends in .html, .md or .json.")


def print_fault(explanation: Any) -> None:
    from neurotest.report.explain import headline, parting

    print(headline(explanation))
    rows = []
    for pair in explanation.pair.layers:
        mark = "" if pair.same else "*"
        cells = [
            f"{s.neuron} {s.description} ({s.score:.3g}, {place(s.map)}rank {s.ranks[0]}/{s.ranks[1]})"
            for s in (pair.seed, pair.fault)
        ]
        rows.append([f"{pair.layer}{mark}", *cells])
    names = [f"{who}: {p}" for who, p in zip(("seed", "fault"), explanation.pair.predicted, strict=True)]
    show.table("neuron, what it looks for (conductance, where, rank for seed/fault)", ["layer", *names], rows)
    print(f"{parting(explanation)} A * marks layers where another neuron decides. See the maps with --out explain.html.")


def place(values: Any) -> str:
    """Where a map is strongest, in words; nothing where there is no map."""
    import numpy as np

    if values is None:
        return ""

    row, column = np.unravel_index(int(np.argmax(values)), values.shape)
    vertical = ("top", "middle", "bottom")[min(2, 3 * int(row) // values.shape[0])]
    horizontal = ("left", "middle", "right")[min(2, 3 * int(column) // values.shape[1])]
    words = vertical if horizontal == "middle" else f"{vertical} {horizontal}" if vertical != "middle" else horizontal
    return f"{words}, "


def _print_patterns(patterns: Any) -> None:
    rows = [[name, f"{100 * p['faults']:.0f} %", f"{100 * p['others']:.0f} %"] for name, p in patterns.parts.items()]
    show.table(
        "where the path first leaves the seed's", ["layer", f"{patterns.faults} faults", f"{patterns.others} others"], rows
    )
    substitutions = patterns.table()
    if not substitutions:
        print("no neuron takes another's place more often among faults than among others.")
        return
    cells = [list(row.values()) for row in substitutions[:SUBSTITUTIONS_SHOWN]]
    show.table("substitutions more frequent among faults", list(substitutions[0]), cells)
    if len(substitutions) > SUBSTITUTIONS_SHOWN:
        print(f"and {len(substitutions) - SUBSTITUTIONS_SHOWN} more: --json or --out patterns.html")
