"""`neurotest neurons`: the neurons a run's faults are caused by."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from neurotest.cli import options as opt
from neurotest.cli import show
from neurotest.errors import BadInput

if TYPE_CHECKING:
    from neurotest.campaign.neurons import Neurons


@opt.overrides_target
@opt.reports_result
def neurons(
    run: Annotated[Path, typer.Argument(help="A run of swarm or fuzz.")],
    top: Annotated[int, typer.Option("--top", help="How many neurons to report.")] = 10,
    pairs: Annotated[int, typer.Option("--pairs", help="Faults (with their seeds) to explain, at most.")] = 40,
    rounds: Annotated[int, typer.Option("--rounds", help="Random orders per pair: more make narrower intervals.")] = 30,
    level: Annotated[float, typer.Option("--level", help="Level of the intervals.")] = 0.95,
    layers: opt.Layers = None,
    neuron: opt.Neuron = None,
    out: Annotated[Path | None, typer.Option("--out", help="JSON file to write as well.")] = None,
    seed: opt.Seed = 0,
    quiet: opt.Quiet = False,
    *,
    network: Any = None,
) -> opt.Result:
    """Show which neurons cause the faults of a run: Shapley values with intervals, and what silencing them does."""
    opt.at_least("top", top)
    opt.at_least("pairs", pairs)
    from neurotest.campaign.neurons import neurons as find

    with show.ticking("examining neurons", quiet=quiet) as progress:
        result = find(
            run, network, top=top, pairs=pairs, rounds=rounds, level=level, layers=layers, neuron=neuron or "channel", seed=seed,
            progress=progress,
        )  # fmt: skip
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
