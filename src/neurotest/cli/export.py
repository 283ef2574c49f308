"""`neurotest export`: the picks of a run for people and their tools."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from neurotest.cli import options as opt


def export(
    run: Annotated[Path, typer.Argument(help="A run of `neurotest select`.")],
    form: Annotated[str, typer.Option("--format", help="csv, folder (one per class the network says) or label-studio")],
    out: Annotated[Path, typer.Option("--out", help="File or folder to write.")],
    method: Annotated[str | None, typer.Option("--method", help="Whose picks (default: the run's first method).")] = None,
    json: opt.Json = False,
) -> None:
    """Hand out the picks: a table, a folder of pictures, or Label Studio tasks with the network's guess and the score."""
    from neurotest.cli import show
    from neurotest.select.exchange import export as write

    result = write(run, form, out, method=method)
    if json:
        show.print_json(result)
        return
    print(f"{result['exported']} picks in {result['out']}")
    if result["without_picture"]:
        print(f"{result['without_picture']} picks have no picture in the run and are left out (select with more --files).")
