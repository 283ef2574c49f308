"""NSS: select by how much the sensitive neurons change between an input and its partner."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Literal, Self

import numpy as np
import torch
from torch import Tensor

from neurotest.checks import setting
from neurotest.data.source import Source
from neurotest.devices import exact
from neurotest.errors import BadInput
from neurotest.registry import register
from neurotest.select.scorer import Partner, PerInput, Pool, Scorer
from neurotest.target import Trace, Want

NEAR_CHANCE = (
    "nss compares each candidate with a fresh mutation of itself, because the pool has no originals; "
    "measured, that is near chance (see the docs page of nss): prefer deepgini, or give --originals."
)


@register(
    "selector",
    "nss",
    main="k",
    paper="NSS: neuron sensitivity guided test case selection (algorithms 1 and 2, tables II, IV, IX, X)",
    cost="two forward passes per input (1 + n_mutants when it mutates), 8 bytes kept per input plus the sample's activations",
    presets={
        "paper": {"reference": "remutate", "k": 0.1, "distance": "l1", "sample": None, "fresh": True},
        "cosine": {"distance": "cosine"},
    },
    differs="`reference` says what a candidate is compared with, because the two readings differ by 50 points: `original` "
    "(the candidate is a variant of a known input) gives the published numbers, `remutate` (a fresh mutation, all "
    "one can do with real unlabelled data) is near chance. The sensitive neurons are found on a random `sample` of the "
    "pool and the same mutant serves to find them and to score, so nothing is forwarded twice; algorithms 1 and 2 go through the "
    "whole pool twice and mutate anew (`preset=paper`, which is the algorithms to the letter and near chance). Ties keep the "
    "pool's order.",
)
class NSS(Scorer):
    """Sum of |N_i(x') - N_i(x)| over the share `k` of neurons that change most over the pool.

    reference: `original`, `remutate`, or `auto` (the original where the pool knows it). distance: `l1` (the paper's sum) or
    `cosine` of the layer, all neurons unless `k` says otherwise. identify: `sum` ranks neurons by summed change, `vote` by how
    often they are among the share k that changes most. layer: a glob; default is the input of the first dense layer after the
    last convolution or pooling. sample: how many random candidates the sensitive neurons are found on (none: all). fresh: score
    by other mutants than those on which the sensitive neurons are found.
    """

    reference: Literal["auto", "original", "remutate"] = "auto"
    k: float | None = setting(None, "a share of the neurons; the paper uses 0.1", above=0, most=1)
    distance: Literal["l1", "cosine"] = "l1"
    identify: Literal["sum", "vote"] = "sum"
    layer: str | None = None
    neuron: Literal["unit", "channel"] = "unit"
    n_mutants: int = setting(1, "1 by default")
    sample: int | None = setting(1000, "1000 by default; none: the whole pool")
    fresh: bool = False

    @property
    def want(self) -> Want:
        if self.layer is None:
            return Want(layers="features", neuron="unit", inputs=True)
        return Want(layers=self.layer, neuron=self.neuron)

    @property
    def partner(self) -> Partner:
        if self.reference == "auto":
            raise BadInput(
                "unsupported", "reference", "reference='auto' is decided by select(): choose original or remutate here."
            )
        return Partner(self.reference, self.n_mutants + self.fresh if self.reference == "remutate" else 1)

    def for_pool(self, source: Source) -> tuple[NSS, tuple[str, ...]]:
        """With the originals where the pool has them, and a remark where it has none."""
        reference = self.reference
        if reference == "auto":
            reference = "remutate" if source.originals is None else "original"
        if reference == "original" and source.originals is None:
            raise BadInput(
                "missing",
                "originals",
                "reference='original' needs each candidate's original: give --originals, or use reference=remutate.",
            )
        return dataclasses.replace(self, reference=reference), (NEAR_CHANCE,) if reference == "remutate" else ()

    @property
    def share(self) -> float:
        return self.k if self.k is not None else (0.1 if self.distance == "l1" else 1.0)

    def start(self, pool: Pool) -> _Sensitivity:
        return _Sensitivity(self, len(pool))


class _Sensitivity(PerInput):
    """Keeps the sample's activations until the sensitive neurons are found, then scores as batches stream by."""

    def __init__(self, method: NSS, n: int) -> None:
        super().__init__(n)
        self.method, self.n, self.seen = method, n, 0
        self.sample = n if method.sample is None else min(method.sample, n)
        self.first = int(method.fresh and method.reference == "remutate")  # mutants that serve to find the neurons only
        self.queue: list[tuple[np.ndarray, Tensor, list[Tensor]]] = []
        self.sensitive: Tensor | None = None  # (neurons,) bool

    def update(self, index: np.ndarray, trace: Trace, partners: Sequence[Trace]) -> None:
        want = self.method.want
        self.queue.append((index, _flat(trace, want), [_flat(partner, want) for partner in partners]))  # (n, neurons) each
        self.seen += len(index)
        if self.sensitive is None:
            if self.seen < self.sample:
                return
            self.sensitive = self._identify()
        for waiting in self.queue:
            self._score(*waiting)
        self.queue.clear()

    def fresh(self, n: int) -> Self | None:
        """None until the sensitive neurons are known."""
        if self.sensitive is None:
            return None
        part = super().fresh(n)
        assert part is not None
        part.queue = []
        return part

    def _identify(self) -> Tensor:
        """Algorithm 1 on the sample: the share k of neurons with the largest summed change, or most often among the largest."""
        neurons = self.queue[0][1].shape[1]
        count = max(1, math.floor(self.method.share * neurons + 1e-9))  # 0.29 * 100 is 28.999...
        if count == neurons:
            return torch.ones(neurons, dtype=torch.bool)
        total = torch.zeros(neurons, dtype=torch.float64)
        left = self.sample  # the batch that completes the sample may hold more than it needs
        for _, here, there in self.queue:
            for other in there[: self.first or None]:
                change = (other[:left] - here[:left]).abs()  # (n, neurons)
                if self.method.identify == "vote":
                    change = torch.zeros_like(change).scatter_(1, change.topk(count, dim=1).indices, 1.0)
                total += exact(change).sum(dim=0).cpu()
            left -= len(here)
            if left <= 0:
                break
        chosen = torch.zeros(neurons, dtype=torch.bool)
        chosen[torch.sort(total, descending=True, stable=True).indices[:count]] = True
        return chosen

    def _score(self, index: np.ndarray, here: Tensor, there: list[Tensor]) -> None:
        assert self.sensitive is not None
        total = torch.zeros(len(index), dtype=torch.float64)
        for other in there[self.first :]:
            total += self._distance(here, other).cpu().double()
        self.scores[index] = (total / len(there[self.first :])).numpy()

    def _distance(self, here: Tensor, there: Tensor) -> Tensor:
        assert self.sensitive is not None
        chosen = self.sensitive.to(here)
        if self.method.distance == "l1":
            return (there - here).abs_() @ chosen  # (n,)
        # 1 - cos as half the squared distance of unit vectors: equal activations give exactly 0, small angles keep their digits.
        a, b = here * chosen, there * chosen
        norm_a, norm_b = a.norm(dim=1, keepdim=True), b.norm(dim=1, keepdim=True)
        apart = (a / norm_a.clamp_min(1e-30) - b / norm_b.clamp_min(1e-30)).square().sum(dim=1) / 2
        one_silent = ((norm_a == 0) != (norm_b == 0)).squeeze(1)  # no signal in either is no change
        return torch.where(one_silent, 1.0, apart)


def _flat(trace: Trace, want: Want) -> Tensor:
    parts = list(trace[want].values())
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)
