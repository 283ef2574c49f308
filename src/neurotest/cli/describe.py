"""`neurotest describe`: what the neurons of a network mean, with the inputs that show it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from neurotest.cli import options as opt
from neurotest.cli import show
from neurotest.errors import BadInput

if TYPE_CHECKING:
    from neurotest.semantics.descriptions import Descriptions

SHOWN = 5  # descriptions per layer on the screen


@opt.takes_target
@opt.reports_result
def describe(
    target: Annotated[str, typer.Argument(help="zoo:NAME or py:FILE_OR_MODULE:CALLABLE")],
    data: Annotated[
        str | None,
        typer.Argument(help="Inputs that exemplars are taken from, best the training set: zoo:NAME/train, dir:FOLDER ..."),
    ] = None,
    method: Annotated[str, typer.Option("--method", help="A name of `neurotest list describer`, with options.")] = "combined",
    k: Annotated[int, typer.Option("--k", help="Exemplars per neuron.")] = 15,
    quantile: Annotated[float, typer.Option("--quantile", help="Level of a neuron's values at which masks are cut.")] = 0.99,
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Neither use nor keep what was described before.")] = False,
    layers: opt.Layers = None,
    out: opt.Out = None,
    seed: opt.Seed = 0,
    limit: opt.Limit = None,
    batch: opt.Batch = 250,
    strict: opt.Strict = False,
    quiet: opt.Quiet = False,
    *,
    description: dict[str, Any],
) -> opt.Result:
    """Describe neurons in words and show the inputs that excite them most: a table, contact sheets, a page."""
    if data is None and not method.startswith(("csv", "attributes")):
        raise BadInput("DATA is missing: exemplars are taken from it; give zoo:NAME/train, dir:FOLDER or npz:FILE#x,y.")
    from neurotest.data.spec import data as read_data
    from neurotest.report import write_report
    from neurotest.semantics.describe.api import recorded
    from neurotest.target import load

    loaded = load(target, **description)
    source = None if data is None else read_data(data, shape=loaded.shape, strict=strict, limit=limit)
    with show.ticking("describing", quiet=quiet) as progress:
        table, place, summary = recorded(
            loaded, source, method, layers, out=out, k=k, quantile=quantile, batch=batch, seed=seed, cache=not no_cache,
            progress=progress,
        )  # fmt: skip
    page = write_report(place)
    content = {
        **summary,
        "method": table.method,
        "run": str(place),
        "page": str(page),
        "notes": list(table.notes),
        "descriptions": _rows(table),
    }
    return content, lambda: print_table(table, summary, page)


def _rows(table: Descriptions) -> list[dict[str, Any]]:
    return [{"layer": r.layer, "neuron": r.neuron, "description": r.text, "score": r.score, "method": r.method} for r in table]


def print_table(table: Descriptions, summary: dict[str, Any], page: Path) -> None:
    rows = []
    for name, about in summary["layers"].items():
        best = sorted((row for row in table.layer(name) if row.known), key=lambda row: -row.score)[:SHOWN]
        words = " | ".join(dict.fromkeys(row.text for row in best))
        rows.append([name or "(the network)", str(about["neurons"]), str(about["described"]), str(len(about["dead"])), words])
    show.table("what neurons mean", ["layer", "neurons", "described", "dead", "the surest"], rows)
    print(f"descriptions.csv, contact sheets and the page: {page}")
