"""`neurotest serve` and `neurotest label`: pages that answer, on this machine only."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from neurotest.cli import options as opt
from neurotest.errors import BadInput
from neurotest.settings.analyse import ServeSettings
from neurotest.settings.select import LabelSettings

INSTALL = "the pages need the extra serve: pip install 'neurotest[serve]' (fastapi, uvicorn)."


def _need_packages() -> None:
    """A sentence in place of an import error, before anything is begun."""
    try:
        import fastapi  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError:
        raise BadInput("not-installed", "serve", INSTALL) from None


@opt.command(LabelSettings, reports=False)
def label(
    run: Annotated[str, typer.Argument(help="An adaptive selection; or a target, followed by its pool.", metavar="RUN|TARGET")],
    candidates: Annotated[
        str | None, typer.Argument(help="Candidates, to start from nothing (as for `neurotest select`).", metavar="[POOL]")
    ] = None,
    json: opt.Json = False,
    *,
    call: opt.Call,
) -> None:
    """Open a labelling page, the most valuable input first. Every label is stored at once and improves what is shown next."""
    _need_packages()
    settings = call.settings
    page = {name: settings.pop(name) for name in ("port", "by", "stop", "pool") if name in settings}
    browser, size = settings.pop("browser", True), settings.pop("size", None)
    if candidates is None:
        _refuse_settings(call)
        path = Path(run)
    else:
        if "pool" in page:
            raise BadInput("conflict", "pool", "--pool goes with `neurotest label RUN`: here the pool is the second argument.")
        path = begin(run, candidates, size, call)
    from neurotest.serve.label_api import run as serve_page

    serve_page(path, **page, size=size, as_json=json, browser=browser and not json)


def _refuse_settings(call: opt.Call) -> None:
    """A run has its network and its pool; what describes them is refused, unless it only stands in ./neurotest.toml."""
    typed = {word.partition("=")[0] for word in sys.argv[1:]}  # --train, too, may stand there
    named: list[str] = [name for name in ("method", "out", "limit") if name in call.typed]
    named += [name for name in (*call.description, "train") if f"--{name.replace('_', '-')}" in typed]
    if named:
        raise BadInput(
            "conflict", named[0], f"--{named[0].replace('_', '-')} goes with `neurotest label TARGET POOL`: a run has it already."
        )


def begin(target: str, pool: str, size: int | None, call: opt.Call) -> Path:
    """A new selection, adaptive unless the target predicts a quantity; labels of the pool are not looked at."""
    from neurotest import registry
    from neurotest.cli import show
    from neurotest.jobs.opening import open_counted
    from neurotest.select import compare
    from neurotest.select.quantities import keep
    from neurotest.serve.labelling import ROUND
    from neurotest.target import load

    settings = dict(call.settings)
    loaded = load(target, **call.description)
    numbers = loaded.bins is not None
    method = settings.pop("method", None) or ("disagreement" if numbers else "adaptive")
    if (registry.parse(method)[0] == "adaptive") == numbers:
        raise BadInput(
            "unsuitable",
            "method",
            f"--method {method}: it learns from classes; use disagreement or unsteady for a regression target."
            if numbers
            else f"--method {method}: labelling goes on with adaptive, which learns from every label.",
        )
    limits = {name: settings.pop(name) for name in ("strict", "limit") if name in settings}
    source, _ = open_counted(loaded, pool, **limits)
    unlabelled, picks = source.without_labels(), min(size or ROUND, len(source))
    with call.ticking("scoring") as progress:
        selections = compare(loaded, unlabelled, [method], picks, progress=progress, **settings)
    (selection,) = selections.values()
    for note in selection.notes:
        show.remark(note, quiet=call.quiet)
    assert selection.run is not None
    if numbers:
        keep(selection.run, loaded, unlabelled, LabelSettings.of(settings).batch)
    return Path(selection.run)


@opt.command(ServeSettings, on="run", reports=False)
def serve(
    run: Annotated[Path, typer.Argument(help="A run; a campaign may be under way.")],
    json: opt.Json = False,
    *,
    call: opt.Call,
) -> None:
    """Open a page that follows a run while it is written: its numbers, its fault families, every fault."""
    _need_packages()
    browser = call.settings.pop("browser", True)
    from neurotest.serve.live_api import run as serve_page

    serve_page(run, call.network, **call.settings, as_json=json, browser=browser and not json)
