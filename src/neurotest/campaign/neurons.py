"""`neurotest neurons`: which neurons a run's faults are caused by, with intervals, and what silencing each of them does."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from neurotest.attribute.shapley import Certified, Game, certify
from neurotest.campaign.api import campaign_config
from neurotest.campaign.store import Store
from neurotest.errors import BadInput
from neurotest.generate.outcome import Outcome
from neurotest.jobs.opening import AnyTarget
from neurotest.jobs.stored import stored_target
from neurotest.public import public
from neurotest.runs import codec
from neurotest.runs.store import Run
from neurotest.scan import Progress
from neurotest.settings.analyse import NeuronsSettings
from neurotest.target import Target


@dataclass(frozen=True)
class Neuron:
    """One excitable neuron. value: mean Shapley value over the pairs, in nats of loss; seeds: how many it explains."""

    layer: str
    index: int
    value: float
    low: float
    high: float
    share: float | None  # of the mean loss change
    seeds: int
    repaired: int  # faults that are classified correctly when it is silenced
    broken: int  # seeds that no longer are


@dataclass(frozen=True, eq=False)
class Neurons(Outcome):
    """The excitable neurons of a run's faults, most excitable first; `layers` sums values per layer."""

    neurons: tuple[Neuron, ...]
    layers: tuple[dict[str, Any], ...]
    pairs: int
    change: float  # mean loss change
    level: float
    settled: bool
    forwards: int
    neuron: str
    notes: tuple[str, ...] = ()
    run: Path | None = None

    def to_dict(self) -> dict[str, Any]:
        return {
            "neurons": self.table(),
            "layers": list(self.layers),
            "pairs": self.pairs,
            "loss_change": self.change,
            "level": self.level,
            "settled": self.settled,
            "forwards": self.forwards,
            "neuron": self.neuron,
            "notes": list(self.notes),
            "run": str(self.run) if self.run else None,
        }

    def table(self) -> list[dict[str, Any]]:
        return [vars(neuron) for neuron in self.neurons]

    def headline(self) -> str:
        return f"the {len(self.neurons)} most excitable neurons of {self.pairs} faults, a mean loss change of {self.change:.3g}"


@public(NeuronsSettings)
def neurons(run: str | Path, target: AnyTarget | None = None, *, progress: Progress | None = None, **settings: Any) -> Neurons:
    """The neurons the faults of a swarm (or of a fuzzing campaign) are caused by.

    Each pair is a seed and its first fault; at most `pairs` of them, in the order they were stored. The other settings are those
    of `of_pairs`.
    """
    chosen = dict(vars(NeuronsSettings.of(settings)))
    with Run.open(run) as opened:
        campaign_config(opened)
        network = stored_target(opened, target)
        seeds, faults, y = _stored_pairs(opened, chosen.pop("pairs"))
    network.shape = network.shape or seeds.shape[1:]
    x, moved = (network.prepare(np.ascontiguousarray(part)) for part in (seeds, faults))
    y_here = torch.from_numpy(y).to(network.device)
    return dataclasses.replace(of_pairs(network, x, moved, y_here, **chosen, progress=progress), run=opened.path)


def _stored_pairs(run: Run, most: int) -> tuple[NDArray[np.generic], NDArray[np.generic], NDArray[np.int64]]:
    """Seeds, their first stored faults, and the classes they left."""
    store = Store(run)
    seeds, places = store.seeds()
    first: dict[int, Any] = {}
    for fault in store.faults():
        if fault.file is not None and fault.root in places:
            first.setdefault(fault.root, fault)
    faults = list(first.values())[:most]
    if not faults:
        raise BadInput(
            "empty",
            "pairs",
            f"{run.path} has no stored fault: there is nothing to explain. Give the swarm a larger radius or more seeds.",
        )
    before = np.stack([np.asarray(seeds[places[fault.root]]) for fault in faults])
    after = np.stack([np.asarray(codec.decode(fault.file)) for fault in faults])
    return before, after, np.array([fault.expected for fault in faults], dtype=np.int64)


def of_pairs(
    target: Target,
    x: Tensor,
    moved: Tensor,
    y: Tensor,
    *,
    top: int = 10,
    rounds: int = 30,
    level: float = 0.95,
    layers: str | None = None,
    neuron: str = "channel",
    seed: int = 0,
    progress: Progress | None = None,
) -> Neurons:
    """The same for pairs of inputs in the target's bounds.

    Values are Shapley values towards the loss change, by random orders with Student's intervals; neurons clearly outside the
    `top` are dropped early.
    """
    game = Game(target, x, moved, y, layers=layers, neuron=neuron)  # type: ignore[arg-type]
    change = float((game.full - game.empty).mean())
    if not bool(((game.full - game.empty).abs() > 1e-12).any()):
        raise BadInput(
            "empty", "loss", "the loss of the target changes on none of the pairs: there is nothing to explain by its neurons."
        )
    shapley = certify(game, k=top, rounds=rounds, level=level, seed=seed, progress=progress)
    repaired, broken = _silenced(game, shapley.top)
    # A neuron explains a seed when its value there is more than twice an even share of the loss change.
    count = game.active.sum(1).clamp_min(1)
    even = 2 * (game.full - game.empty).clamp_min(0) / count
    explains = (shapley.per_pair > even[:, None]) & (shapley.per_pair > 0)
    rows = []
    for place, player in enumerate(shapley.top.tolist()):
        layer, index = game.players.name(player)
        value = float(shapley.values[player])
        rows.append(
            Neuron(
                layer, index, value, float(shapley.low[player]), float(shapley.high[player]),
                value / change if change > 0 else None, int(explains[:, player].sum()), int(repaired[place]), int(broken[place]),
            )
        )  # fmt: skip
    sums, notes = _layers(game, shapley)
    return Neurons(tuple(rows), sums, len(game), change, level, shapley.settled, game.forwards, neuron, notes)


def _silenced(game: Game, top: Tensor) -> tuple[Tensor, Tensor]:
    """Per neuron: faults that silencing it repairs, seeds that silencing it breaks."""
    with torch.inference_mode():
        wrong, right = game.target.logits(game.moved).argmax(1) != game.y, game.target.logits(game.x).argmax(1) == game.y
    fixed = ((game.silenced(top, game.moved).argmax(2) == game.y) & wrong).sum(1)
    lost = ((game.silenced(top, game.x).argmax(2) != game.y) & right).sum(1)
    return fixed, lost


def _layers(game: Game, shapley: Certified) -> tuple[tuple[dict[str, Any], ...], tuple[str, ...]]:
    """The sum of each layer's values, how many of them are excitable, and which layers are dead."""
    top = set(shapley.top.tolist())
    rows, notes, start = [], [], 0
    for layer, size in zip(game.players.layers, game.players.sizes, strict=True):
        mine = slice(start, start + size)
        active = int(game.active[:, mine].any(0).sum())
        value = float(shapley.values[mine].sum())
        excitable = sum(start <= player < start + size for player in top)
        rows.append({"layer": layer.name, "neurons": size, "active": active, "excitable": excitable, "value": value})
        if not active:
            notes.append(f"layer {layer.name} is dead on these inputs: the Shapley values of its {size} neurons are exactly 0.")
        start += size
    if not shapley.settled:
        notes.append("the intervals do not separate the last of these from the rest: more --rounds would.")
    return tuple(rows), tuple(notes)
