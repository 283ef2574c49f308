"""`neurotest score`: a score for every input of data of any size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from neurotest.cli import options as opt
from neurotest.cli import show

if TYPE_CHECKING:
    from neurotest.select.large import ScoreResult

SHOWN = 10  # picks of a method on the screen


@opt.takes_target
@opt.takes_workers
@opt.reports_result
@opt.holds("inputs", "scored", "accuracy", "methods.*", "set_aside.*")
def score(
    target: opt.Target = None,
    data: Annotated[
        str | None,
        typer.Argument(help="Inputs: parquet:FILES#image,label,id  webdataset:FILES.tar  dir:FOLDER  npz:FILE#x,y ..."),
    ] = None,
    method: Annotated[
        list[str] | None,
        typer.Option("--method", help="deepgini, nss, mdsa, ... (`neurotest list selector`); repeat for several."),
    ] = None,
    budget: Annotated[str | None, typer.Option("--budget", help="How many to pick by each method: 1000 (usual), 0.1%.")] = None,
    spread: Annotated[bool, typer.Option("--spread", help="Pick a diverse batch from the top.")] = False,
    train: Annotated[str | None, typer.Option("--train", help="Training data, for methods that learn from it.")] = None,
    timeout: Annotated[
        float | None, typer.Option("--timeout", help="Seconds after which a worker at one batch counts as hanging (600).")
    ] = None,
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
    """Score every input into Parquet files, part by part, and pick the best. Inputs that cannot be scored are listed."""
    opt.start_or_resume("score", "TARGET and DATA", target is not None and data is not None, resume)
    from neurotest.select.large import score as work

    with opt.working("scoring", target, description, resume, quiet=quiet) as (loaded, progress):
        result = work(
            loaded, data, method or None, budget=budget, spread=spread or None, train=train, seed=seed, limit=limit, batch=batch,
            timeout=timeout, strict=strict, out=out, resume=resume, progress=progress,
        )  # fmt: skip
    return result.to_dict(), lambda: tables(result)


def tables(result: ScoreResult) -> None:
    for name, one in result.methods.items():
        rows = [[str(rank), str(i), f"{s:.4g}"] for rank, (i, s) in enumerate(zip(one["ids"], one["scores"], strict=True), 1)]
        shown = f"the first {SHOWN} of {len(rows)} picks by {name}, from {one['count']:,} scores"
        show.table(shown, ["rank", "id", "score"], rows[:SHOWN])
    if result.accuracy is not None:
        print(f"accuracy by the labels: {100 * result.accuracy:.2f} %")
    for one in result.set_aside[:SHOWN]:
        print(f"set aside: {one['first']} to {one['last']} ({one['ids'][0]} ...): {one['reason']}")
    print(f"ids and scores: {result.run}/scores")
