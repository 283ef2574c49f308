"""The game: neurons are players, a coalition is worth the loss change when all others are silenced; exact values of a dozen."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Literal

import torch
from torch import Tensor

from neurotest import devices
from neurotest.attribute.conductance import channels, inner
from neurotest.errors import BadInput
from neurotest.target import Probe, Target, Want
from neurotest.target.failures import gradient
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


def _losses(logits: Tensor, y: Tensor) -> Tensor:
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
            message = f"pairs: {tuple(x.shape)} seeds, {tuple(moved.shape)} changed ones, {len(y)} classes do not match."
            raise BadInput("wrong-count", "pairs", message)
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
                after, before = (_losses(probe(inputs[index]).logits, y) for inputs in (self.moved, self.x))
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


def _subsets(n: int) -> Tensor:
    """All 2^n masks over n players, in counting order."""
    numbers = torch.arange(1 << n)
    return (numbers[:, None] >> torch.arange(n)) & 1 > 0


MOST_PLAYERS = 16  # 65,536 coalitions, twice as many forward passes


def exact(game: Game, row: int = 0) -> Tensor:
    """The values of one pair: (players,), 0 for those that do not play. Costs 2 * 2^players forward passes."""
    who = torch.nonzero(game.active[row])[:, 0]
    n = len(who)
    if n > MOST_PLAYERS:
        message = f"{n} neurons play; exact values take at most {MOST_PLAYERS}: name fewer layers, or use kernel or permutation."
        raise BadInput("too-large", "neurons", message)
    values = torch.zeros(len(game.players), dtype=torch.float64)
    if n == 0:
        return values
    small = _subsets(n)
    masks = torch.zeros(len(small), len(game.players), dtype=torch.bool)
    masks[:, who] = small
    masks |= ~game.active[row]  # those who do not play stay as they are
    worth = game.value(torch.full((len(small),), row), masks)  # by counting order
    values[who] = from_table(worth, n)
    return values


def from_table(worth: Tensor, n: int) -> Tensor:
    """Values of n players when `worth` lists all 2^n coalitions in counting order."""
    masks = _subsets(n)
    sizes = masks.sum(1)
    # Of the gain when a player joins s others: s! (n - s - 1)! / n!.
    weights = torch.tensor([1.0 / (n * math.comb(n - 1, s)) for s in range(n)], dtype=torch.float64)
    values = torch.zeros(n, dtype=torch.float64)
    for player in range(n):
        without = torch.nonzero(~masks[:, player])[:, 0]
        gain = worth[without + (1 << player)] - worth[without]
        values[player] = (weights[sizes[without]] * gain).sum()
    return values


# -- the quickest estimate: one gradient towards all masks at once, on the diagonal between no neuron and all of them


class MaskGradient:
    """d loss / d mask of every neuron when all masks are `t`; a context manager. One forward and one backward pass per input.

    The value of a neuron for a pair is the difference of this between the two inputs: Aumann and Shapley's integral along the
    diagonal, taken at one point. More points do not help, because the path and not the quadrature is what it gets wrong.
    No gradient towards the input is made: the graph begins at the first masked layer.
    """

    def __init__(self, target: Target, *, layers: str | None = None, neuron: Neuron = "channel", t: float = 0.5) -> None:
        if not 0 < t <= 1:
            message = f"t={t!r}: expected a number above 0 and at most 1 (0.5 is the middle of the diagonal)."
            raise BadInput("out-of-range", "t", message)
        self.players = Players(hidden_layers(target, layers), neuron)
        self.target, self.t = target, t
        self._now: dict[str, Tensor] = {}
        self._probe = Probe(target, self.players.want, grad=True, edit=lambda name, tensor: tensor * self._now[name])

    def __enter__(self) -> MaskGradient:
        self._probe.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._probe.__exit__(kind, error, trace)

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        """(n, *shape), (n,) -> (n, players)."""
        with torch.inference_mode(False), torch.enable_grad():
            x, y = (one.clone() if one.is_inference() else one.detach() for one in (x, y))
            masks = torch.full((len(x), len(self.players)), self.t, device=x.device, requires_grad=True)
            self._now = self.players.parts(masks)
            loss = _losses(self._probe(x).logits, y).sum()
            slopes = gradient(loss, masks, "layers")
        return slopes.detach()


def mask_gradient(
    target: Target,
    x: Tensor,
    moved: Tensor,
    y: Tensor,
    *,
    layers: str | None = None,
    neuron: Neuron = "channel",
    t: float = 0.5,
    efficient: bool = True,
    batch: int = 500,
) -> Tensor:
    """Values of all neurons for every pair: (n, players). `efficient` spreads what lacks to the loss change over the neurons,
    in proportion to their size, so that the values sum to it (where silencing all leaves nothing to change)."""
    parts = []
    with MaskGradient(target, layers=layers, neuron=neuron, t=t) as slope:
        for first, second, label in zip(x.split(batch), moved.split(batch), y.split(batch), strict=True):
            values = devices.exact(slope(second, label) - slope(first, label))
            if efficient:
                with torch.inference_mode():
                    change = _losses(target.logits(second), label) - _losses(target.logits(first), label)
                values = _spread(values, change)
            parts.append(values)
    return torch.cat(parts)


def _spread(values: Tensor, total: Tensor) -> Tensor:
    """Values (n, players) shifted so that they sum to total (n,); a row of zeros stays one."""
    size = values.abs().sum(1, keepdim=True)
    share = torch.where(size > 0, values.abs() / size.clamp_min(1e-300), 0.0)
    return values + share * (total - values.sum(1))[:, None]
