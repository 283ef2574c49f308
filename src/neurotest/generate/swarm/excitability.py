"""Fitness by excitability: the neurons' Shapley values in the change of the loss, estimated by gradients towards masks."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, Literal

import torch
from torch import Tensor

from neurotest.attribute.shapley.estimate import permutation
from neurotest.attribute.shapley.game import Game, MaskGradient, Players, hidden_layers
from neurotest.checks import Settings, number, setting
from neurotest.devices import widest
from neurotest.errors import BadInput
from neurotest.generate.swarm.measure import Measure, Problem, odds
from neurotest.mutate.unit import from_unit
from neurotest.registry import register
from neurotest.target import Probe
from neurotest.target.failures import gradients

ZERO_GRADIENT = (
    "the loss of the target does not change with its hidden neurons (every gradient towards them is zero): excitability cannot "
    "guide a swarm here; check --layers, or use --fitness sensitivity."
)
NOT_FINITE = "a gradient of the target's loss towards its hidden neurons is not finite: use --fitness sensitivity."


@register(
    "fitness",
    "excitability",
    paper="DeepSensor, excitability (Jin et al.); mask gradients: Aumann and Shapley",
    cost="one forward pass per position, and one forward and backward pass per seed and turn of lattices or sweep of tiles; "
    "estimate=particle: one further forward and one backward pass per position; estimate=shapley: two forward passes per neuron "
    "and order, 4,960 per position of LeNet-5",
    differs="Exact Shapley values of 226 neurons need 2^227 passes; the paper does not say how it got its own. By default "
    "neurons are weighed once per turn or sweep by the gradient of the log-odds towards their mask, and a position's fitness is "
    "the sum of all hidden neurons' values by these weights (`value=sum`). No gradient towards the input is made. "
    "`preset=paper` counts neurons whose Shapley value, sampled over random orders for every position, exceeds 0.5, over all "
    "neurons of every layer but the answers: silencing those leaves no loss to compare. `preset=gradient` counts by the mask "
    "gradient of every position instead, some thousand times cheaper; either finds hardly more faults than noise.",
    main="estimate",
    presets={
        "paper": {"estimate": "shapley", "value": "count", "lam": 0.5, "layers": "every"},
        "gradient": {"estimate": "particle", "value": "count", "lam": 0.5},
    },
)
class Excitability(Settings):
    """The Shapley values of hidden neurons in the change of the loss.

    estimate: `seed` weighs neurons at the seed and then at the best position of every sweep, so that a position costs one forward
    pass; `particle` takes the mask gradient of every position, `shapley` its Shapley values over so many random `orders`.
    value: `sum` of the values, `count` the share of neurons above lambda, or `positive`, the sum of the values above 0. lam: a
    number (the papers' 0.5), or `share`, twice the mean value. layers: whose neurons play where --layers names none; none:
    activations.
    """

    name: ClassVar[str] = "excitability"
    labels: ClassVar[bool] = True

    estimate: Literal["seed", "particle", "shapley"] = "seed"
    value: Literal["sum", "count", "positive"] = "sum"
    lam: float | str = "share"
    layers: str | None = None
    orders: int = setting(10, "10; more give steadier values at proportional cost")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.lam != "share":
            number("lam", self.lam, "0.5 in the papers; or share, twice the mean value")

    def begin(self, problem: Problem) -> Measure:
        layers = problem.layers if problem.layers is not None else self.layers
        players = Players(hidden_layers(problem.target, layers), problem.neuron)  # type: ignore[arg-type]
        kinds: dict[str, type[_ByPlayers]] = {"seed": _ByWeights, "particle": _ByParticle, "shapley": _ByShapley}
        measure = kinds[self.estimate](problem, (players.want,) if self.estimate == "seed" else ())
        measure.settings, measure.players = self, players
        measure.prepare()
        return measure

    def fold(self, values: Tensor) -> Tensor:
        """Values of neurons (n, players) as one number each."""
        if self.value == "sum":
            return values.sum(1)
        if self.value == "positive":
            return values.clamp_min(0).sum(1)
        # Twice an even share of the loss change; of a loss that falls no neuron has a share.
        limit: Tensor | float = self.lam if isinstance(self.lam, float | int) else 0.0
        if self.lam == "share":
            limit = 2 * values.sum(1, keepdim=True).clamp_min(0) / values.shape[1]
        return (values > limit).to(widest(values.device)).mean(1)


class _ByPlayers(Measure):
    """Values of neurons, which are the players of a game."""

    settings: Excitability
    players: Players

    @abstractmethod
    def prepare(self) -> None: ...


class _ByWeights(_ByPlayers):
    """Values to first order: a neuron's weight times how much it changed since it was weighed."""

    def prepare(self) -> None:
        self.reweighs = True
        self.has_map = len(self.players.layers[0].shape) == 3 and self.settings.value == "sum"
        problem = self.problem
        n, device, layers = len(problem.seeds), problem.seeds.device, self.players.layers
        self.weights = [torch.zeros((n, *layer.shape), device=device) for layer in layers]
        self.base = [torch.zeros_like(weight) for weight in self.weights]
        self.reweigh(problem.seeds, torch.arange(n, device=device))
        if not any(bool(weight.any()) for weight in self.weights):
            raise BadInput("no-gradient", "zero", ZERO_GRADIENT)
        parts = zip(layers, self.weights, self.base, strict=True)
        dead = [layer.name for layer, weight, base in parts if not bool(weight.any()) or not bool(base.any())]
        if dead:
            self.notes.append(
                f"dead layers ({', '.join(dead)}): they give 0 on every seed, or nothing they do reaches the loss; their Shapley "
                "values are 0."
            )

    def reweigh(self, u: Tensor, owner: Tensor) -> int:
        tensors: dict[str, Tensor] = {}

        def record(name: str, tensor: Tensor) -> Tensor:
            # The first one starts the graph: nothing is traced back to the input.
            tensors[name] = tensor.clone() if tensors and tensor.requires_grad else tensor.detach().clone().requires_grad_()
            return tensors[name]

        target, layers = self.problem.target, self.players.layers
        for start in range(0, len(u), 500):
            tensors.clear()
            part, rows = u[start : start + 500], owner[start : start + 500]
            with torch.inference_mode(False), torch.enable_grad():
                x = from_unit(part.clone() if part.is_inference() else part.detach(), target.bounds)
                with Probe(target, self.players.want, grad=True, edit=record) as probe:
                    objective = odds(probe(x).logits, self.avoided[rows]).sum()
                    slopes = gradients(objective, [tensors[layer.name] for layer in layers])
            for base, weight, layer, gradient in zip(self.base, self.weights, layers, slopes, strict=True):
                base[rows] = tensors[layer.name].detach()
                weight[rows] = 0.0 if gradient is None else gradient.detach()
                if gradient is not None and not bool(gradient.isfinite().all()):
                    raise BadInput("not-finite", "gradient", NOT_FINITE)
        self.forwards += len(u)
        self.backwards += len(u)
        return 3

    def first_layer(self, x: Tensor) -> Tensor:
        first = self.players.layers[0]
        return self._probe(x).values[first.name].movedim(first.axis, 1)

    def fitness_map(self, u: Tensor, owner: Tensor) -> tuple[Tensor, Tensor]:
        self.forwards += len(u)
        first = self.players.layers[0]
        trace = self._probe(from_unit(u, self.problem.target.bounds))
        with torch.inference_mode():
            shapley = self.weights[0][owner] * (trace.values[first.name] - self.base[0][owner])
            return shapley.sum(first.axis), trace.logits

    def fitness(self, u: Tensor, owner: Tensor, values: dict[str, Tensor], logits: Tensor) -> Tensor:
        parts = zip(self.players.layers, self.weights, self.base, strict=True)
        shapley = [weight[owner] * (values[layer.name] - base[owner]) for layer, weight, base in parts]
        if self.settings.value == "sum":
            total = torch.zeros(len(u), dtype=widest(u.device), device=u.device)
            for one in shapley:
                total += one.flatten(1).sum(1)
            return total
        return self.settings.fold(self.players.gathered(shapley, "sum").to(widest(u.device)))


class _ByParticle(_ByPlayers):
    """The mask gradient of every position, minus that of its seed, which is computed once."""

    def prepare(self) -> None:
        self.cost = 4  # a forward pass, one of the halved network, and a backward pass that counts two
        problem = self.problem
        self.mask_gradient = MaskGradient(problem.target, layers=self.players.want.layers, neuron=self.players.neuron)
        with self.mask_gradient:
            self.base = self.mask_gradient(from_unit(problem.seeds, problem.target.bounds), problem.y)
        self.forwards += len(problem.seeds)
        self.backwards += len(problem.seeds)
        if not bool((self.base != 0).any()):
            raise BadInput("no-gradient", "zero", ZERO_GRADIENT)

    def fitness(self, u: Tensor, owner: Tensor, values: dict[str, Tensor], logits: Tensor) -> Tensor:
        with self.mask_gradient:
            now = self.mask_gradient(from_unit(u, self.problem.target.bounds), self.problem.y[owner])
        self.forwards += len(u)
        self.backwards += len(u)
        return self.settings.fold((now - self.base[owner]).to(widest(u.device)))


class _ByShapley(_ByPlayers):
    """The Shapley values of every position against its seed (definitions 1 to 3 of the paper), over random orders of neurons."""

    def prepare(self) -> None:
        self.cost = 1 + 2 * len(self.players) * self.settings.orders
        self.judged = 0  # positions so far: each has orders of its own

    def fitness(self, u: Tensor, owner: Tensor, values: dict[str, Tensor], logits: Tensor) -> Tensor:
        problem = self.problem
        x, moved = (from_unit(part, problem.target.bounds) for part in (problem.seeds[owner], u))
        # Every neuron plays, also one that is silent on both inputs: it may wake up while others are silenced.
        layers, neuron = self.players.want.layers, self.players.neuron
        game = Game(problem.target, x, moved, problem.y[owner], layers=layers, neuron=neuron, active_only=False)
        seed = problem.random + self.judged
        orders = self.settings.orders
        shapley = [permutation(game, row, orders=orders, truncate=0, seed=seed).values for row in range(len(u))]
        self.judged += len(u)
        self.forwards += game.forwards
        return self.settings.fold(torch.stack(shapley).to(u.device, widest(u.device)))
