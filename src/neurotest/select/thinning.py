"""Forward passes with dropout on and everything else as in use: batch normalisation keeps its statistics.

One mask per pass and dropout layer serves every input, so each pass is one thinned network, as the Bayesian reading has it.
Scores then depend neither on the batch size nor on where an input stands, and equal seeds give equal networks.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from neurotest import rng
from neurotest.errors import BadInput
from neurotest.target import Probe, Target, Trace, Want

SATURATED = -1.7580993408473766  # what SELU tends to; alpha dropout puts it where a unit is dropped


@dataclass(eq=False)
class Thinned:
    """The networks that dropout makes of a target."""

    target: Target
    seed: int
    layers: dict[str, _DropoutNd] = field(init=False)
    _masks: dict[tuple[str, int], Tensor] = field(default_factory=dict)
    _sample: int = 0

    def __post_init__(self) -> None:
        modules = dict(self.target.module.named_modules())
        ran = {layer.name: modules.get(layer.module) for layer in self.target.survey().layers}
        self.layers = {name: module for name, module in ran.items() if isinstance(module, _DropoutNd) and module.p > 0}
        if not self.layers:
            raise BadInput(
                "unsuitable",
                "dropout",
                f"{self.target.spec} has no dropout module that could be switched on (a functional dropout, or one that an "
                "export removed, cannot): use deepgini or entropy, or give a network with nn.Dropout.",
            )

    def traces(self, x: Tensor, samples: int) -> list[Trace]:
        """The logits of a batch under so many thinned networks."""
        traces = []
        with Probe(self.target, Want(layers=",".join(self.layers), keep="map"), edit=self._thin) as probe:
            for self._sample in range(samples):
                traces.append(Trace(probe(x).logits, quantity=self.target.bins is not None))
        return traces

    def _thin(self, layer: str, tensor: Tensor) -> Tensor:
        module = self.layers[layer]
        kept = self._mask(layer, module, tensor)
        if isinstance(module, (nn.AlphaDropout, nn.FeatureAlphaDropout)):
            scale = ((1 - module.p) * (1 + module.p * SATURATED**2)) ** -0.5 if module.p < 1 else 0.0
            return scale * (tensor * kept + SATURATED * (1 - kept)) - scale * SATURATED * module.p
        return tensor * kept / (1 - module.p) if module.p < 1 else torch.zeros_like(tensor)

    def _mask(self, layer: str, module: _DropoutNd, tensor: Tensor) -> Tensor:
        """Ones and zeros for one input, whole channels at a time where the module drops channels."""
        key = (layer, self._sample)
        if key not in self._masks:
            elementwise = isinstance(module, (nn.Dropout, nn.AlphaDropout))
            shape = tensor.shape[1:] if elementwise else (tensor.shape[1], *[1] * (tensor.ndim - 2))
            number = list(self.layers).index(layer)
            drawn = torch.rand(shape, generator=rng.torch_stream("select.dropout", self.seed, self._sample, number))
            self._masks[key] = (drawn >= module.p).to(tensor)
        return self._masks[key]
