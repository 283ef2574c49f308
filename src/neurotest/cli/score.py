"""`neurotest score`: a score for every input of data of any size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from neurotest.cli import options as opt
from neurotest.cli import show
from neurotest.settings.select import ScoreSettings

if TYPE_CHECKING:
    from neurotest.select.large import ScoreResult

PICKS_SHOWN = 10  # picks of a method on the screen


@opt.command(ScoreSettings, workers=True, numbers=("inputs", "scored", "accuracy", "methods.*", "set_aside.*"))
def score(
    target: opt.Target = None,
    data: Annotated[
        str | None,
        typer.Argument(help="Inputs: parquet:FILES#image,label,id  webdataset:FILES.tar  dir:FOLDER  npz:FILE#x,y ..."),
    ] = None,
    *,
    call: opt.Call,
) -> opt.Result:
    """Score every input into Parquet files, part by part, and pick the best. Inputs that cannot be scored are listed."""
    from neurotest.select.large import score as work

    result = call.work(work, "scoring", target=target, data=data)
    return result.to_dict(), lambda: tables(result)


def tables(result: ScoreResult) -> None:
    for name, one in result.methods.items():
        rows = [[str(rank), str(i), f"{s:.4g}"] for rank, (i, s) in enumerate(zip(one["ids"], one["scores"], strict=True), 1)]
        shown = f"the first {PICKS_SHOWN} of {len(rows)} picks by {name}, from {one['count']:,} scores"
        show.table(shown, ["rank", "id", "score"], rows[:PICKS_SHOWN])
    if result.accuracy is not None:
        print(f"accuracy by the labels: {100 * result.accuracy:.2f} %")
    for one in result.set_aside[:PICKS_SHOWN]:
        print(f"set aside: {one['first']} to {one['last']} ({one['ids'][0]} ...): {one['reason']}")
    print(f"ids and scores: {result.run}/scores")
