"""Selectors that look at the class probabilities only, and random, which looks at nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from torch import Tensor

from neurotest import rng
from neurotest.registry import register
from neurotest.select.scorer import OutputScorer, PerInput, Pool, Scorer, State, entropy
from neurotest.target import Trace

ONE_PASS = "one forward pass per input, 8 bytes kept per input"


@register(
    "selector", "deepgini", paper="Feng et al., DeepGini, ISSTA 2020", cost=ONE_PASS,
    differs="Softmax in float64, ties broken by position; the published code sorts float32 values with an unstable sort.",
)  # fmt: skip
class DeepGini(OutputScorer):
    """Score by 1 - sum(p^2): 0 is certain, 1 - 1/k a coin toss over k classes."""

    def score(self, probs: Tensor) -> Tensor:  # (n, k) -> (n,)
        return 1 - probs.square().sum(dim=1)


@register("selector", "maxp", paper="Hendrycks and Gimpel, ICLR 2017 (as a baseline)", cost=ONE_PASS)
class MaxP(OutputScorer):
    """Score by 1 - max(p): how little the most likely class gets."""

    def score(self, probs: Tensor) -> Tensor:  # (n, k) -> (n,)
        return 1 - probs.amax(dim=1)


@register("selector", "margin", paper="Scheffer et al., IDA 2001; PCS in later work", cost=ONE_PASS)
class Margin(OutputScorer):
    """Score by p(2) - p(1): the closer the two most likely classes, the earlier."""

    def score(self, probs: Tensor) -> Tensor:  # (n, k) -> (n,)
        top: Tensor = probs.topk(2, dim=1).values
        return top[:, 1] - top[:, 0]


@register("selector", "entropy", paper="Shannon 1948, as used for active learning", cost=ONE_PASS)
class Entropy(OutputScorer):
    """Score by -sum(p log2 p), in bits; 0 log 0 is 0."""

    def score(self, probs: Tensor) -> Tensor:  # (n, k) -> (n,)
        return entropy(probs)


@register("selector", "random", paper="the baseline of every table", cost="nothing beyond the forward pass that counts faults")
class Random(Scorer):
    """A seeded shuffle: what labelling without a method finds."""

    pointwise: ClassVar[bool] = False

    def start(self, pool: Pool) -> State:
        return _Shuffle(pool)


class _Shuffle(PerInput):
    def __init__(self, pool: Pool) -> None:
        self.scores = rng.stream("select.random", pool.seed).random(len(pool))

    def merge(self, index: np.ndarray, result: object) -> None:
        return None

    def update(self, index: np.ndarray, trace: Trace, partners: Sequence[Trace]) -> None:
        return None
