"""nss+: sensitivity that needs no original. What counts is the decision, not the activations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from neurotest.checks import setting
from neurotest.mutate.mild import CHANGES
from neurotest.registry import register
from neurotest.select.scorer import Partner, PerInput, Pool, Scorer
from neurotest.target import Trace


@register(
    "selector",
    "nss+",
    main="mutants",
    paper="ours, after NSS: what is left of neuron sensitivity when there is no original (docs page of nss+)",
    cost="1 + mutants forward passes per input, 8 bytes kept per input",
    differs="NSS measures how far activations move under one random mutation, which is dominated by which mutation was drawn. "
    "Here every input sees the same mild changes and what is measured is how much probability its class loses.",
)
class NSSPlus(Scorer):
    """Score by the probability that the predicted class loses, averaged over `mutants` mild changes, the same for all inputs."""

    mutants: int = setting(len(CHANGES), "all of them by default", most=len(CHANGES))

    @property
    def partner(self) -> Partner:
        return Partner("mild", self.mutants)

    def start(self, pool: Pool) -> _Losses:
        return _Losses(len(pool))


class _Losses(PerInput):
    def update(self, index: np.ndarray, trace: Trace, partners: Sequence[Trace]) -> None:
        predicted = trace.predictions[:, None].to(trace.probs.device)
        kept = torch.stack([partner.probs.gather(1, predicted).squeeze(1) for partner in partners])  # (mutants, n)
        # Beyond six digits a float32 forward pass depends on the batch, and would order what is equal.
        self.scores[index] = np.round((1 - kept.mean(dim=0)).cpu().numpy(), 6)
