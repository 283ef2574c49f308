"""Passes over images: what reading every layer costs, and what choosing by neuron sensitivity costs."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
from torch import Tensor

from neurotest import zoo
from neurotest.data.spec import data
from neurotest.mutate.nss import nss_pool
from neurotest.select import select
from neurotest.target import Probe, Target, Want
from neurotest.target.load import load
from neurotest_lab.bench.ratio import Job, Pair, passes

IMAGES = 2000
PASS = 0.15


def probe_pairs(name: str) -> Iterator[tuple[str, Pair]]:
    """All conv and dense layers as channels, at batch 100 and at batch 1."""
    target = load(f"zoo:{name}")
    source = data(f"zoo:{zoo.find(name).dataset}/test", limit=IMAGES)
    images = target.prepare(source.read(np.arange(len(source))))
    for batch, least, most in ((100, 200, IMAGES), (1, 30, 300)):
        parts = images[: _enough(target, images, batch, least, most)].split(batch)
        yield f"batch{batch}", (_probed(target, parts), passes(target, parts))


def _enough(target: Target, images: Tensor, batch: int, least: int, most: int) -> int:
    """So many images that one bare pass over them takes about `PASS` seconds: slow networks need fewer for the same ratio."""
    few = passes(target, images[:least].split(batch))
    few()
    began = time.process_time()
    few()
    return min(most, max(least, int(least * PASS / (time.process_time() - began + 1e-9))))


def _probed(target: Target, parts: tuple[Tensor, ...]) -> Job:
    def job() -> None:
        with Probe(target, Want()) as probe:
            for part in parts:
                probe(part)

    return job


def nss_pairs(name: str) -> Iterator[tuple[str, Pair]]:
    """Make the pool from the test images, score it against its originals, rank it."""
    # A target in memory: for a zoo target candidates are also compared with its training images, which is not NSS's work.
    target = load(load(f"zoo:{name}").module, size=zoo.find(name).shape)
    images = data(f"zoo:{zoo.find(name).dataset}/test[:{2 * IMAGES}]")
    unlabelled = images.without_labels()  # judging the order is not selection's work
    parts = target.prepare(images.read(np.arange(len(images)))).split(250)
    target.survey()

    def ours() -> None:
        select(target, nss_pool(source=unlabelled, seed=0), "nss", "5%")

    yield "paired", (ours, passes(target, parts))
