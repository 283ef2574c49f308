"""Estimators: which few inputs to label to know the accuracy on all. They do not hunt faults."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from neurotest import rng
from neurotest.checks import setting
from neurotest.registry import register
from neurotest.select.scorer import Hidden, HiddenState, Pool

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


def as_scores(picks: Ints, n: int) -> Floats:
    """Scores along which the picks come in their order, then the others in theirs."""
    scores = np.zeros(n)
    scores[picks] = np.arange(len(picks), 0, -1)
    return scores


def _sections(values: NDArray[np.floating], count: int) -> Ints:
    """Which of `count` equal parts of its neuron's range each value lies in, ends included: (n, neurons)."""
    low, high = values.min(axis=0), values.max(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        place = np.nan_to_num((values - low) / (high - low) * count)
    return np.asarray(place.astype(np.int64).clip(0, count - 1))


def _published_sections(values: NDArray[np.floating], edges: int) -> Ints:
    """As the code has it: `edges` edges make one part fewer, and a value on an edge (a ReLU's zeros) lies in none (-1)."""
    cuts = np.linspace(values.min(axis=0), values.max(axis=0), edges).astype(values.dtype)  # (edges, neurons)
    result = np.full(values.shape, -1, dtype=np.int64)
    for part in range(edges - 1):
        result[(values > cuts[part]) & (values < cuts[part + 1])] = part
    return result


@dataclass(eq=False)
class _Table:
    """How often the values of each neuron lie in each part, over the pool."""

    parts: Ints  # (n, neurons), -1: in none
    count: int

    def __post_init__(self) -> None:
        self.whole: Floats = self.tally(np.arange(len(self.parts))) / len(self.parts)  # (neurons, count)

    def tally(self, index: Ints) -> Ints:
        """How many of these inputs lie in each part: (neurons, count)."""
        parts = self.parts[index]  # (m, neurons)
        return np.stack([np.count_nonzero(parts == part, axis=0) for part in range(self.count)], axis=1)

    def entropy(self, tallies: NDArray[Any], size: int) -> Floats:
        """Sum over parts of P(pool) log P(sample), per neuron; parts too rare to be hit by so many do not count."""
        log = np.log(np.clip(tallies / size, 1e-10, 1 - 1e-10))
        weight = np.where(self.whole < 0.5 / size, 0.0, self.whole)
        return np.asarray((log * weight).sum(axis=-1))

    def closeness(self, tallies: NDArray[Any], size: int) -> Floats:
        """The negative cross entropy, mean over neurons."""
        return np.asarray(self.entropy(tallies, size).mean(axis=-1))


def _grow(
    table: _Table, size: int, random: Any, *, first: int = 30, group: int = 5, tries: int = 30, repeats: bool = False
) -> Ints:
    """Start with `first` random inputs; of `tries` random groups always add the one that brings the sample closest to the pool,
    or a random one when none brings it closer. repeats: draw from all inputs, so that some come twice, as the code does."""
    n = len(table.parts)
    picks = np.asarray(random.choice(n, replace=False, size=min(first, size)))
    while len(picks) < size:
        left = np.arange(n) if repeats else np.setdiff1d(np.arange(n), picks)
        many = len(left)
        order = left[random.permutation(many)]
        tally, now = table.tally(picks), len(picks)
        before = table.closeness(tally, now)
        starts = [int(random.uniform(0, max(1, many - group))) for _ in range(tries)]
        groups = [order[start : start + group] for start in starts]
        ahead = [float(table.closeness(tally + table.tally(g), now + len(g))) for g in groups]
        best = int(np.argmax(ahead))
        chosen = groups[best] if ahead[best] > before else left[random.choice(many, replace=False, size=min(group, many))]
        picks = np.append(picks, chosen)
    return picks[:size] if not repeats else picks


@register(
    "estimator",
    "ces",
    paper="Li et al., Boosting Operational DNN Testing Efficiency through Conditioning, ESEC/FSE 2019",
    cost="one forward pass per input; 4 bytes kept per hidden unit and input, 8 more while it picks",
    presets={"code": {"edges": "published"}},
    differs="Five sections per unit, ends included; the published code's five edges make four and drop every value that lies on "
    "one, the zeros of ReLUs among them (`edges=published`). No input is picked twice.",
)
class CES(Hidden):
    """Pick inputs whose last hidden layer is distributed like the pool's (cross entropy), so that their accuracy is its.

    edges: `closed` or `published`. sections: parts of every unit's range. group: how many are added at a time. layer, neuron:
    where activations are taken from.
    """

    edges: Literal["closed", "published"] = "closed"
    sections: int = setting(5, "the paper's code uses 5", least=2)
    group: int = setting(5, "the paper's code uses 5")

    pointwise: ClassVar[bool] = False

    def table(self, values: NDArray[np.floating]) -> _Table:
        if self.edges == "published":
            return _Table(_published_sections(values, self.sections), self.sections - 1)
        return _Table(_sections(values, self.sections), self.sections)

    def start(self, pool: Pool) -> _Alike:
        return _Alike(self, pool)


class _Alike(HiddenState):
    """Holds the activations, then grows the sample."""

    method: CES

    def value(self) -> np.ndarray:
        self.check("ces")
        random = rng.stream("select.ces", self.pool.seed)
        picks = _grow(self.method.table(self.values), self.pool.picked, random, group=self.method.group)
        return as_scores(picks, len(self.pool))

    def weights(self) -> Floats:
        return np.full(self.pool.picked, 1 / self.pool.picked)
