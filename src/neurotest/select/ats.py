"""ATS: adaptive test selection by how much of the space of fault patterns an input covers."""

from __future__ import annotations

import bisect
import heapq
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from neurotest.checks import setting
from neurotest.errors import BadInput
from neurotest.registry import register
from neurotest.select.scorer import Pool, Scorer
from neurotest.target import Trace

UNITS = 100_000  # intervals end on multiples of 1e-5, so lengths are integers and ties are real
SURE = 0.99  # above this probability an input is put off to the end
MOST_CLASSES = 120  # classes: an input covers an edge for every two others, so beyond it memory runs out
REACH = 0.005  # of the distance to certainty, to each side
Ints = NDArray[np.int64]
Floats = NDArray[np.floating]


def _intervals(probs: Floats, own: int, *, projection: str = "fixed", radius: str = "linear") -> tuple[Ints, Ints]:
    """For inputs predicted as class `own`, what each covers of the edge between every two other classes: (n, pairs) twice.

    The three probabilities are projected onto the plane on which they sum to 1, and the ray from the predicted class's corner
    through that point is followed to the opposite edge. `published` writes the third coordinate over the second.
    """
    others = [c for c in range(probs.shape[1]) if c != own]
    if len(others) < 2:
        nothing = np.zeros((len(probs), 0), dtype=np.int64)
        return nothing, nothing
    p, q = (np.array(side) for side in zip(*itertools.combinations(others, 2), strict=True))
    one, two = 1 / 3, 2 / 3
    at_i, at_p, at_q = probs[:, [own]], probs[:, p], probs[:, q]  # (n, 1), (n, pairs) twice
    mine = (two * at_i - one * at_p - one * at_q + one).astype(np.float64)
    if projection == "fixed":
        edge = (two * at_p - one * at_q - one * at_i + one).astype(np.float64)
    else:
        edge = (two * at_q - one * at_p - one * at_i + one).astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        place = edge * (1 / (1 - mine))
    away = SURE - mine
    reach = REACH * away if radius == "linear" else 2 * REACH * np.log1p(np.maximum(away, 0))
    empty = ~((away >= 0) & (place >= 0))
    low, high = (np.round(np.where(empty, 0.0, place + side * reach), 5) for side in (-1, 1))
    high = np.minimum(high, 1.0)
    low = np.minimum(np.maximum(low, 0.0), high)
    whole = [np.where(empty, 0, np.rint(end * UNITS)).astype(np.int64) for end in (low, high)]
    return whole[0], whole[1]


class _Line:
    """What is covered of a line: disjoint intervals in order, and how much lies before each."""

    def __init__(self) -> None:
        self.low: Ints = np.array([-2], dtype=np.int64)  # a sentinel, so that every place has an interval before it
        self.high: Ints = np.array([-2], dtype=np.int64)
        self.before: Ints = np.zeros(1, dtype=np.int64)

    def covered(self, low: Ints, high: Ints) -> int:
        """How much of these disjoint intervals is covered already, in all."""
        ends = np.concatenate([low, high])
        at = self.low.searchsorted(ends, side="right") - 1
        until = self.before[at] + np.minimum(ends, self.high[at]) - self.low[at]
        return int(until[len(low) :].sum() - until[: len(low)].sum())

    def add(self, low: Ints, high: Ints) -> None:
        low, high = np.concatenate([self.low, low]), np.concatenate([self.high, high])
        order = np.argsort(low, kind="stable")
        low, reach = low[order], np.maximum.accumulate(high[order])
        first = np.concatenate([[True], low[1:] > reach[:-1]])
        last = np.concatenate([first[1:], [True]])
        self.low, self.high = low[first], reach[last]
        self.before = np.concatenate([[0], np.cumsum(self.high - self.low)[:-1]])


@dataclass(frozen=True)
class _Patterns:
    """The order within one predicted class: those that add something, with what they add, and the others with their length."""

    picked: list[int]
    added: list[int]
    rest: list[int]
    lengths: list[int]
    union: int


def _greedy(low: Ints, high: Ints, threshold: int) -> _Patterns:
    """Always take the input that adds most (the first of equals), until none adds more than the threshold.

    What an input adds can only fall, so an old value is a bound: only inputs whose bound reaches the top are looked at again.
    """
    low, high = _on_one_line(low, high)
    lengths = (high - low).sum(axis=1)
    line = _Line()
    picked: list[int] = []
    added: list[int] = []
    rest: list[int] = []
    heap = [(-int(length), i) for i, length in enumerate(lengths)]
    heapq.heapify(heap)
    fresh = np.full(len(low), -1)  # how many were picked when the bound was computed
    while heap:
        bound, i = heap[0]
        if -bound <= threshold:
            rest += [j for _, j in heap]
            break
        if fresh[i] == len(picked):
            heapq.heappop(heap)
            picked.append(i)
            added.append(-bound)
            line.add(low[i], high[i])
            continue
        fresh[i] = len(picked)
        gain = int(lengths[i]) - line.covered(low[i], high[i])
        if gain > threshold:
            heapq.heapreplace(heap, (-gain, i))
        else:
            heapq.heappop(heap)
            rest.append(i)
    rest.sort(key=lambda j: (-lengths[j], j))
    return _Patterns(picked, added, rest, [int(lengths[j]) for j in rest], int((line.high - line.low).sum()))


def _on_one_line(low: Ints, high: Ints) -> tuple[Ints, Ints]:
    """The intervals of all edges one after the other, with gaps between the edges."""
    offset = np.arange(low.shape[1], dtype=np.int64) * (2 * UNITS)
    return low + offset, high + offset


def _published_greedy(low: Ints, high: Ints, threshold: int) -> _Patterns:
    """As the code keeps its books: a list of bounds, sorted when it begins and mended as it goes. Of equal gains the one with the
    higher bound wins, and what is set aside is looked up in that list by number, not by place."""
    low, high = _on_one_line(low, high)
    own = (high - low).sum(axis=1).tolist()
    who = sorted(range(len(low)), key=lambda i: own[i])
    bound = [own[i] for i in who]
    line, done = _Line(), set[int]()
    picked: list[int] = []
    added: list[int] = []
    while True:
        next_who, next_bound, best, chosen = list(who), list(bound), 0, -1
        for at in range(len(who) - 1, -1, -1):
            i = who[at]
            if i in done:
                continue
            gain = own[i] - line.covered(low[i], high[i])
            if gain <= threshold:
                done.add(i)
                continue
            if gain > best:
                best, chosen = gain, i
            if at and best >= bound[at - 1]:
                break
            next_bound.remove(bound[at])
            next_who.remove(i)
            place = bisect.bisect(next_bound, gain)
            next_who.insert(place, i)
            next_bound.insert(place, gain)
        if chosen < 0:
            break
        picked.append(chosen)
        added.append(best)
        done.add(chosen)
        line.add(low[chosen], high[chosen])
        who, bound = next_who, next_bound
    aside = done - set(picked)
    rest = [who[i] for i in who if who[i] in aside]
    return _Patterns(picked, added, rest, [bound[i] for i in rest], int((line.high - line.low).sum()))


@register(
    "selector",
    "ats",
    paper="Gao et al., Adaptive Test Selection for Deep Neural Networks, ICSE 2022, as its authors' code has it",
    cost="one forward pass per input; 8 bytes kept per class for every input of which the network is not sure, and 16 per pair "
    "of classes for one predicted class at a time while the order is made",
    presets={"code": {"projection": "published", "books": "published"}},
    differs="The third coordinate of the projection goes where it belongs; the published code overwrites the second with it "
    "(`projection=published`, hardly any difference). Inputs set aside are ordered by their own lengths; the code looks the "
    "length of one up under the number of another (`books=published`). An empty class, or one the network is always sure of, is "
    "left out; the code crashes. Lengths are whole multiples of 1e-5, so that ties are real ones and keep the pool's order.",
)
class ATS(Scorer):
    """Score by how much an input adds to the fault patterns that those before it cover, within its predicted class.

    Inputs that add no more than `threshold` come next, those with a probability above 0.99 last, shuffled. projection: `fixed` or
    `published`. radius: `linear` in the distance to certainty, or `log`. books: `sound`, or `published` for ties and set-aside
    inputs as in the published code (slow).
    """

    threshold: float = setting(0.001, "the paper's code uses 0.001", least=0)
    projection: Literal["fixed", "published"] = "fixed"
    radius: Literal["linear", "log"] = "linear"
    books: Literal["sound", "published"] = "sound"

    pointwise: ClassVar[bool] = False

    def start(self, pool: Pool) -> _Unsure:
        return _Unsure(self, len(pool), pool.seed)

    def scores(self, probs: Floats, predicted: Ints, index: Ints, n: int) -> NDArray[np.float64]:
        """Scores of n inputs; `probs` and `predicted` are given for those in `index`, the network is sure of the others."""
        limit = round(self.threshold * UNITS)
        rule = _greedy if self.books == "sound" else _published_greedy
        picked: list[tuple[int, int]] = []  # input, what it adds
        rest: list[tuple[int, int]] = []  # input, its length
        for own in np.unique(predicted).tolist():
            here = np.flatnonzero(predicted == own)
            patterns = rule(*_intervals(probs[here], own, projection=self.projection, radius=self.radius), limit)
            picked += zip(index[here[patterns.picked]].tolist(), patterns.added, strict=True)
            rest += zip(index[here[patterns.rest]].tolist(), patterns.lengths, strict=True)
        scores = np.full(n, np.nan)
        beyond = max(limit, 0.5) / UNITS  # below what any pick adds
        for sized, top in ((picked, None), (rest, beyond)):
            if self.books == "published":
                sized.sort(key=lambda one: -one[1])
            for place, (i, size) in enumerate(sized):
                late = place * 1e-6 / n if self.books == "published" else 0.0  # equal lengths: by class, then as they were picked
                scores[i] = (size - late) / UNITS if top is None else top * (size - late + 1) / (size - late + 1 + UNITS)
        return scores


class _Unsure:
    """Keeps the probabilities of the inputs that the network is not sure of."""

    def __init__(self, method: ATS, n: int, seed: int) -> None:
        self.method, self.n, self.seed = method, n, seed
        self.unsure: list[tuple[np.ndarray, Floats, Ints]] = []  # positions, probabilities, predictions
        self.sure: list[tuple[np.ndarray, Ints]] = []  # positions, predictions

    def update(self, index: np.ndarray, trace: Trace, partners: Sequence[Trace]) -> None:
        probs, predicted = trace.probs.cpu().numpy(), trace.predictions.cpu().numpy()
        if not 3 <= (k := probs.shape[1]) <= MOST_CLASSES:
            raise BadInput(
                "unsuitable",
                "classes",
                f"ats looks at pairs of classes beside the predicted one: {k} classes, expected 3 to {MOST_CLASSES}; "
                "use deepgini.",
            )
        unsure = probs[np.arange(len(probs)), predicted] < SURE
        self.unsure.append((index[unsure], probs[unsure], predicted[unsure]))
        self.sure.append((index[~unsure], predicted[~unsure].astype(np.int32)))

    def value(self) -> np.ndarray:
        index, probs, predicted = (np.concatenate(parts) for parts in zip(*self.unsure, strict=True))
        order = np.argsort(index, kind="stable")  # the first of equals is the first of the pool, however it was scanned
        scores = self.method.scores(probs[order], predicted[order], index[order], self.n)
        sure, of = (np.concatenate(parts) for parts in zip(*self.sure, strict=True))
        by_class = sure[np.lexsort((sure, of))]
        shuffled = by_class[np.random.RandomState(self.seed % 2**32).permutation(len(by_class))]  # as the code does it
        scores[shuffled] = -np.arange(1, len(sure) + 1) / (len(sure) + 1)
        return scores
