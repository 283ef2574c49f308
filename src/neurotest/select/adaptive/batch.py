"""A batch that is worth labelling together: probable faults that are not all of one kind."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

WIDER = 4  # so many times the batch are looked at
NEAR = 10  # neighbours by which the width of a kind is found


def diverse(odds: Tensor, x: Tensor, predicted: Tensor, n: int, weight: float) -> np.ndarray:
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
