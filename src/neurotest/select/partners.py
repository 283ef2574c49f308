"""What candidates are compared with: their originals, mutations of them, or the same inputs under thinned networks."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from neurotest import rng
from neurotest.audio import is_audio
from neurotest.data.source import Source
from neurotest.errors import BadInput
from neurotest.levels import EIGHT, levels_of
from neurotest.mutate.audio import AudioMutations
from neurotest.mutate.base import Mutations
from neurotest.mutate.mild import MildMutations
from neurotest.mutate.nss import NssMutations
from neurotest.mutate.operators import WhiteNoise
from neurotest.mutate.unit import from_unit, to_unit
from neurotest.scan import Batch
from neurotest.select.scorer import Partner
from neurotest.target import Probe, Target, Trace, Want

NOISE = 0.02  # spread of the weak noise, a share of the input range
SATURATED = -1.7580993408473766  # what SELU tends to; alpha dropout puts it where a unit is dropped


@dataclass(eq=False)
class Partners:
    """The partners of a pool of `count` candidates; random changes are drawn for all of them, whoever scores which."""

    seed: int
    count: int
    _drawn: dict[int, Any] = field(default_factory=dict)
    _thinned: _Thinned | None = None

    def check(self, target: Target, partner: Partner) -> None:
        """Refuse what the target cannot have."""
        if partner.reference == "dropout":
            _Thinned(target, self.seed)

    def traces(self, partner: Partner, probe: Probe, source: Source, places: NDArray[np.int64], part: Batch) -> list[Trace]:
        """Of the candidates in a batch of a piece: `source` is the piece, `places` are its positions in the pool."""
        target, bounds, mutants = probe.target, probe.target.bounds, partner.mutants
        if partner.reference == "original" and source.originals is not None:
            return [probe(target.prepare(source.originals.read(part.index)))]
        if partner.reference == "dropout":
            if self._thinned is None or self._thinned.target is not target:
                self._thinned = _Thinned(target, self.seed)
            return self._thinned.traces(part.x, mutants)
        audio, levels = is_audio(source.dtype, source.shape), levels_of(source.dtype)
        unit = to_unit(part.x, bounds)
        if partner.reference == "mild":
            changed = islice(AudioMutations().mild_variants(unit, levels), mutants) if audio else _mild(unit)[:mutants]
            return [probe(from_unit(x, bounds)) for x in changed]
        if partner.reference == "noise":
            return [probe(from_unit(_noisy(unit, places[part.index], n, self.seed), bounds)) for n in range(mutants)]
        mutations: Mutations = AudioMutations() if audio else NssMutations(rounding="pool")
        draws = [self._draws(mutations, number)[places[part.index]] for number in range(mutants)]
        return [probe(from_unit(mutations.apply(unit, draw, levels=levels or EIGHT), bounds)) for draw in draws]

    def _draws(self, mutations: Mutations, number: int) -> Any:
        if number not in self._drawn:
            self._drawn[number] = mutations.draw(rng.stream("select.remutate", self.seed, number), self.count)
        return self._drawn[number]

    def portable(self) -> Partners:
        return Partners(self.seed, self.count)


def _mild(unit: Any) -> list[Any]:
    return list(MildMutations(rounding="pool").variants(unit))


def _noisy(unit: Tensor, places: NDArray[np.int64], number: int, seed: int) -> Tensor:
    """Inputs with white noise; which noise is a function of the seed, the number and an input's position."""
    spread = np.full(len(places), NOISE)
    streams = np.array([rng.stream("select.noise", seed, number, int(i)).integers(1 << 53) for i in places], dtype=np.float64)
    return WhiteNoise().apply(unit, torch.from_numpy(np.column_stack([spread, streams]))).clamp(0, 1)


@dataclass(eq=False)
class _Thinned:
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
