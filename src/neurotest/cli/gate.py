"""`neurotest gate`: may a new network replace the old one?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from neurotest.cli import options as opt
from neurotest.cli import show
from neurotest.cli.generate import load_targets
from neurotest.errors import BadInput
from neurotest.settings.analyse import GateSettings

FAMILIES_SHOWN = 10


@opt.command(
    GateSettings,
    numbers=(
        "inputs", "accuracy.*", "fixed", "broken", "p", "difference", "difference_interval.*", "by_class.*", "kept.*",
        "by_family.*",
    ),
)  # fmt: skip
def gate(
    old: Annotated[str, typer.Argument(help="The network in use: zoo:NAME, py:FILE_OR_MODULE:CALLABLE, pt2:FILE, ...")],
    new: Annotated[str, typer.Argument(help="The network that is to replace it.")],
    data: Annotated[str, typer.Argument(help="Labelled data that neither was trained on.")],
    weights: Annotated[
        list[Path] | None, typer.Option("--weights", help="State dict of the py: targets; repeat it: one for each, in order.")
    ] = None,
    new_weights: Annotated[Path | None, typer.Option("--new-weights", help="State dict of the new network.")] = None,
    *,
    call: opt.Call,
) -> opt.Result:
    """Decide whether a new network may replace the old one; exit 1 if not. By class and fault family, with McNemar's test."""
    files = list(weights or [])
    if new_weights is not None:
        if len(files) > 1:
            raise BadInput(
                "conflict",
                "new_weights",
                "--new-weights with --weights twice: give --weights once, or twice without --new-weights.",
            )
        files = [*files, new_weights]
        if len(files) == 1 and old.startswith("py:"):
            raise BadInput("missing", "weights", "--new-weights: and the old network's? Give --weights, too.")
    from neurotest.check.gate import gate as run

    before, after = load_targets([old, new], files, call.description, None)
    with call.ticking("comparing") as progress:
        result = run(before, after, data, **call.settings, progress=progress)
    content = result.to_dict()
    return content, lambda: _show(content, call.quiet), int(not result.may_replace)


def _show(content: dict[str, Any], quiet: bool) -> None:
    print(content["verdict"])
    every = {**{name: content[name] for name in ("fixed", "broken", "p", "difference", "difference_interval", "inputs")},
             "name": "all", **content["accuracy"]}  # fmt: skip
    _table("accuracy by class", [every, *content["by_class"]])
    if content["kept"] is not None:
        _table("kept faults by family, the worst first", [content["kept"], *content["by_family"][:FAMILIES_SHOWN]])
    show.remark(f"run: {content['run']}", quiet=quiet)


def _table(title: str, changes: list[dict[str, Any]]) -> None:
    rows = []
    for one in changes:
        low, high = one["difference_interval"]
        rows.append([
            one["name"], f"{one['inputs']:,}", f"{one['old']:.1%}", f"{one['new']:.1%}", str(one["fixed"]), str(one["broken"]),
            f"{100 * low:+.1f} .. {100 * high:+.1f}", f"{one['p']:.2g}",
        ])  # fmt: skip
    show.table(title, ["", "inputs", "old", "new", "fixed", "new faults", "95 % of the difference, points", "p"], rows)
