"""Relevance of neurons for the predicted class: layer-wise relevance propagation, or gradient times activation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from neurotest.attribute.chain import Chain, find_chain, run
from neurotest.attribute.conductance import channels, inner
from neurotest.checks import Settings, setting
from neurotest.errors import BadInput
from neurotest.target import Probe, Target, Want
from neurotest.target.gradients import gradients

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

    def plan(self, target: Target) -> Plan:
        """Decide how to compute it for this target."""
        chain = None if self.rule == "gradient" else find_chain(target)
        if chain is None and self.rule == "lrp":
            raise BadInput(
                "unsuitable",
                "rule",
                "rule='lrp' needs a network that is one chain of convolutions, dense layers, poolings, normalisations and ReLUs; "
                "this one branches or has other modules or functions: use rule=gradient.",
            )
        return Plan(self, target, chain)


class Plan:
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
        values = run(chain, x)  # the input of every step, and the output of the last
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
