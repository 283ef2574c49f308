"""`neurotest demo`: the whole job on the embedded subject."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from neurotest.cli import options as opt

TARGET = "zoo:fashion-lenet5"
METHODS = ["adaptive", "foreseen", "nss", "nss:distance=cosine", "deepgini", "maxp", "margin", "entropy", "random"]


@opt.reports_result
def demo(
    out: Annotated[Path | None, typer.Option("--out", help="Directory of the run (default: ./neurotest-runs/demo-TIME).")] = None,
    seed: opt.Seed = 0,
    quiet: opt.Quiet = False,
) -> opt.Result:
    """Do the whole job once: make candidates, select by every method, judge each beside random, write a report."""
    from neurotest.cli import select, show

    pool = f"zoo:fashion-mnist/nss-pool@{seed}"
    show.remark(f"testing {TARGET}, a network that recognises ten kinds of clothing", quiet=quiet)
    from neurotest.data import data
    from neurotest.report import write_report
    from neurotest.select import compare
    from neurotest.target import load

    target = load(TARGET)
    show.remark("making 10,000 candidates: test images shifted, turned, scaled, slanted, brightened, blurred", quiet=quiet)
    source = data(pool)
    with show.ticking("scoring", quiet=quiet) as progress:
        results = compare(target, source, METHODS, "5%", seed=seed, out=out, files=12, command="demo", progress=progress)
    run = next(iter(results.values())).run
    assert run is not None
    page = write_report(run)

    def print_result() -> None:
        select.tell(results, run)
        print("nss knows here what each candidate was made from; on real unlabelled data it does not, and is near chance.")
        print(f"report: open {page} in a browser")

    return {**results.to_dict(), "report": str(page)}, print_result
