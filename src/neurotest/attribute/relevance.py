"""Relevance of neurons for the predicted class: layer-wise relevance propagation, or gradient times activation.

Propagation needs a network that is one chain of modules and functions, and a rule for each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from neurotest.attribute.conductance import channels, inner
from neurotest.checks import Settings, setting
from neurotest.errors import BadInput
from neurotest.target import Layer, Probe, Target, Want
from neurotest.target.failures import gradients

_LINEAR = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
_MAXIMA = (nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d, nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d, nn.AdaptiveMaxPool3d)
_MEANS = (nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d, nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d)
# Relevance passes these unchanged.
_THROUGH = (
    nn.ReLU, nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.Identity, nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d
)  # fmt: skip
_SHAPES = (nn.Flatten, nn.Unflatten)
Kind = Literal["linear", "max", "mean", "through"]


@dataclass(frozen=True, eq=False)
class _Step:
    """One module or function of the chain; `before` and `after` are the shapes of a batch."""

    name: str
    forward: Callable[[Tensor], Tensor]
    kind: Kind
    before: tuple[int, ...]
    after: tuple[int, ...]
    in_place: bool = False
    module: nn.Module | None = None

    def back(self, x: Tensor, relevance: Tensor, beta: float, eps: float) -> Tensor:
        """Relevance of the step's input `x` from that of its output."""
        if self.kind == "linear":
            assert self.module is not None
            return _alpha_beta(self.module, x, relevance, beta, eps)
        if self.kind == "max":
            return _transposed(self.forward, x, relevance)  # all to the greatest, as the gradient goes
        if self.kind == "mean":
            result = self.forward(x)
            return x * _transposed(self.forward, x, relevance / (result + eps * torch.where(result < 0, -1.0, 1.0)))
        return relevance


Chain = list[_Step]


def _run(chain: Chain, x: Tensor) -> list[Tensor]:
    """The input of every step, then the output of the last."""
    values = [x]
    with torch.no_grad():
        for step in chain:
            # A step that works in place would overwrite the record of the one before it.
            before = values[-1].reshape(step.before)
            values.append(step.forward(before.clone() if step.in_place else before))
    return values


def find_chain(target: Target) -> Chain | None:
    """The target's modules and functions as a chain, if running them one after the other gives what the network gives."""
    survey = target.survey()
    modules = dict(target.module.named_modules())
    shapes = {layer.name: layer.shape for layer in survey.everything}
    chain: Chain = []
    for layer in survey.everything:
        whole = isinstance(modules[layer.module], _LINEAR + _MAXIMA + _MEANS + _THROUGH + _SHAPES)
        if whole == bool(layer.function):
            continue  # a function inside a module that is itself a step, or a module whose functions are the steps
        step = _of_function(layer, shapes) if layer.function else _of_module(layer, modules[layer.module])
        if step is None:
            return None
        chain.append(step)
    assert target.shape is not None
    noise = torch.rand((2, *target.shape), generator=torch.Generator().manual_seed(1)).to(target.device)
    try:
        with torch.inference_mode():
            same = torch.allclose(_run(chain, noise)[-1], target.module(noise), rtol=1e-4, atol=1e-5)
    except RuntimeError:  # shapes that do not follow each other: the network branches
        return None
    return chain if chain and same else None


def _of_module(layer: Layer, module: nn.Module) -> _Step:
    kinds: dict[Kind, tuple[type[nn.Module], ...]] = {"linear": _LINEAR, "max": _MAXIMA, "mean": _MEANS}
    kind: Kind = next((kind for kind, types in kinds.items() if isinstance(module, types)), "through")
    shapes = (-1, *layer.input_shape), (-1, *layer.shape)
    return _Step(layer.name, module.forward, kind, *shapes, getattr(module, "inplace", False), module)


def _of_function(layer: Layer, shapes: dict[str, tuple[int, ...]]) -> _Step | None:
    """None where relevance has no rule for the function."""
    if layer.apply is None or not (layer.function == "relu" or "_pool" in layer.function):
        return None
    name = layer.name if layer.alias is None else layer.alias  # a block that ends in a ReLU stands for it
    kind: Kind = "through" if layer.function == "relu" else "max" if "max" in layer.function else "mean"
    return _Step(name, layer.apply, kind, (-1, *layer.input_shape), (-1, *shapes[name]), layer.in_place)


def _alpha_beta(module: nn.Module, x: Tensor, relevance: Tensor, beta: float, eps: float) -> Tensor:
    """Positive contributions share (1 + beta) times the relevance, negative ones -beta times; biases take none.

    A neuron that receives contributions of one sign only passes all its relevance on to these.
    """
    weight = module.weight
    assert isinstance(weight, Tensor)
    ups, downs = weight.detach().clamp(min=0), weight.detach().clamp(max=0)
    plus, minus = x.clamp(min=0), x.clamp(max=0)
    signed = bool((x < 0).any())  # after a ReLU nothing is negative, and half of the work falls away
    positive, negative = _apply(module, plus, ups), _apply(module, plus, downs)
    if signed:
        positive, negative = positive + _apply(module, minus, downs), negative + _apply(module, minus, ups)
    both = (positive != 0) & (negative != 0)
    up = torch.where(both, 1 + beta, 1.0) * _share(relevance, positive, eps)
    down = torch.where(both, -beta, 1.0) * _share(relevance, negative, eps)
    share = plus * (_back(module, plus, ups, up) + _back(module, plus, downs, down))
    if signed:
        share = share + minus * (_back(module, minus, downs, up) + _back(module, minus, ups, down))
    return share


def _share(relevance: Tensor, total: Tensor, eps: float) -> Tensor:
    """relevance / total, 0 where nothing was contributed."""
    some = total != 0
    return torch.where(some, relevance / torch.where(some, total + eps * total.sign(), 1.0), 0.0)


def _apply(module: nn.Module, x: Tensor, weight: Tensor) -> Tensor:
    if isinstance(module, nn.Linear):
        return F.linear(x, weight)
    assert isinstance(module, nn.Conv1d | nn.Conv2d | nn.Conv3d)
    result: Tensor = module._conv_forward(x, weight, None)
    return result


def _back(module: nn.Module, x: Tensor, weight: Tensor, upper: Tensor) -> Tensor:
    """The transposed operator on `upper`."""
    if isinstance(module, nn.Linear):
        return torch.matmul(upper, weight)
    return _transposed(lambda z: _apply(module, z, weight), x, upper)


def _transposed(function: Callable[[Tensor], Tensor], x: Tensor, upper: Tensor) -> Tensor:
    with torch.enable_grad():
        x = x.detach().requires_grad_(True)
        (gradient,) = torch.autograd.grad(function(x), x, upper)
    return gradient


Maps = dict[str, Tensor]


@dataclass(frozen=True)
class Relevances:
    """Per layer (n, neurons): relevance summed and activation averaged over each channel's map."""

    relevance: Mapping[str, Tensor]
    activation: Mapping[str, Tensor]
    rule: str  # lrp or gradient


@dataclass(frozen=True, kw_only=True)
class Relevance(Settings):
    """Relevance of every neuron of `layers` for the greatest logit.

    rule: `lrp` by the alpha-beta rule with alpha = 1 + beta on networks that are one chain of modules and functions;
    `gradient` is gradient times activation, any network; `auto` takes lrp where it is possible. eps keeps divisions finite.
    """

    layers: str = "post_activation"
    rule: Literal["auto", "lrp", "gradient"] = "auto"
    beta: float = setting(0.5, "0.5 is usual; alpha is 1 + beta", least=0)
    eps: float = 1e-6

    def plan(self, target: Target) -> RelevancePlan:
        """Decide how to compute it for this target."""
        chain = None if self.rule == "gradient" else find_chain(target)
        if chain is None and self.rule == "lrp":
            message = (
                "rule='lrp' needs a network that is one chain of convolutions, dense layers, poolings, normalisations and ReLUs; "
                "this one branches or has other modules or functions: use rule=gradient."
            )
            raise BadInput("unsuitable", "rule", message)
        return RelevancePlan(self, target, chain)


class RelevancePlan:
    """Relevance for one target. Inputs are those of the module itself, after the target's preprocessing."""

    def __init__(self, settings: Relevance, target: Target, chain: Chain | None) -> None:
        self.settings = settings
        self.chain = chain
        self.layers = inner(target, settings.layers)
        # The same module without preprocessing, because what the probe records of a module's input is already preprocessed.
        self.bare = Target(target.module, bounds=target.bounds, shape=target.shape, outputs=target.outputs, device=target.device)

    @property
    def rule(self) -> str:
        return "gradient" if self.chain is None else "lrp"

    def __call__(self, x: Tensor) -> Relevances:
        """(n, *shape) -> relevance and activation of every layer."""
        with torch.inference_mode(False):
            x = x.clone() if x.is_inference() else x.detach()
            relevance, activation = self._gradient(x) if self.chain is None else self._propagate(self.chain, x)
        return Relevances(
            {layer.name: channels(relevance[layer.name], layer, "sum").detach() for layer in self.layers},
            {layer.name: channels(activation[layer.name], layer, "mean").detach() for layer in self.layers},
            self.rule,
        )

    def _propagate(self, chain: Chain, x: Tensor) -> tuple[Maps, Maps]:
        values = _run(chain, x)  # the input of every step, and the output of the last
        logits = values[-1]
        best = logits.argmax(dim=1, keepdim=True)
        relevance = torch.zeros_like(logits).scatter(1, best, logits.gather(1, best))
        wanted = {layer.name for layer in self.layers}
        relevances: Maps = {}
        activations: Maps = {}
        for step, before, after in reversed([*zip(chain, values[:-1], values[1:], strict=True)]):
            relevance = relevance.reshape(step.after)
            if step.name in wanted:
                relevances[step.name], activations[step.name] = relevance, after.reshape(step.after)
            relevance = step.back(before.reshape(step.before), relevance, self.settings.beta, self.settings.eps)
        return relevances, activations

    def _gradient(self, x: Tensor) -> tuple[Maps, Maps]:
        activations: Maps = {}

        def keep(name: str, tensor: Tensor) -> Tensor:
            activations[name] = tensor.clone()  # in the path to the output, and safe from operators in place
            return activations[name]

        names = ",".join(layer.name for layer in self.layers)
        with Probe(self.bare, Want(layers=names, keep="map"), grad=True, edit=keep) as probe:
            logits = probe(x.requires_grad_(True)).logits
            answer = logits.amax(dim=1).sum()
            slopes = gradients(answer, [activations[layer.name] for layer in self.layers])
        activations = {name: tensor.detach() for name, tensor in activations.items()}
        relevances: Maps = {}
        for layer, gradient in zip(self.layers, slopes, strict=True):
            value = activations[layer.name]
            relevances[layer.name] = torch.zeros_like(value) if gradient is None else gradient * value
        return relevances, activations
