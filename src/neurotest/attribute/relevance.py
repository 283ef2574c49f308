"""Relevance of neurons for the predicted class: layer-wise relevance propagation, or gradient times activation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from neurotest.attribute.chain import Chain, find_chain
from neurotest.errors import BadInput
from neurotest.target import Probe, Target, Want
from neurotest.target.layers import Layer

Maps = dict[str, Tensor]


@dataclass(frozen=True)
class Relevances:
    """Per layer (n, neurons): relevance summed and activation averaged over each channel's map."""

    relevance: Mapping[str, Tensor]
    activation: Mapping[str, Tensor]
    rule: str  # lrp or gradient


@dataclass(frozen=True, kw_only=True)
class Relevance:
    """Relevance of every neuron of `layers` for the greatest logit.

    rule: `lrp` by the alpha-beta rule with alpha = 1 + beta on networks that are one chain of modules; `gradient` is gradient
    times activation, any network; `auto` takes lrp where it is possible. eps keeps divisions finite.
    """

    layers: str = "post_activation"
    rule: Literal["auto", "lrp", "gradient"] = "auto"
    beta: float = 0.5
    eps: float = 1e-6

    def __post_init__(self) -> None:
        if self.rule not in ("auto", "lrp", "gradient"):
            raise BadInput(f"rule={self.rule!r}: expected auto, lrp or gradient.")
        if not self.beta >= 0:
            raise BadInput(f"beta={self.beta!r}: expected a number of at least 0 (0.5 is usual; alpha is 1 + beta).")

    def plan(self, target: Target) -> Plan:
        """Decide how to compute it for this target."""
        chain = None if self.rule == "gradient" else find_chain(target)
        if chain is None and self.rule == "lrp":
            raise BadInput(
                "rule='lrp' needs a network that is one chain of convolutions, dense layers, poolings, normalisations and ReLUs; "
                "this one branches or has other modules: use rule=gradient."
            )
        return Plan(self, target, chain)


class Plan:
    """Relevance for one target. Inputs are those of the module itself, after the target's preprocessing."""

    def __init__(self, settings: Relevance, target: Target, chain: Chain | None) -> None:
        self.settings = settings
        self.chain = chain
        self.layers = target.survey().find(settings.layers)
        # What the network ends in are its answers, not neurons of a path to them.
        last = target.survey().layers[-1].time
        self.layers = tuple(layer for layer in self.layers if layer.time < last)
        if not self.layers:
            raise BadInput(f"layers={settings.layers!r}: only the output layer is among them; choose others with --layers.")
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
            {layer.name: _per_channel(relevance[layer.name], layer, "sum") for layer in self.layers},
            {layer.name: _per_channel(activation[layer.name], layer, "mean") for layer in self.layers},
            self.rule,
        )

    def _propagate(self, chain: Chain, x: Tensor) -> tuple[Maps, Maps]:
        given = chain.forward(x)  # the input of every step, and the output of the last
        logits = given[-1]
        best = logits.argmax(dim=1, keepdim=True)
        relevance = torch.zeros_like(logits).scatter(1, best, logits.gather(1, best))
        wanted = {layer.name for layer in self.layers}
        found: Maps = {}
        values: Maps = {}
        for number in range(len(chain.steps) - 1, -1, -1):
            step = chain.steps[number]
            if step.name in wanted:
                found[step.name], values[step.name] = relevance.reshape(step.made), given[number + 1].reshape(step.made)
            relevance = step.back(
                given[number].reshape(step.taken), relevance.reshape(step.made), self.settings.beta, self.settings.eps
            )
        return found, values

    def _gradient(self, x: Tensor) -> tuple[Maps, Maps]:
        kept: Maps = {}

        def hold(name: str, tensor: Tensor) -> Tensor:
            kept[name] = tensor.clone()  # in the path to the output, and safe from operators in place
            return kept[name]

        names = ",".join(layer.name for layer in self.layers)
        with Probe(self.bare, Want(layers=names, keep="map"), grad=True, edit=hold) as probe:
            logits = probe(x.requires_grad_(True)).logits
            answer = logits.amax(dim=1).sum()
            gradients = torch.autograd.grad(answer, [kept[layer.name] for layer in self.layers], allow_unused=True)
        found: Maps = {}
        for layer, gradient in zip(self.layers, gradients, strict=True):
            value = kept[layer.name].detach()
            found[layer.name] = torch.zeros_like(value) if gradient is None else gradient * value
        return found, {name: tensor.detach() for name, tensor in kept.items()}


def _per_channel(maps: Tensor, layer: Layer, how: str) -> Tensor:
    others = tuple(d for d in range(1, maps.ndim) if d != layer.axis)
    if not others:
        return maps.detach()
    return (maps.sum(others) if how == "sum" else maps.mean(others)).detach()
