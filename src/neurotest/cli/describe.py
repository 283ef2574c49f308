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
@opt.takes_workers
@opt.reports_result
def describe(
    target: opt.Target = None,
    data: Annotated[
        str | None,
        typer.Argument(help="Inputs that exemplars are taken from, best the training set: zoo:NAME/train, dir:FOLDER ..."),
    ] = None,
    method: Annotated[str, typer.Option("--method", help="A name of `neurotest list describer`, with options.")] = "combined",
    k: Annotated[int, typer.Option("--k", help="Exemplars per neuron.")] = 15,
    quantile: Annotated[float, typer.Option("--quantile", help="Level of a neuron's values at which masks are cut.")] = 0.99,
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Neither use nor keep what was described before.")] = False,
    layers: opt.Layers = None,
    resume: opt.Resume = None,
    out: opt.Out = None,
    seed: opt.Seed = 0,
    limit: opt.Limit = None,
    batch: opt.Batch = 250,
    strict: opt.Strict = False,
    quiet: opt.Quiet = False,
    *,
    description: dict[str, Any],
) -> opt.Result:
    """Describe neurons in words and show the inputs that activate them most: a table, contact sheets, a page."""
    opt.start_or_resume("describe", "TARGET and DATA", target is not None, resume)
    if resume is None and data is None and not method.startswith(("csv", "attributes")):
        raise BadInput(
            "missing", "data", "DATA is missing: exemplars are taken from it; give zoo:NAME/train, dir:FOLDER or npz:FILE#x,y."
        )
    from neurotest.semantics.describe.work import recorded

    loaded = opt.open_target(target, description, resume)
    with show.ticking("describing", quiet=quiet) as progress:
        table, place, summary = recorded(
            loaded, data, method, layers, out=out, resume=resume, k=k, quantile=quantile, batch=batch, seed=seed, limit=limit,
            strict=bool(strict), cache=not no_cache, progress=progress,
        )  # fmt: skip
    content = {
        **summary,
        "method": table.method,
        "run": str(place),
        "notes": list(table.notes),
        "descriptions": table.table(),
    }
    return content, lambda: print_table(table, summary, place)


def print_table(table: Descriptions, summary: dict[str, Any], place: Path) -> None:
    rows = []
    for name, about in summary["layers"].items():
        words = " | ".join(dict.fromkeys(row.text for row in table.surest(name)[:SHOWN]))
        rows.append([name or "(the network)", str(about["neurons"]), str(about["described"]), str(len(about["dead"])), words])
    show.table("what neurons mean", ["layer", "neurons", "described", "dead", "the surest"], rows)
    print(f"descriptions.csv and contact sheets: {place}")
