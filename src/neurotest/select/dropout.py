"""Selectors that run the network several times, each time with other units dropped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from neurotest.checks import setting
from neurotest.devices import exact
from neurotest.registry import register
from neurotest.select.scorer import OutputScorer, Partner, entropy

COST = "1 + `samples` forward passes per input, 8 bytes kept per input"
DIFFERS = (
    "Only dropout is switched on; batch normalisation stays as in use (calling `.train()` switches both). One mask per pass "
    "serves all inputs, so a pass is one thinned network, batch size and order change nothing and a seed repeats it; "
    "peers draw a mask per input."
)


def _variation_ratio(probs: Tensor) -> Tensor:
    """Share of the passes that do not vote for the class most of them vote for: (n, samples, classes) -> (n,)."""
    votes = torch.nn.functional.one_hot(probs.argmax(dim=2), probs.shape[2]).sum(dim=1)  # (n, classes)
    return 1 - exact(votes.amax(dim=1)) / probs.shape[1]


def _predictive_entropy(probs: Tensor) -> Tensor:
    """Entropy of the mean answer: (n, samples, classes) -> (n,)."""
    return entropy(probs.mean(dim=1))


def _mutual_information(probs: Tensor) -> Tensor:
    """Entropy of the mean answer less the mean entropy of the answers: what the passes disagree about: (n,)."""
    return _predictive_entropy(probs) - entropy(probs).mean(dim=1)


@dataclass(frozen=True, kw_only=True)
class _Passes(OutputScorer):
    """What runs the network `samples` times. samples: how many thinned networks; papers use 20 to 200."""

    samples: int = setting(20, "papers use 20 to 200", least=2)

    @property
    def partner(self) -> Partner:
        return Partner("dropout", self.samples)


@register(
    "selector", "mc-dropout", main="by",
    paper="Gal and Ghahramani, ICML 2016; the variation ratio as a test prioritiser in Weiss and Tonella, ISSTA 2022", cost=COST,
    differs=f"{DIFFERS} The variation ratio takes few values ({'1 / samples'} apart), so inputs that tie are ordered by "
    "predictive entropy, which is added at a scale that never changes the order of different ratios.",
)  # fmt: skip
class MCDropout(_Passes):
    """Score by how little the answers of `samples` randomly thinned networks agree.

    by: `variation_ratio`, the share of answers other than the most frequent one (predictive entropy decides between equals), or
    `predictive_entropy`, the entropy of the mean answer in bits.
    """

    by: Literal["variation_ratio", "predictive_entropy"] = "variation_ratio"

    def score(self, probs: Tensor) -> Tensor:  # (n, samples, classes) -> (n,)
        if self.by == "predictive_entropy":
            return _predictive_entropy(probs)
        share: Tensor = _predictive_entropy(probs) / np.log2(probs.shape[2])  # 0 .. 1
        return _variation_ratio(probs) + 0.5 * share / self.samples


@register(
    "selector", "bald", main="samples",
    paper="Houlsby et al. 2011, with dropout: Gal et al., Deep Bayesian Active Learning, ICML 2017", cost=COST, differs=DIFFERS,
)  # fmt: skip
class BALD(_Passes):
    """Score by the mutual information of answer and network over `samples` randomly thinned networks, in bits: high where each
    is sure and they disagree."""

    def score(self, probs: Tensor) -> Tensor:  # (n, samples, classes) -> (n,)
        return _mutual_information(probs)
