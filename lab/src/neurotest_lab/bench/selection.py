"""Selection: every method over the forward passes it cannot do without, and memory for a million candidates."""

from __future__ import annotations

import functools
import os
import tempfile
import tracemalloc
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from neurotest import zoo
from neurotest.data.source import ArraySource, Source
from neurotest.data.spec import data
from neurotest.select import select
from neurotest.target import Target
from neurotest_lab.bench.ratio import Pair, passes

SUBJECTS = ("mnist-lenet5",)
POOL, TRAIN = 10_000, 1000
MOST = 5000  # training images of methods that take no more of them: what they do once is spread over these
ALL = ("nearest:inputs=none",)  # methods that are timed with so many, too, because what they do for each of them counts
BATCH = 250
SAMPLES = 10
# Method, and the forward passes over the pool (and over the training data) it needs.
SCORED = {
    "deepgini": (1, 0), "maxp": (1, 0), "margin": (1, 0), "entropy": (1, 0), "random": (1, 0), "nss": (2, 0),
    "nss:reference=remutate": (2, 0), "nss+": (17, 0),
    f"mc-dropout:samples={SAMPLES}": (1 + SAMPLES, 0), f"bald:samples={SAMPLES}": (1 + SAMPLES, 0),
    "dsa": (1, 1), "mdsa": (1, 1), "lsa": (1, 1), "mlsa": (1, 1), "nearest": (1, 1),
    "nearest:inputs=none": (1, 1),
    "ctm:nac": (1, 0), "ats": (1, 0), "cam:nac": (1, 0),
    "adaptive": (1, 5), "prior-only": (1, 5), "adaptive:prior=none": (1, 0),
}  # fmt: skip
MILLION, FEW = 1_000_000, 20_000
# What scores each input by itself, one of each kind: lsa and mlsa keep what dsa keeps, mc-dropout and bald what deepgini keeps.
COUNTED = ("deepgini", "maxp", "margin", "entropy", "random", "mdsa", "dsa", "nss:reference=remutate")
TRAINED = ("mdsa", "dsa")


def select_pairs(name: str) -> Iterator[tuple[str, Pair]]:
    """Score, rank and pick, over bare passes; the pool is the subject's nss pool, in memory, unlabelled."""
    subject = zoo.find(name)
    mutants = data(f"zoo:{subject.dataset}/nss-pool@0")
    first = np.arange(min(POOL, len(mutants)))
    assert mutants.originals is not None
    pool = ArraySource(mutants.read(first), originals=ArraySource(mutants.originals.read(first)))
    whole = data(f"zoo:{subject.dataset}/train")
    module = subject.load()
    for method, (needed, trained) in SCORED.items():
        thinned = method.startswith(("mc-dropout", "bald"))
        network = nn.Sequential(nn.Dropout(0.1), module).eval() if thinned else module  # the LeNets have no dropout of their own
        here = pool.take(np.arange(min(len(pool), POOL // 5))) if needed > 2 else pool
        target = Target(network, shape=subject.shape)
        target.survey()
        train = whole.take(np.arange(min(len(whole), MOST if trained > 1 or method in ALL else TRAIN)))
        sources = [target.prepare(s.read(np.arange(len(s)))).split(BATCH) for s in (here, *[train] * trained)]
        ours = functools.partial(fresh, target, here, method, "5%", batch=BATCH, train=train if trained else None)
        yield method, (ours, passes(target, *sources, times=needed))


def fresh(*arguments: Any, **options: Any) -> None:
    """A selection that finds nothing in the cache."""
    before = os.environ.get("NEUROTEST_CACHE")
    with tempfile.TemporaryDirectory() as empty:
        os.environ["NEUROTEST_CACHE"] = empty
        try:
            select(*arguments, **options)
        finally:
            os.environ.pop("NEUROTEST_CACHE") if before is None else os.environ.update(NEUROTEST_CACHE=before)


class Generated(Source):
    """Inputs computed from their position when they are read: none is stored."""

    def __init__(self, count: int) -> None:
        super().__init__(count, (1, 4, 4), np.uint8)

    def _rows(self, index: NDArray[np.int64]) -> NDArray[Any]:
        mixed = (self.positions[index][:, None] * 16 + np.arange(16)).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        return (mixed >> np.uint64(56)).astype(np.uint8).reshape(-1, 1, 4, 4)

    def _keep(self, index: NDArray[np.int64]) -> None:
        return None


def memory(count: int = MILLION) -> dict[str, dict[str, float]]:
    """Peak memory while so many generated inputs are scored and ranked, and per input beyond what a few need."""
    torch.manual_seed(0)
    target = Target(nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 10)).eval(), shape=(1, 4, 4))
    sizes = {}
    few_inputs = min(FEW, count // 2)  # more than one batch, so that what a batch needs is in both
    for method in COUNTED:
        few, many = (_peak(target, method, size) for size in (few_inputs, count))
        sizes[method] = {"peak_megabytes": many / 1e6, "bytes_per_input": (many - few) / (count - few_inputs)}
    return sizes


def _peak(target: Target, method: str, count: int) -> int:
    """What Python and numpy hold at most; torch's share is one batch, whatever the count."""
    pool = Generated(count)
    train = Generated(200) if method in TRAINED else None
    select(target, Generated(100), method, "1%", train=train)  # what is imported and set up once is no matter of size
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        select(target, pool, method, "1%", batch=5000, train=train)
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
