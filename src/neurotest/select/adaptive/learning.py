"""The loop of adaptive selection: propose a batch, take its labels, learn, propose the next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from neurotest import rng
from neurotest.errors import BadInput
from neurotest.select.adaptive import learner
from neurotest.select.adaptive.features import Facts
from neurotest.select.adaptive.outputs import Outputs
from neurotest.select.adaptive.remaining import Draw, Remaining, between, modelled, sampled
from neurotest.select.suspects import evidence

HEAD, REGRESSION = 2 / 3, 1 / 3  # shares in log-odds
ANCHORS, ANCHOR = 500, 0.1  # unlabelled candidates that hold the head to the network, and what each counts
LEAST_TRUST = 0.2  # trust in the learner below which DeepGini decides alone: the start is DeepGini's
SUSPICIOUS = 3.0  # log-odds against a label: a network that gives another class 90 %, and nine of ten neighbours agree with it
FLAT = 0.25
UNCLEAR = -1  # a label that says: cannot tell


@dataclass
class Loop:
    """Labels in, proposals out. `facts` is what one scan of the pool gave; every method is a function of it and the labels.

    audit: share of every proposal that is drawn at random, so that `remaining` knows instead of believing.
    """

    facts: Facts
    ridge: float = 30.0
    seed: int = 0
    audit: float = 0.0
    labels: dict[int, int] = field(default_factory=dict)  # by position; UNCLEAR where nobody could tell
    evidence: dict[int, tuple[float, ...]] = field(default_factory=dict)  # log-odds of each expert, before the label
    draws: list[Draw] = field(default_factory=list)
    batches: list[tuple[int, ...]] = field(default_factory=list)  # positions that were proposed together
    _now: Posterior | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        self.outputs = self.facts.outputs
        probs = self.outputs.probs()
        self.predictions = self.outputs.predicted
        self.confidence = probs.amax(dim=1)
        self.gini = learner.log_odds(1 - probs.square().sum(dim=1))
        x = torch.from_numpy(np.ascontiguousarray(self.facts.features)).double()
        self.x = torch.cat([x, torch.ones(len(x), 1, dtype=torch.float64)], dim=1)
        shuffled = rng.stream("select.anchors", self.seed).permutation(len(self.facts))
        self.anchors = np.sort(shuffled[:ANCHORS])

    def propose(self, n: int, without: Sequence[int] = ()) -> np.ndarray:
        """The n candidates without label that are most probably faults, best first; an audit's random ones come last.

        without: candidates that somebody is looking at already.
        """
        left = np.setdiff1d(self.left, np.asarray(without, dtype=np.int64)) if len(without) else self.left
        if n < 1:
            raise BadInput("out-of-range", "n", f"n={n}: expected an integer >= 1.")
        if not len(left):
            raise BadInput("empty", "pool", "every candidate of the pool has a label: there is nothing left to propose.")
        n = min(n, len(left))
        drawn = self._draw(left, n)
        free = np.setdiff1d(left, drawn)
        best = free[self._best(free, n - len(drawn))]
        batch: np.ndarray = np.concatenate([best, drawn])
        self.record_odds(batch)
        return batch

    def _best(self, free: np.ndarray, n: int) -> np.ndarray:
        """Which n of the free candidates to label next."""
        return torch.argsort(-self.posterior.odds[free], stable=True).numpy()[:n]

    def _draw(self, left: np.ndarray, n: int) -> np.ndarray:
        """The audit's share of a proposal: every candidate that is left has the same chance."""
        if not self.audit:
            return left[:0]
        count = max(1, round(self.audit * n))
        drawn = np.sort(rng.stream("select.audit", self.seed, len(self.draws)).permutation(left)[:count])
        posterior = self.posterior
        expected = between(float(posterior.chance[drawn].sum()), float(torch.sigmoid(posterior.odds[drawn]).sum()))
        self.draws.append(Draw(tuple(drawn.tolist()), frozenset(self.labels), expected))
        return drawn

    def record_odds(self, positions: np.ndarray) -> None:
        """Write down the log-odds of these before their labels come."""
        rows = self.posterior.experts[positions].tolist()
        self.evidence.update(zip(positions.tolist(), map(tuple, rows), strict=True))
        self.batches.append(tuple(positions.tolist()))

    def tell(self, indices: ArrayLike, labels: ArrayLike) -> None:
        """Labels of some candidates; -1 where people could not tell. A second, different label is refused."""
        where, numbers = np.asarray(indices).ravel(), np.asarray(labels).ravel()
        self._check(where, numbers)
        self.labels.update(zip(where.tolist(), numbers.tolist(), strict=True))
        self._now = None

    def _check(self, where: np.ndarray, labels: np.ndarray) -> None:
        n, classes = len(self.outputs), self.outputs.count
        if len(where) != len(labels):
            raise BadInput(
                "wrong-count", "labels", f"{len(where)} indices, but {len(labels)} labels: expected one label per index."
            )
        if not len(where):
            return
        if not (np.issubdtype(where.dtype, np.integer) and np.issubdtype(labels.dtype, np.integer)):
            raise BadInput("wrong-type", "labels", "indices and labels are integers: positions in the pool and class numbers.")
        if where.min() < 0 or where.max() >= n:
            raise BadInput(
                "out-of-range",
                "index",
                f"index {int(where.max() if where.max() >= n else where.min())} is not in the pool: 0 to {n - 1}.",
            )
        if labels.min() < UNCLEAR or labels.max() >= classes:
            raise BadInput(
                "out-of-range",
                "label",
                f"label {int(labels.max())}: the target has {classes} classes, 0 to {classes - 1} (-1: cannot tell).",
            )
        new: dict[int, int] = {}
        for position, label in zip(where.tolist(), labels.tolist(), strict=True):
            before = new.get(position, self.labels.get(position))
            if before is not None and before != label:
                raise BadInput(
                    "conflict", "label", f"input {position} has label {before} already, and now {label}: keep one of the two."
                )
            new[position] = label

    @property
    def left(self) -> np.ndarray:
        """Positions without a label, in the pool's order."""
        free = np.ones(len(self.facts), dtype=bool)
        free[list(self.labels)] = False
        return np.flatnonzero(free)

    @property
    def labelled(self) -> np.ndarray:
        """Positions with a label, sorted, so that the order in which labels came changes nothing."""
        return np.array(sorted(p for p, label in self.labels.items() if label != UNCLEAR), dtype=np.int64)

    @property
    def faulty(self) -> dict[int, bool]:
        """By position, whether a label says that the network is wrong; without those that say: cannot tell."""
        predicted = self.predictions.tolist()
        return {p: label != predicted[p] for p, label in self.labels.items() if label != UNCLEAR}

    @property
    def faults(self) -> int:
        """How many labels say that the network is wrong."""
        return sum(self.faulty.values())

    @property
    def posterior(self) -> Posterior:
        if self._now is None:
            self._now = self._learn()
        return self._now

    def _learn(self) -> Posterior:
        labelled = self.labelled
        if not len(labelled):
            return self._mixed(self.gini, self.gini, 0.0, 1 - self.confidence)
        labels = torch.tensor([self.labels[p] for p in labelled.tolist()])
        faults = (labels != self.predictions[labelled]).double()
        intercept, slope = learner.scale(self.gini[labelled], faults)
        plain = intercept + max(slope, FLAT) * self.gini  # inputs the learner chose must not turn DeepGini's order round
        chance = self._head(labelled, labels)
        wrong = self.x @ learner.fault_regression(self.x[labelled], faults, self.ridge)
        learned = HEAD * learner.log_odds(chance) + REGRESSION * wrong
        return self._mixed(plain, learned, self._trust(labelled, faults), chance)

    def _mixed(self, plain: Tensor, learned: Tensor, trust: float, chance: Tensor) -> Posterior:
        return Posterior((1 - trust) * plain + trust * learned, chance, trust, torch.stack([plain, learned], dim=1))

    def _head(self, labelled: np.ndarray, labels: Tensor) -> Tensor:
        """Fault probabilities: one minus what the corrected head gives to the class the network predicts."""
        probs = self._corrected(self.outputs, labelled, labels).probs()
        column = self.predictions if self.outputs.classes is None else torch.zeros_like(self.predictions)
        return 1 - probs.gather(1, column[:, None]).squeeze(1)

    def _corrected(
        self, base: Outputs, labelled: np.ndarray, labels: Tensor, of: np.ndarray | None = None, ridge: float | None = None
    ) -> Outputs:
        """By a head learned from the pool's labels on top of `base`, to which anchors hold it; of all candidates or some."""
        anchors = np.setdiff1d(self.anchors, labelled)
        rows = np.concatenate([labelled, anchors])
        some = base[rows]
        aims = some.probs()
        aims[: len(labelled)] = base[labelled].aims(labels)
        weights = torch.cat([torch.ones(len(labelled)), torch.full((len(anchors),), ANCHOR)]).double()
        head = learner.corrected_head(self.x[rows], some, aims, weights, self.ridge if ridge is None else ridge)
        return base.corrected(self.x, head) if of is None else base[of].corrected(self.x[of], head)

    def _trust(self, labelled: np.ndarray, faults: Tensor) -> float:
        """From the log-odds before the labels came. The first batch does not count: there the learner had learned nothing.

        Until it has earned some trust it does not count, so that a start cannot be worse than DeepGini's.
        """
        judged = [
            (i, *self.evidence[p])
            for i, p in enumerate(labelled.tolist())
            if p in self.evidence and len(set(self.evidence[p])) > 1
        ]
        if not judged:
            return 0.0
        rows, plain, learned = (torch.tensor(column) for column in zip(*judged, strict=True))
        trust = learner.stack(plain.double(), learned.double(), faults[rows])
        return trust if trust >= LEAST_TRUST else 0.0

    # for people

    @property
    def chances(self) -> np.ndarray:
        """(n,) Probability that each candidate is a fault; for labelled ones without using their own label."""
        return torch.sigmoid(self.posterior.odds).numpy()

    def expected_rate(self, n: int) -> float:
        """Expected share of faults in the next batch, corrected by how the last promises were kept."""
        left = self.left
        if not len(left):
            return 0.0
        odds = self.posterior.odds[left].sort(descending=True).values[:n]
        intercept, slope = self._calibration()
        return float(torch.sigmoid(intercept + slope * odds).mean())

    def compared(self) -> Compared:
        """Faults found so far beside those among as many of DeepGini's first; where one of those has no label, its chance.

        By the corrected head, because the stack is calibrated on inputs that were chosen, nearly all of them faults, and
        believes too many of DeepGini's others to be faults.
        """
        labelled = self.labelled
        first = torch.argsort(-self.gini, stable=True).numpy()[: len(labelled)]
        faulty = self.faulty
        shared = [faulty[p] for p in first.tolist() if p in faulty]
        others = torch.from_numpy(np.setdiff1d(first, labelled))
        guess = float(self.posterior.chance[others].sum())
        return Compared(len(labelled), sum(faulty.values()), sum(shared) + guess, len(shared))

    def _calibration(self, window: int = 100) -> tuple[float, float]:
        recent = [p for p in self.labels if p in self.evidence and self.labels[p] != UNCLEAR][-window:]
        if not recent:
            return 0.0, 1.0
        recent.sort()
        odds = self._mix(torch.tensor([self.evidence[p] for p in recent], dtype=torch.float64))
        faults = torch.tensor([float(self.labels[p] != int(self.predictions[p])) for p in recent], dtype=torch.float64)
        return learner.scale(odds, faults, strength=20.0)

    def _mix(self, experts: Tensor) -> Tensor:
        """The log-odds that follow from what the experts said (n, experts), weighed as now."""
        return (1 - self.posterior.trust) * experts[:, 0] + self.posterior.trust * experts[:, 1]

    def remaining(self) -> Remaining:
        """How many faults are left: by the labels of random draws (`audit`), or else by what the model believes."""
        left = self.left
        measured = sampled(self.draws, self.faulty, len(self.facts), len(left))
        return measured or modelled(self.posterior.chance[left], torch.sigmoid(self.posterior.odds[left]))

    def suspects(self) -> np.ndarray:
        """Labelled inputs whose label is probably wrong: the network and the inputs most like this one speak for another class.

        Neighbours without a label count for what the network predicts. Inputs that were proposed because the network is probably
        wrong on them are left out: there its word against the label means nothing.
        """
        labelled = self.labelled
        labels = np.array([self.labels[p] for p in labelled.tolist()], dtype=np.int64)
        votes = self.predictions.numpy().copy()
        votes[labelled] = labels
        log_probs = self.outputs[labelled].log_probs().numpy()
        against = evidence(log_probs, labels, labelled, self.x[:, :-1].numpy(), votes).margin > SUSPICIOUS
        proposed = [i for i, p in enumerate(labelled.tolist()) if p in self.evidence]
        if proposed:
            odds = self._mix(torch.tensor([self.evidence[int(labelled[i])] for i in proposed], dtype=torch.float64))
            against[proposed] &= (odds < 0).numpy()
        suspicious: np.ndarray = labelled[against]
        return suspicious

    def restore(
        self,
        labels: Mapping[int, int],
        evidence: Mapping[int, tuple[float, ...]],
        draws: Sequence[Draw] = (),
        batches: Sequence[Sequence[int]] = (),
    ) -> None:
        """Take up what was saved."""
        self.labels, self.evidence, self.draws, self._now = dict(labels), dict(evidence), list(draws), None
        self.batches = [tuple(batch) for batch in batches]


class Compared(NamedTuple):
    """Labels and faults so far, the faults DeepGini would have found with as many labels, and how many of its picks have one."""

    labels: int
    faults: int
    deepgini: float
    shared: int


@dataclass(frozen=True)
class Posterior:
    """Log-odds of every candidate, the corrected head's own fault probability, how far the learner is trusted, and what each
    expert says: (n, experts) log-odds."""

    odds: Tensor
    chance: Tensor
    trust: float
    experts: Tensor
