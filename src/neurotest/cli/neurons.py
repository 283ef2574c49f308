"""`neurotest neurons`: the neurons a run's faults are caused by."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from neurotest.cli import options as opt
from neurotest.cli import show
from neurotest.errors import BadInput
from neurotest.settings.analyse import NeuronsSettings

if TYPE_CHECKING:
    from neurotest.campaign.neurons import Neurons


@opt.command(NeuronsSettings, on="run")
def neurons(
    run: Annotated[Path, typer.Argument(help="A run of swarm or fuzz.")],
    out: Annotated[Path | None, typer.Option("--out", help="JSON file to write as well.")] = None,
    *,
    call: opt.Call,
) -> opt.Result:
    """Show which neurons cause the faults of a run: Shapley values with intervals, and what silencing them does."""
    from neurotest.campaign.neurons import neurons as find

    with call.ticking("examining neurons") as progress:
        result = find(run, call.network, **call.settings, progress=progress)
    content = result.to_dict()
    keep(run, content)
    if out is not None:
        result.save(out)
    return content, lambda: _show(result)


def _show(result: Neurons) -> None:
    rows = [
        [
            f"{n.layer}[{n.index}]", f"{n.value:.3f}", f"{n.low:.3f} .. {n.high:.3f}",
            "" if n.share is None else f"{n.share:.0%}", f"{n.seeds} of {result.pairs}", str(n.repaired), str(n.broken),
        ]
        for n in result.neurons
    ]  # fmt: skip
    columns = ["neuron", "Shapley value", f"{result.level:.0%} interval", "of the change", "seeds explained", "repairs", "breaks"]
    show.table(f"{result.pairs} faults, mean loss change {result.change:.2f} nats", columns, rows)
    print("repairs: faults that are right again when the neuron is silenced; breaks: seeds that are then wrong")
    rows = [[r["layer"], str(r["neurons"]), str(r["active"]), str(r["excitable"]), f"{r['value']:.3f}"] for r in result.layers]
    show.table("by layer", ["layer", "neurons", "active", "among the top", "sum of values"], rows)


def keep(path: Path, content: dict[str, Any]) -> None:
    """Put the result into the run, where its report finds it; a run that cannot be written stays as it is."""
    from neurotest.runs.store import Run

    try:
        with Run.open(path, write=True) as run:
            run["neurons"] = content
    except (BadInput, OSError) as error:
        show.remark(f"not kept in the run: {error}")
