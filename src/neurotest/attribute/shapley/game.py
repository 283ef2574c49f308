"""The game: neurons are players, a coalition is worth the loss change when all others are silenced; exact values of a dozen."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from neurotest import devices
from neurotest.attribute.conductance import channels, inner
from neurotest.errors import BadInput
from neurotest.target import Probe, Target, Want
from neurotest.target.layers import Layer

Neuron = Literal["channel", "unit"]


def hidden_layers(target: Target, layers: str | None = None) -> tuple[Layer, ...]:
    """The layers whose neurons play; the network's answers do not. By default activations, else what feeds them."""
    if layers is not None:
        return inner(target, layers)
    try:
        return inner(target, "post_activation")
    except BadInput:
        return inner(target, "pre_activation")


@dataclass(frozen=True)
class Players:
    """Neurons in a row: layer by layer, in the order in which they run."""

    layers: tuple[Layer, ...]
    neuron: Neuron = "channel"

    def __len__(self) -> int:
        return sum(self.sizes)

    @property
    def sizes(self) -> list[int]:
        return [layer.neurons(self.neuron) for layer in self.layers]

    @property
    def want(self) -> Want:
        return Want(layers=",".join(layer.name for layer in self.layers), neuron=self.neuron, keep="map")

    def name(self, number: int) -> tuple[str, int]:
        """Layer and place in it of a player."""
        for layer, size in zip(self.layers, self.sizes, strict=True):
            if number < size:
                return layer.name, number
            number -= size
        raise IndexError(number)

    def parts(self, masks: Tensor) -> dict[str, Tensor]:
        """Masks (m, players) cut by layer and shaped so that they multiply its output."""
        cut = masks.split(self.sizes, dim=1)
        return {layer.name: part.reshape(self._shape(layer, len(masks))) for layer, part in zip(self.layers, cut, strict=True)}

    def _shape(self, layer: Layer, m: int) -> tuple[int, ...]:
        if self.neuron == "unit" or not layer.shape:
            return (m, *layer.shape)
        return (m, *(size if axis == layer.axis else 1 for axis, size in enumerate(layer.shape, start=1)))

    def gathered(self, per_layer: Sequence[Tensor], how: Literal["sum", "mean", "peak"]) -> Tensor:
        """Maps of all layers as one row per input: (n, players)."""
        if self.neuron == "unit":
            units = torch.cat([maps.flatten(1) for maps in per_layer], dim=1)
            return units.abs() if how == "peak" else units
        return torch.cat([channels(maps, layer, how) for layer, maps in zip(self.layers, per_layer, strict=True)], dim=1)


def losses(logits: Tensor, y: Tensor) -> Tensor:
    """Cross-entropy per input, in float64: confident answers differ only there."""
    values = devices.exact(logits)
    return values.logsumexp(1) - values.gather(1, y[:, None].to(values.device))[:, 0]


class Game:
    """Pairs of inputs (seed, changed seed) with their class; every neuron of some hidden layers may take part.

    x, moved: (n, *shape) in the target's bounds. Neurons that are silent on both inputs of a pair are no players there and get
    exactly 0: where one layer plays this is what the definition gives; where several do, such a neuron could wake up when others
    are silenced, which `active_only=False` takes into account. Silencing is multiplying the output by 0.
    """

    def __init__(
        self, target: Target, x: Tensor, moved: Tensor, y: Tensor,
        *, layers: str | None = None, neuron: Neuron = "channel", active_only: bool = True, batch: int = 1000,
    ) -> None:  # fmt: skip
        if not len(x) or x.shape != moved.shape or len(y) != len(x):
            raise BadInput(
                "wrong-count",
                "pairs",
                f"pairs: {tuple(x.shape)} seeds, {tuple(moved.shape)} changed ones, {len(y)} classes do not match.",
            )
        self.target, self.x, self.moved, self.y, self.batch = target, x, moved, y, batch
        self.players = Players(hidden_layers(target, layers), neuron)
        self.forwards = 0
        self.active = self._active() if active_only else torch.ones(len(x), len(self.players), dtype=torch.bool)
        full = torch.ones(len(x), len(self.players), dtype=torch.bool)
        rows = torch.arange(len(x))
        self.full = self.value(rows, full)  # (n,) loss change of the whole network
        self.empty = self.value(rows, ~self.active)  # 0 where nothing passes by the players

    def __len__(self) -> int:
        return len(self.x)

    def _active(self) -> Tensor:
        def loud(part: Tensor) -> Tensor:
            values = probe(part).values
            return self.players.gathered([values[layer.name] for layer in self.players.layers], "peak") > 0

        with Probe(self.target, self.players.want) as probe:
            parts = zip(self.x.split(self.batch), self.moved.split(self.batch), strict=True)
            active = [loud(first) | loud(second) for first, second in parts]
        self.forwards += 2 * len(self.x)
        return torch.cat(active).cpu()

    def value(self, rows: Tensor, masks: Tensor) -> Tensor:
        """What coalitions are worth: pair numbers (m,), masks (m, players) -> loss changes (m,)."""
        changes = []
        now: dict[str, Tensor] = {}
        with Probe(self.target, self.players.want, edit=lambda name, tensor: tensor * now[name]) as probe:
            for start in range(0, len(rows), self.batch):
                part = slice(start, start + self.batch)
                index, y = rows[part], self.y[rows[part]]
                now = self.players.parts(masks[part].to(self.x))
                after, before = (losses(probe(inputs[index]).logits, y) for inputs in (self.moved, self.x))
                changes.append((after - before).cpu())
        self.forwards += 2 * len(rows)
        return torch.cat(changes)

    def silenced(self, players: Tensor, x: Tensor) -> Tensor:
        """Logits of x (n, *shape) with each of these players (k,) silenced in turn: (k, n, classes)."""
        masks = torch.ones(len(players), len(self.players))
        masks[torch.arange(len(players)), players] = 0
        logits = []
        now: dict[str, Tensor] = {}
        with Probe(self.target, self.players.want, edit=lambda name, tensor: tensor * now[name]) as probe:
            for mask in masks:
                now = self.players.parts(mask[None].to(self.x))
                logits.append(torch.cat([probe(part).logits for part in x.split(self.batch)]))
        self.forwards += len(players) * len(x)
        return torch.stack(logits)


def subsets(n: int) -> Tensor:
    """All 2^n masks over n players, in counting order."""
    numbers = torch.arange(1 << n)
    return (numbers[:, None] >> torch.arange(n)) & 1 > 0


def shapley_weights(n: int) -> list[float]:
    """Of the gain when a player joins s others: s! (n - s - 1)! / n!."""
    return [1.0 / (n * math.comb(n - 1, s)) for s in range(n)]


MOST = 16  # 65,536 coalitions, twice as many forward passes


def exact(game: Game, row: int = 0) -> Tensor:
    """The values of one pair: (players,), 0 for those that do not play. Costs 2 * 2^players forward passes."""
    who = torch.nonzero(game.active[row])[:, 0]
    n = len(who)
    if n > MOST:
        raise BadInput(
            "too-large",
            "neurons",
            f"{n} neurons play: exact values are for at most {MOST}; name fewer layers, or use kernel or permutation.",
        )
    values = torch.zeros(len(game.players), dtype=torch.float64)
    if n == 0:
        return values
    small = subsets(n)
    masks = torch.zeros(len(small), len(game.players), dtype=torch.bool)
    masks[:, who] = small
    masks |= ~game.active[row]  # those who do not play stay as they are
    worth = game.value(torch.full((len(small),), row), masks)  # by counting order
    values[who] = from_table(worth, n)
    return values


def from_table(worth: Tensor, n: int) -> Tensor:
    """Values of n players when `worth` lists all 2^n coalitions in counting order."""
    masks = subsets(n)
    sizes = masks.sum(1)
    weights = torch.tensor(shapley_weights(n), dtype=torch.float64)
    values = torch.zeros(n, dtype=torch.float64)
    for player in range(n):
        without = torch.nonzero(~masks[:, player])[:, 0]
        gain = worth[without + (1 << player)] - worth[without]
        values[player] = (weights[sizes[without]] * gain).sum()
    return values
