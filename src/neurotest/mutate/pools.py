"""Candidate pools made by mutation; they remember the originals they came from."""

from __future__ import annotations

import math

import numpy as np
import torch

from neurotest import registry, rng
from neurotest.data.source import ArraySource, Source
from neurotest.errors import BadInput
from neurotest.mutate.nss import NssMutations

VALUES = 1_500_000  # mutated at a time: fewer calls than small chunks need, and still in the caches


@registry.register("split", "nss-pool", paper="NSS, section IV.A", cost="one mutation per input")
def nss_pool(*, source: Source, seed: int) -> Source:
    """`zoo:NAME/nss-pool@SEED`: each test image changed by one of the seven `nss` mutations, with its original's label."""
    if source.dtype != np.uint8:
        raise BadInput(f"{source.spec} is not 8-bit: a mutation pool needs 8-bit images.")
    mutations = NssMutations(rounding="pool")
    draws = mutations.draw(rng.stream("pool.nss", seed), len(source))
    pool = np.empty((len(source), *source.shape), np.uint8)
    chunk = max(1, VALUES // math.prod(source.shape))
    for start in range(0, len(source), chunk):
        part = np.arange(start, min(start + chunk, len(source)))
        x = torch.from_numpy(source.read(part)).float().div_(255)
        pool[part] = mutations.apply(x, draws[part]).mul_(255).round_().to(torch.uint8).numpy()
    return ArraySource(
        pool, labels=source.labels, classes=source.classes, spec=source.spec, originals=source, notes={"draws": draws}
    )
