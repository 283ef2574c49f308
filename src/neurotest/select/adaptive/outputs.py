"""What the network says about some inputs, and how a head corrects it: all classes, or of many classes each input's likeliest."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

MANY = 64  # classes beyond which an input's likeliest are kept instead of all
SHORT = 12  # classes kept per input then; all others together count as one that is never corrected
RANK = 16  # numbers by which a head tells many classes apart
LIMIT = 6.0  # no log-odds beyond
CHUNK = 20_000


@dataclass(frozen=True)
class Outputs:
    """values (n, c): logits. Of all classes, or of those in `classes` (n, c - 1), the likeliest first, and the rest in one.

    embedding (count + 1, rank): each class by a few numbers, so that a head's cost does not grow with their number; the last
    row, of the rest, is zero.
    """

    values: Tensor
    classes: Tensor | None = None
    embedding: Tensor | None = None

    @classmethod
    def of(cls, logits: np.ndarray, classes: np.ndarray | None, embedding: np.ndarray | None) -> Outputs:
        values = torch.from_numpy(np.ascontiguousarray(logits)).double()
        if classes is None or embedding is None:
            return cls(values)
        return cls(values, torch.from_numpy(np.ascontiguousarray(classes)).long(), torch.from_numpy(embedding).double())

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, rows: Any) -> Outputs:
        return replace(self, values=self.values[rows], classes=None if self.classes is None else self.classes[rows])

    @property
    def count(self) -> int:
        return self.values.shape[1] if self.embedding is None else len(self.embedding) - 1

    @property
    def rank(self) -> int:
        """Columns of a head's coefficients."""
        return self.values.shape[1] if self.embedding is None else self.embedding.shape[1]

    @property
    def curvature(self) -> float:
        """Bound of the curvature of the log-sum in what a head adds: Boehning's half, or the variance of classes' directions."""
        return 0.5 if self.embedding is None else max(0.5, float(self.embedding.square().sum(dim=1).max()))

    @property
    def predicted(self) -> Tensor:
        return self.values.argmax(dim=1) if self.classes is None else self.classes[:, 0]

    def probs(self) -> Tensor:
        return self.values.softmax(dim=1)

    def log_probs(self) -> Tensor:
        """(n, count) of every class; those that have no column share what the last one has."""
        columns = self.values.log_softmax(dim=1)
        if self.classes is None:
            return columns
        rest = columns[:, -1:] - math.log(max(1, self.count - self.classes.shape[1]))
        return rest.expand(-1, self.count).clone().scatter_(1, self.classes, columns[:, :-1])

    def aims(self, labels: Tensor) -> Tensor:
        """(n, c) one where the label is; in the last column where it is none of the likeliest."""
        columns = labels
        if self.classes is not None:
            same = self.classes == labels[:, None]
            columns = torch.where(same.any(dim=1), same.int().argmax(dim=1), self.classes.shape[1])
        return torch.nn.functional.one_hot(columns, self.values.shape[1]).to(self.values)

    def vectors(self) -> Tensor | None:
        """(n, c, rank) the classes' numbers; None where every class has a column of its own."""
        if self.classes is None or self.embedding is None:
            return None
        rest = torch.full((len(self), 1), len(self.embedding) - 1)
        return self.embedding[torch.cat([self.classes, rest], dim=1)]

    def corrected(self, x: Tensor, head: Tensor) -> Outputs:
        """With what a head (d, rank) adds for features x (n, d)."""
        z = x @ head
        if self.classes is None:
            return replace(self, values=self.values + z)
        parts = [slice(i, i + CHUNK) for i in range(0, len(self), CHUNK)]
        added = [torch.einsum("ncr,nr->nc", self[part].vectors(), z[part]) for part in parts]
        return replace(self, values=self.values + torch.cat(added))

    def fault_odds(self, predicted: Tensor | None = None) -> Tensor:
        """(n,) log-odds that the class which the network predicted is not the true one.

        predicted: what it predicted, where these are corrected outputs of all classes.
        """
        column = torch.zeros(len(self), dtype=torch.int64) if self.classes is not None else predicted
        column = self.predicted if column is None else column
        ours = self.values.gather(1, column[:, None]).squeeze(1)
        others = self.values.scatter(1, column[:, None], -torch.inf).logsumexp(dim=1)
        return (others - ours).clamp(-LIMIT, LIMIT)

    def gini_odds(self) -> Tensor:
        return torch.logit(1 - self.probs().square().sum(dim=1), eps=1e-6).clamp(-LIMIT, LIMIT)


def shortened(logits: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """(n, SHORT + 1) the greatest logits and the log-sum of the others, and (n, SHORT) whose they are."""
    values, classes = logits.double().topk(SHORT, dim=1)
    rest = logits.double().scatter(1, classes, -torch.inf).logsumexp(dim=1, keepdim=True)
    return torch.cat([values, rest], dim=1).float().cpu().numpy(), classes.int().cpu().numpy()


def class_embedding(logits: Tensor) -> np.ndarray:
    """(classes + 1, RANK) a direction for each class, of length one, alike where logits of a sample (n, classes) vary alike.

    Of length one, so that to move a class costs a head as much as where each has a column of its own. The last row is zero.
    """
    centred = logits.double() - logits.double().mean(dim=1, keepdim=True)
    centred = centred - centred.mean(dim=0)
    _, _, right = torch.linalg.svd(centred, full_matrices=False)
    kept = right[:RANK].T
    kept = kept / kept.norm(dim=1, keepdim=True).clamp_min(1e-12)
    largest = kept.gather(0, kept.abs().argmax(dim=0, keepdim=True))
    kept = kept * torch.where(largest < 0, -1.0, 1.0)
    return torch.cat([kept, torch.zeros(1, kept.shape[1], dtype=torch.float64)]).cpu().numpy()
