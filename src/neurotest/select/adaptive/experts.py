"""The loop with a prior: five experts give log-odds, and a stack weighs them by what each said before the labels came."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from neurotest.select.adaptive import learner
from neurotest.select.adaptive.learning import Loop, Posterior
from neurotest.select.adaptive.outputs import LIMIT
from neurotest.select.adaptive.prior import Prior
from neurotest.select.adaptive.remaining import WIDER_SELF, Remaining, combined

WIDER = 4  # so many times the batch are looked at
NEAR = 10  # neighbours by which the width of a kind is found
EXPERTS = ("deepgini", "prior", "corrected", "regression", "head")
SPREAD, SPREAD_CONSTANT = 0.3, 1.0  # how far weights may stray from the prior's
SPREAD_LARGE, LOOSER = 0.6, 3.0  # with large batches: how far then, and by what the ridge is divided
LARGE_BATCH, FOLDS = 60, 2  # labels of a batch beyond which experts are judged within it, and in how many parts
LARGEST_DIVERSE = 2000  # the largest batch that is made diverse
DIVERSITY, DIVERSITY_FIRST = 0.5, 1.0  # what crowding costs in log-odds; in the first batch, before anything was learned here,
EXPLORED = 0.3  # of this share only
REGRESSION = 0.1  # the regression's weight before the first label
LEAD, LEAD_NATURAL = 1.0, 3.0  # nats by which the stack must predict labels better than DeepGini, where that is the start


def _diverse(odds: Tensor, x: Tensor, predicted: Tensor, n: int, weight: float) -> np.ndarray:
    """Positions of n candidates, one after the other: highest log-odds less `weight` times the log of how many alike there are.

    x (m, d) features, predicted (m,): alike are inputs of one predicted class, by a Gaussian of their distance. The k-th of a
    kind says less about the network than the first, and a kind that turns out to be no fault costs less.
    """
    top = torch.argsort(-odds, stable=True)[: WIDER * n]
    apart = torch.cdist(x[top], x[top]).square()
    width = apart.kthvalue(min(NEAR, len(top) - 1) + 1, dim=1).values.median().clamp_min(1e-12)
    alike = torch.exp(-apart / width) * (predicted[top][:, None] == predicted[top][None])
    score, crowd = odds[top].clone(), torch.zeros(len(top), dtype=odds.dtype)
    chosen: list[int] = []
    for _ in range(min(n, len(top))):
        best = int(torch.argmax(score - weight * torch.log1p(crowd)))
        chosen.append(best)
        crowd += alike[best]
        score[best] = -torch.inf
    return top[chosen].numpy()


@dataclass
class PriorLoop(Loop):
    """As `Loop`, with what was learned before the first label. Evidence: the log-odds of the five experts before the label."""

    prior: Prior | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        assert self.prior is not None
        self._kept: dict[tuple[int, int], dict[int, tuple[float, ...]]] = {}
        self.gini = self.gini.clamp(-LIMIT, LIMIT)
        self.corrected = self.outputs.corrected(self.x, self.prior.head)
        self.prior_odds = self.corrected.fault_odds(self.predictions)

    @property
    def doubted(self) -> bool:
        """Nothing true was learned beforehand, or the pool looks natural: DeepGini decides until the stack is ahead."""
        assert self.prior is not None
        return self.prior.guarded or not self.prior.trained

    @property
    def middle(self) -> Tensor:
        """Weights of constant and experts before the first label."""
        assert self.prior is not None
        constant, plain, head = self.prior.stack
        weights = [constant, plain, head / 2, head / 2, 0.0 if self.doubted else REGRESSION, 0.0]
        return torch.tensor(weights, dtype=torch.float64)

    def _best(self, free: np.ndarray, n: int) -> np.ndarray:
        """Of a large batch the inputs must not all be of one kind: nothing is learned before the last of them."""
        best = super()._best(free, n)
        if not LARGE_BATCH < n <= LARGEST_DIVERSE or (self.doubted and not self.posterior.trust):
            return best
        share, weight = (1.0, DIVERSITY) if self.labels else (EXPLORED, DIVERSITY_FIRST)
        kept = best[: n - round(share * n)]
        others = np.setdiff1d(np.arange(len(free)), kept)
        odds, some = self.posterior.odds[free], free[others]
        spread = others[_diverse(odds[others], self.x[some, :-1], self.predictions[some], n - len(kept), weight)]
        batch = np.concatenate([kept, spread])
        return np.asarray(batch[np.argsort(-odds[batch].numpy(), kind="stable")])

    def _learn(self) -> Posterior:
        labelled = self.labelled
        labels = torch.tensor([self.labels[p] for p in labelled.tolist()], dtype=torch.int64)
        experts = self._experts(labelled, labels)
        weights = self._weights(labelled, labels)
        odds = weights[0] + experts @ weights[1:]
        trust = 1 - float(weights[1] / weights[1:].sum().clamp_min(1e-9))
        return Posterior(odds, torch.sigmoid(experts[:, EXPERTS.index("corrected")]), trust, experts)

    def remaining(self) -> Remaining:
        """How many faults are left: by two models, corrected by the labels of random draws (`audit`)."""
        left = self.left
        wider = 1.0 if self.prior is not None and self.prior.trained else WIDER_SELF
        return combined(self.posterior.chance[left], torch.sigmoid(self.posterior.odds[left]), self.draws, self.faulty, wider)

    def _mix(self, experts: Tensor) -> Tensor:
        labelled = self.labelled
        weights = self._weights(labelled, torch.tensor([self.labels[p] for p in labelled.tolist()], dtype=torch.int64))
        return weights[0] + experts @ weights[1:]

    def _experts(self, labelled: np.ndarray, labels: Tensor, of: np.ndarray | None = None) -> Tensor:
        """(n, 5) what each expert says, having learned from these labels; of all candidates or some."""
        if not len(labelled):
            plain = self.outputs.fault_odds()
            return torch.stack([self.gini, self.prior_odds, self.prior_odds, torch.zeros_like(self.gini), plain], dim=1)
        faults, ridge = (labels != self.predictions[labelled]).double(), self.ridge / (LOOSER if self.large_batches else 1.0)
        rows = slice(None) if of is None else of
        wrong = self.x[rows] @ learner.fault_regression(self.x[labelled], faults, ridge)
        heads = [
            self._corrected(base, labelled, labels, of, ridge).fault_odds(self.predictions[rows])
            for base in (self.corrected, self.outputs)
        ]
        return torch.stack([self.gini[rows], self.prior_odds[rows], heads[0], wrong.clamp(-LIMIT, LIMIT), heads[1]], dim=1)

    def _numbers(self, labelled: np.ndarray) -> np.ndarray:
        """Of which proposal each label is; -1 of none."""
        last = {p: number for number, batch in enumerate(self.batches) for p in batch}
        return np.array([last.get(p, -1) for p in labelled.tolist()], dtype=np.int64)

    def _large(self, numbers: np.ndarray) -> list[tuple[int, np.ndarray]]:
        """The batches with many labels, at least half as many as all before: number, and where its labels stand."""
        places = [(number, np.flatnonzero(numbers == number)) for number in np.unique(numbers[numbers >= 0]).tolist()]
        return [
            (number, here)
            for number, here in places
            if len(here) > LARGE_BATCH and len(here) >= np.count_nonzero(numbers < number) / 2
        ]

    @property
    def large_batches(self) -> bool:
        """Whether labels came in large batches: then as much is to be learned from each as can be, in few steps."""
        return not self.doubted and bool(self._large(self._numbers(self.labelled)))

    def _crossed(self, labelled: np.ndarray, labels: Tensor) -> dict[int, tuple[float, ...]]:
        """What experts say about the labels of a large batch when they know the rest of it and all batches before.

        Before a batch as large as half of all labels that came earlier they knew so little that what they said shows nothing of
        what they are worth now.
        """
        numbers = self._numbers(labelled)
        evidence: dict[int, tuple[float, ...]] = {}
        for number, here in self._large(numbers):
            key = (number, int((numbers <= number).sum()))
            if key not in self._kept:
                self._kept[key] = {}
                for fold in range(FOLDS):
                    inside = here[fold::FOLDS]
                    others = np.setdiff1d(np.flatnonzero(numbers <= number), inside)
                    rows = self._experts(labelled[others], labels[others], labelled[inside]).tolist()
                    self._kept[key] |= dict(zip(labelled[inside].tolist(), map(tuple, rows), strict=True))
            evidence |= self._kept[key]
        return evidence

    def _weights(self, labelled: np.ndarray, labels: Tensor) -> Tensor:
        """Constant and weights of the experts: the prior's, moved by what each said about labels before they came."""
        evidence = self.evidence | self._crossed(labelled, labels)
        judged = [(i, *evidence[p]) for i, p in enumerate(labelled.tolist()) if p in evidence]
        middle = self.middle
        if not judged:
            return middle
        rows, *columns = (torch.tensor(column) for column in zip(*judged, strict=True))
        x = torch.stack(columns, dim=1).double()
        faults = (labels[rows] != self.predictions[labelled][rows]).double()
        hold = torch.full_like(middle, (SPREAD_LARGE if self.large_batches else SPREAD) ** -2)
        hold[0] = SPREAD_CONSTANT**-2
        ones = torch.ones(len(x), dtype=torch.float64)
        weights = learner.rising(x, faults, ones, middle, hold)
        if self.prior is not None and self.doubted:
            alone = learner.rising(x[:, :1], faults, ones, middle[:2], hold[:2])
            alone = torch.cat([alone, middle[2:]])
            fits = [learner.log_posterior(x, faults, w, middle, hold) for w in (weights, alone)]
            return weights if fits[0] - fits[1] >= (LEAD_NATURAL if self.prior.guarded else LEAD) else alone
        return weights
