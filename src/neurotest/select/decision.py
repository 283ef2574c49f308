"""nss+: sensitivity that needs no original. What counts is the decision, not the activations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from neurotest.checks import integer
from neurotest.mutate.mild import CHANGES
from neurotest.registry import register
from neurotest.select.scorer import Partner, Pool
from neurotest.target import Trace, Want


@register(
    "selector",
    "nss+",
    paper="ours, after NSS: what is left of neuron sensitivity when no original is known (docs page of nss+)",
    cost="1 + mutants forward passes per input, 8 bytes kept per input",
    differs="NSS measures how far activations move under one random mutation, which is dominated by which mutation was drawn. "
    "Here every input sees the same mild changes and what is measured is how much probability its class loses.",
    main="mutants",
)
@dataclass(frozen=True, kw_only=True)
class NSSPlus:
    """Score by the probability that the predicted class loses, averaged over `mutants` mild changes, the same for all inputs."""

    mutants: int = len(CHANGES)

    want: ClassVar[Want | None] = None
    sample: ClassVar[int] = 0

    def __post_init__(self) -> None:
        integer("mutants", self.mutants, 1, "all of them by default", most=len(CHANGES))

    @property
    def partner(self) -> Partner:
        return Partner("mild", self.mutants)

    def start(self, pool: Pool) -> _Losses:
        return _Losses(len(pool))


class _Losses:
    """One score per candidate, eight bytes each."""

    def __init__(self, n: int) -> None:
        self.scores = np.full(n, np.nan)

    def update(self, index: np.ndarray, trace: Trace, partners: Sequence[Trace]) -> None:
        said = trace.predictions[:, None]
        kept = torch.stack([partner.probs.gather(1, said).squeeze(1) for partner in partners])  # (mutants, n)
        # Beyond six digits a float32 forward pass depends on the batch, and would order what is equal.
        self.scores[index] = np.round((1 - kept.mean(dim=0)).cpu().numpy(), 6)

    def value(self) -> np.ndarray:
        return self.scores
