"""ADAPT: a strategy is a vector over features of neurons, and strategies that cover much have offspring."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from neurotest import rng
from neurotest.checks import setting
from neurotest.generate.differential.dlfuzz import Chosen, DLFuzz, Numbers, Selector
from neurotest.generate.differential.ensemble import Covered, Ensemble, Neurons
from neurotest.jobs.parts import Arrays
from neurotest.registry import register

FEATURES = 29
KINDS = ("normalisation", "pooling", "convolution", "dense", "activation", "join", "other")
BANDS = np.array([0.1, 0.2, 0.3, 0.4, 0.5])  # of the weights, from the largest
TENTHS = np.arange(1, 10) / 10
SPREAD = 0.2  # of the noise that children get; strategies are in [-1, 1]
MEMORY = 3  # generations whose strategies may be parents


@register(
    "differential",
    "adapt",
    paper="Lee, Cha, Lee and Oh, Effective White-Box Testing of Deep Neural Networks with Adaptive Neuron-Selection Strategy, "
    "ISSTA 2020",
    cost="as dlfuzz, and one product of features and strategies per image",
    differs="Experimental. Only the choice of neurons is ADAPT's; the loop around it is DLFuzz's, whose aim has the "
    "runners-up in it. One population of strategies serves all seeds, where the published tool begins anew for every input, and "
    "it has 24 members instead of 100. The features are the 29 of the published code, of which one weight band is empty there "
    "and not here; normalisation, pooling and joins are not distinguished here, so three of the seven kinds of layer stay 0.",
    main="population",
)
class Adapt(DLFuzz):
    """DLFuzz with neurons chosen by strategies that evolve: features of a neuron x strategy is its score, the best are driven up.

    population: strategies at work. When each was used, those that together cover most become parents of the next.
    """

    name: ClassVar[str] = "adapt"
    population: int = setting(24, "24")

    def selector(self, ensemble: Ensemble, random: int) -> Selector:
        return _Evolving(ensemble.neurons[0], self.population, random)


class _Evolving:
    """The population, what each strategy has covered, and the features that change as testing goes on."""

    def __init__(self, neurons: Neurons, population: int, random: int) -> None:
        self.random, self.generation, self.used = random, 0, 0
        self.fixed = _constant_features(neurons)
        self.strategies = rng.stream("diff.adapt", random, 0).uniform(-1, 1, (population, FEATURES))
        self.covered = np.zeros((population, len(neurons)), dtype=bool)
        self.past = (np.empty((0, FEATURES)), np.empty((0, len(neurons)), dtype=bool))
        self.failing = np.zeros(len(neurons), dtype=bool)  # covered by inputs that failed
        self.which = np.empty(0, dtype=np.int64)

    def choose(self, counts: NDArray[np.int64], scaled: Numbers, uniforms: Numbers, m: int) -> Chosen:
        if self.used >= len(self.strategies):
            self._evolve()
        features = np.hstack([self.fixed, _changing_features(counts, self.failing)])
        scores = self.strategies @ features.T  # (population, neurons)
        self.which = (self.used + np.arange(len(scaled))) % len(self.strategies)
        self.used += len(scaled)
        ranked = scores[self.which] + 1e-9 * uniforms  # equal scores are common: features are 0 or 1
        return np.asarray(np.argpartition(-ranked, m - 1, axis=1)[:, :m], dtype=np.int64)

    def learn(self, covered: Covered, failed: NDArray[np.bool_]) -> None:
        np.logical_or.at(self.covered, self.which, covered)
        self.failing |= covered[failed].any(0)

    def _evolve(self) -> None:
        """Parents: the half that together cover most, out of the last generations; children mix two and change a little."""
        self.generation += 1
        size = len(self.strategies)
        candidates = np.vstack([self.past[0], self.strategies])[-MEMORY * size :]
        covered = np.vstack([self.past[1], self.covered])[-MEMORY * size :]
        parents = candidates[_cover_most(covered, max(1, size // 2))]
        stream = rng.stream("diff.adapt", self.random, self.generation)
        pairs = parents[stream.integers(len(parents), size=(size, 2))]
        mixed = np.where(stream.random((size, FEATURES)) < 0.5, pairs[:, 0], pairs[:, 1])
        self.past = (candidates, covered)
        self.strategies = np.clip(mixed + stream.normal(0, SPREAD, mixed.shape), -1, 1)
        self.covered, self.used = np.zeros((size, covered.shape[1]), dtype=bool), 0

    def arrays(self) -> Arrays:
        return {
            "strategies": self.strategies,
            "strategy_covered": self.covered,
            "past": self.past[0],
            "past_covered": self.past[1],
            "failing": self.failing,
            "adapted": np.array([self.generation, self.used]),
        }

    def restore(self, arrays: Arrays) -> None:
        self.strategies, self.covered = arrays["strategies"], arrays["strategy_covered"]
        self.past, self.failing = (arrays["past"], arrays["past_covered"]), arrays["failing"]
        self.generation, self.used = (int(n) for n in arrays["adapted"])


def _cover_most(covered: Covered, n: int) -> NDArray[np.int64]:
    """n rows, one after the other the one that adds most to those before it; the earlier of two equal ones."""
    left, chosen = covered.copy(), []
    free = np.ones(len(covered), dtype=bool)
    for _ in range(min(n, len(covered))):
        gains = np.where(free, left.sum(1), -1)
        best = int(gains.argmax())
        chosen.append(best)
        free[best] = False
        left &= ~covered[best]
    return np.array(chosen, dtype=np.int64)


def _constant_features(neurons: Neurons) -> Numbers:
    """(neurons, 17): which quarter of the layers, which band of weights, which kind of layer."""
    features = np.zeros((len(neurons), 17))
    rows = np.arange(len(neurons))
    features[rows, np.minimum(3, (neurons.place * 4).astype(int))] = 1
    rank = np.empty(len(neurons))
    rank[np.argsort(-neurons.weights, kind="stable")] = np.arange(len(neurons)) / len(neurons)
    features[rows, 4 + np.searchsorted(BANDS, rank, side="right")] = 1
    features[rows, 10 + np.array([KINDS.index(kind if kind in KINDS else "other") for kind in neurons.kinds])] = 1
    return features


def _changing_features(counts: NDArray[np.int64], failing: NDArray[np.bool_]) -> Numbers:
    """(neurons, 12): covered by a failing input, never covered, and else which tenth by how often it was."""
    features = np.zeros((len(counts), 12))
    features[failing, 0] = 1
    features[counts == 0, 1] = 1
    seen = np.flatnonzero(counts > 0)
    order = seen[np.argsort(-counts[seen], kind="stable")]
    if len(order):
        tenth = np.searchsorted(TENTHS, np.arange(len(order)) / len(order), side="right")
        features[order, 2 + tenth] = 1
    return features
