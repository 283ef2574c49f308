"""`neurotest describe`: what the neurons of a network mean, with the inputs that show it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from neurotest.cli import options as opt
from neurotest.cli import show
from neurotest.errors import BadInput
from neurotest.settings.analyse import DescribeSettings

if TYPE_CHECKING:
    from neurotest.semantics.descriptions import Descriptions

DESCRIPTIONS_SHOWN = 5  # descriptions per layer on the screen


@opt.command(DescribeSettings, workers=True)
def describe(
    target: opt.Target = None,
    data: Annotated[
        str | None,
        typer.Argument(help="Inputs that exemplars are taken from, best the training set: zoo:NAME/train, dir:FOLDER ..."),
    ] = None,
    *,
    call: opt.Call,
) -> opt.Result:
    """Describe neurons in words and show the inputs that activate them most: a table, contact sheets, a page."""
    imported = str(call.settings.get("method")).startswith(("csv", "attributes"))  # they need no exemplars
    call.needs(target=target, data=data or imported or target)
    if call.resume is None and data is None and not imported:
        raise BadInput(
            "missing", "data", "DATA is missing: exemplars are taken from it; give zoo:NAME/train, dir:FOLDER or npz:FILE#x,y."
        )
    from neurotest.semantics.describe.work import recorded

    loaded = call.open_target(target)
    with call.ticking("describing") as progress:
        table, place, summary = recorded(loaded, data, **call.settings, progress=progress)
    content = {
        **summary,
        "method": table.method,
        "run": str(place),
        "notes": list(table.notes),
        "descriptions": table.table(),
    }
    return content, lambda: _print_table(table, summary, place)


def _print_table(table: Descriptions, summary: dict[str, Any], place: Path) -> None:
    rows = []
    for name, about in summary["layers"].items():
        words = " | ".join(dict.fromkeys(row.text for row in table.surest(name)[:DESCRIPTIONS_SHOWN]))
        rows.append([name or "(the network)", str(about["neurons"]), str(about["described"]), str(len(about["dead"])), words])
    show.table("what neurons mean", ["layer", "neurons", "described", "dead", "the surest"], rows)
    print(f"descriptions.csv and contact sheets: {place}")
