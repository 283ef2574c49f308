"""`neurotest serve` and `neurotest label`: pages that answer, on this machine only."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from neurotest.cli import options as opt
from neurotest.errors import BadInput

INSTALL = "the pages need the extra serve: pip install 'neurotest[serve]' (fastapi, uvicorn)."
Port = Annotated[
    int | None, typer.Option("--port", help="Where to listen on 127.0.0.1 (default: 8731, or the next that is free).")
]
NoBrowser = Annotated[bool, typer.Option("--no-browser", help="Only print the address.")]


def need_packages() -> None:
    """A sentence in place of an import error, before anything is begun."""
    try:
        import fastapi  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError:
        raise BadInput("not-installed", "serve", INSTALL) from None


def check_port(port: int | None) -> None:
    if port is not None and not 0 <= port <= 65535:
        raise BadInput("out-of-range", "port", f"--port {port}: expected 0 (any that is free) to 65535.")


@opt.takes_target
def label(
    run: Annotated[str, typer.Argument(help="An adaptive selection; or a target, followed by its pool.", metavar="RUN|TARGET")],
    pool: Annotated[str | None, typer.Argument(help="Candidates, to start from nothing (as for `neurotest select`).")] = None,
    method: Annotated[
        str | None,
        typer.Option("--method", help="From nothing: adaptive, with options (adaptive:audit=0.1); of a quantity disagreement."),
    ] = None,
    train: Annotated[str | None, typer.Option("--train", help="From nothing: training data (known for zoo networks).")] = None,
    again: Annotated[
        str | None, typer.Option("--pool", help="The pool of RUN, if it was moved or the run was made elsewhere.")
    ] = None,
    per_round: Annotated[
        int | None, typer.Option("--round", help="Labels between two choices of the selector (default: 20).")
    ] = None,
    stop: Annotated[
        float | None, typer.Option("--stop", help="Say that one can stop when the next batch promises a lower fault rate (0.05).")
    ] = None,
    by: Annotated[str, typer.Option("--by", help="Who labels (can be changed on the page).")] = "",
    port: Port = None,
    no_browser: NoBrowser = False,
    out: opt.Out = None,
    seed: opt.Seed = 0,
    limit: opt.Limit = None,
    batch: opt.Batch = 250,
    strict: opt.Strict = False,
    json: opt.Json = False,
    quiet: opt.Quiet = False,
    *,
    description: dict[str, Any],
) -> None:
    """Open a labelling page, the most valuable input first. Every label is stored at once and improves what is shown next."""
    need_packages()
    check_port(port)
    for name, value in (("round", per_round), ("limit", limit), ("batch", batch)):
        opt.at_least(name, value)
    if stop is not None and not 0 < stop < 1:
        raise BadInput("out-of-range", "stop", f"--stop {stop:g}: expected a fault rate between 0 and 1, for example 0.05.")
    if pool is None:
        refuse_settings({"method": method, "out": out, "limit": limit}, {**description, "train": train})
        path = Path(run)
    else:
        if again is not None:
            raise BadInput("conflict", "pool", "--pool goes with `neurotest label RUN`: here the pool is the second argument.")
        path = begin(run, pool, method, train=train, size=per_round, out=out, seed=seed, limit=limit, batch=batch,
                     strict=strict, quiet=quiet, description=description)  # fmt: skip
    from neurotest.serve.label_api import run as serve_page

    serve_page(path, port=port, by=by, size=per_round, stop=stop, pool=again, as_json=json, browser=not (no_browser or json))


def refuse_settings(settings: dict[str, Any], description: dict[str, Any]) -> None:
    """A run has its network and its pool; what describes them is refused, unless it only stands in ./neurotest.toml."""
    typed = {word.partition("=")[0] for word in sys.argv[1:]}  # --train, too, may stand there
    named = [name for name, value in settings.items() if value is not None]
    named += [name for name in description if f"--{name.replace('_', '-')}" in typed]
    if named:
        raise BadInput(
            "conflict", named[0], f"--{named[0].replace('_', '-')} goes with `neurotest label TARGET POOL`: a run has it already."
        )


def begin(
    target: str, pool: str, method: str | None, *, size: int | None, quiet: bool, description: dict[str, Any], **settings: Any
) -> Path:
    """A new selection, adaptive unless the target predicts a quantity; labels of the pool are not looked at."""
    from neurotest import registry
    from neurotest.cli import show
    from neurotest.jobs.opening import open_counted
    from neurotest.select import compare
    from neurotest.select.quantities import keep
    from neurotest.serve.labelling import ROUND
    from neurotest.target import load

    loaded = load(target, **description)
    numbers = loaded.bins is not None
    method = method or ("disagreement" if numbers else "adaptive")
    if (registry.parse(method)[0] == "adaptive") == numbers:
        raise BadInput(
            "unsuitable",
            "method",
            f"--method {method}: it learns from classes, and the target predicts a quantity; use disagreement, or unsteady."
            if numbers
            else f"--method {method}: labelling goes on with adaptive, which learns from every label.",
        )
    source, _ = open_counted(loaded, pool, strict=settings.pop("strict"), limit=settings.pop("limit"))
    unlabelled, picks = source.without_labels(), min(size or ROUND, len(source))
    with show.ticking("scoring", quiet=quiet) as progress:
        selections = compare(loaded, unlabelled, [method], picks, progress=progress, **settings)
    (selection,) = selections.values()
    for note in selection.notes:
        show.remark(note, quiet=quiet)
    assert selection.run is not None
    if numbers:
        keep(selection.run, loaded, unlabelled, settings["batch"])
    return Path(selection.run)


@opt.overrides_target
def serve(
    run: Annotated[Path, typer.Argument(help="A run; a campaign may be under way.")],
    train: Annotated[
        str | None, typer.Option("--train", help="To explain faults: data to describe neurons with (default: the run's own).")
    ] = None,
    port: Port = None,
    no_browser: NoBrowser = False,
    json: opt.Json = False,
    quiet: opt.Quiet = False,
    *,
    network: Any = None,
) -> None:
    """Open a page that follows a run while it is written: its numbers, its fault families, every fault."""
    need_packages()
    check_port(port)
    from neurotest.serve.live_api import run as serve_page

    serve_page(run, network, train, port=port, as_json=json, browser=not (no_browser or json))
