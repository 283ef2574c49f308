"""Candidate pools made by mutation; they remember the originals they came from."""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray

from neurotest import registry, rng
from neurotest.data.source import ArraySource, Source
from neurotest.errors import BadInput
from neurotest.mutate.base import Draws
from neurotest.mutate.nss import NssMutations

VALUES = 1_500_000  # mutated at a time: fewer calls than small chunks need, and still in the caches


@registry.register("split", "nss-pool", paper="NSS, section IV.A", cost="one mutation per input")
def nss_pool(*, source: Source, seed: int) -> Source:
    """`zoo:NAME/nss-pool@SEED`: each test image changed by one of the seven `nss` mutations, with its original's label."""
    if source.dtype != np.uint8:
        raise BadInput("unsuitable", "dtype", f"{source.spec} is not 8-bit: a mutation pool needs 8-bit images.")
    mutations = NssMutations(rounding="pool")
    draws = mutations.draw(rng.stream("pool.nss", seed), len(source))
    pool = apply(mutations, source, draws, max(1, VALUES // math.prod(source.shape)))
    return ArraySource(pool, source.labels, classes=source.classes, spec=source.spec, originals=source, notes={"draws": draws})


def apply(mutations: NssMutations, source: Source, draws: Draws, chunk: int) -> NDArray[np.uint8]:
    """Every input changed by its draw, so many at a time."""
    mutants = np.empty((len(source), *source.shape), np.uint8)
    for start in range(0, len(source), chunk):
        part = np.arange(start, min(start + chunk, len(source)))
        x = torch.from_numpy(source.read(part)).float().div_(255)
        mutants[part] = mutations.apply(x, draws[part]).mul_(255).round_().to(torch.uint8).numpy()
    return mutants
