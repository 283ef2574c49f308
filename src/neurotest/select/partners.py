"""What candidates are compared with: their originals, mutations of them, or the same inputs under thinned networks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from neurotest import rng
from neurotest.audio import is_audio
from neurotest.data.source import Source
from neurotest.levels import EIGHT, levels_of
from neurotest.mutate.audio import AudioMutations, mild_variants
from neurotest.mutate.base import Mutations
from neurotest.mutate.mild import MildMutations
from neurotest.mutate.nss import NssMutations
from neurotest.mutate.pixel import WhiteNoise
from neurotest.mutate.space import from_unit, to_unit
from neurotest.scan import Batch
from neurotest.select.scorer import Partner
from neurotest.select.thinning import Thinned
from neurotest.target import Probe, Target, Trace

NOISE = 0.02  # spread of the weak noise, a share of the input range
Traces = Callable[[Probe, Batch], list[Trace]]


@dataclass(eq=False)
class Partners:
    """The partners of a pool of `count` candidates; random changes are drawn for all of them, whoever scores which."""

    seed: int
    count: int
    _drawn: dict[int, Any] = field(default_factory=dict)
    _thinned: Thinned | None = None

    def check(self, target: Target, partner: Partner) -> None:
        """Refuse what the target cannot have."""
        if partner.reference == "dropout":
            Thinned(target, self.seed)

    def traces(self, partner: Partner, probe: Probe, source: Source, places: NDArray[np.int64], part: Batch) -> list[Trace]:
        """Of the candidates in a batch of a piece: `source` is the piece, `places` are its positions in the pool."""
        target, bounds, mutants = probe.target, probe.target.bounds, partner.mutants
        if partner.reference == "original" and source.originals is not None:
            return [probe(target.prepare(source.originals.read(part.index)))]
        if partner.reference == "dropout":
            if self._thinned is None or self._thinned.target is not target:
                self._thinned = Thinned(target, self.seed)
            return self._thinned.traces(part.x, mutants)
        sound, levels = is_audio(source.dtype, source.shape), levels_of(source.dtype)
        unit = to_unit(part.x, bounds)
        if partner.reference == "mild":
            changed = islice(mild_variants(unit, levels), mutants) if sound else _mild(unit)[:mutants]
            return [probe(from_unit(x, bounds)) for x in changed]
        if partner.reference == "noise":
            return [probe(from_unit(_noisy(unit, places[part.index], n, self.seed), bounds)) for n in range(mutants)]
        mutations: Mutations = AudioMutations() if sound else NssMutations(rounding="pool")
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
