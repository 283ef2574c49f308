"""`neurotest suspects`: labels that look wrong."""

from __future__ import annotations

from typing import Annotated

import typer

from neurotest.cli import options as opt
from neurotest.cli import show
from neurotest.errors import command
from neurotest.settings.select import SuspectsSettings

ROWS_SHOWN = 20  # rows of the table


@opt.command(
    SuspectsSettings,
    numbers=("wrong_share", "wrong_share_interval.*", "expected", "count", "accuracy", "inputs", "surest", "suspects.*"),
)
def suspects(
    target: Annotated[str, typer.Argument(help="zoo:NAME, py:FILE_OR_MODULE:CALLABLE, pt2:, onnx:, timm:, torchvision:, hf:")],
    data: Annotated[str, typer.Argument(help="Labelled inputs that the network was not trained on.")],
    *,
    call: opt.Call,
) -> opt.Result:
    """Find labels that look wrong, most suspicious first. The network must not have been trained on these labels."""
    from neurotest.select.suspects import suspects as look

    result = call.work(look, "looking at labels", target=target, data=data)

    def print_result() -> None:
        print(result.headline())
        rows = result.table()[:ROWS_SHOWN]
        if rows:
            named = ["index", *(["name"] if "name" in rows[0] else []), "label", "suggested"]
            cells = [[*(str(row[column]) for column in named), f"{row['margin']:.1f}"] for row in rows]
            show.table(f"the first {len(rows)} of {result.count}", [*named, "log-odds against the label"], cells)
        if result.run:
            print(f"pictures: `{command('report', result.run)}`; all of them: --json")

    return result.to_dict(), print_result
