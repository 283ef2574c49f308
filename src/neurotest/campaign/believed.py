"""What share of a campaign's faults are believed to be valid: images that should still be given their seed's class.

Whoever judges, a second network or a learner of the seeds' own data, errs. How often it recognises mutants that the target still
gets right, which are as strongly mutated, says how often it would recognise faults if all of them were valid; an image in which
nothing is to be seen is recognised by luck, once in as many cases as there are classes. The share is where it lies between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from neurotest import rng
from neurotest.errors import BadInput
from neurotest.generate.fuzz.mutants import Mutant
from neurotest.generate.fuzz.seeds import Seeds
from neurotest.mutate.base import Mutations
from neurotest.mutate.recognition import Recognition, at_once
from neurotest.oracles import predicted
from neurotest.stats.bootstrap import Interval
from neurotest.target import Target

AT_ONCE = 250
LEARNED = 2000  # seeds that the learner is made from, at most
ENOUGH = 20  # mutants that show how often valid ones are recognised; with fewer, the seeds do
LEAST_RECOGNISED = 0.15  # that a judge must recognise of those beyond luck
DRAWS = 300
COUNTS = 4  # of a seed: faults, those recognised; other outputs, those recognised
Counts = NDArray[np.float64]


def valid_share(counts: Counts, luck: float, on_seeds: float) -> Interval | None:
    """The share out of the counts of each seed (seeds, 4), with a bootstrap interval over seeds; None if it cannot be told."""
    if not counts[:, 0].sum():
        return None
    share = _shares(counts.sum(0, keepdims=True), luck, on_seeds)[0]
    if np.isnan(share):
        return None
    draws = rng.stream("campaign.believed", 0).multinomial(len(counts), np.full(len(counts), 1 / len(counts)), DRAWS)
    shares = _shares(draws @ counts, luck, on_seeds)
    low, high = np.quantile(shares[~np.isnan(shares)], [0.025, 0.975]) if (~np.isnan(shares)).any() else (0.0, 1.0)
    return Interval(float(share), float(min(share, low)), float(max(share, high)))


def _shares(totals: Counts, luck: float, on_seeds: float) -> Counts:
    """(n,) out of counts (n, 4)."""
    faults, right, others, others_right = totals.T
    with np.errstate(divide="ignore", invalid="ignore"):
        valid = np.where(others >= ENOUGH, others_right / others, on_seeds)
        share = np.clip((right / faults - luck) / (valid - luck), 0, 1)
    return np.where((faults > 0) & (valid - luck >= LEAST_RECOGNISED), share, np.nan)


@dataclass(eq=False)
class Believed:
    """Outputs judged so far. judge: a second network; without one a learner of the seeds, fitted when the first output comes."""

    seeds: Seeds
    mutations: Mutations
    judge: Target | None
    by_seed: dict[int, list[int]] = field(default_factory=dict)  # row of the seed: its COUNTS

    @classmethod
    def of(cls, seeds: Seeds, judge: Target | None, target: Target, mutations: Mutations) -> Believed | None:
        """None where there is no judge and no images to learn from."""
        believed = cls(seeds, mutations, judge)
        if judge is None:
            return believed if seeds.x.ndim == 4 and believed.learnable else None
        if judge.fingerprint == target.fingerprint:
            raise BadInput(
                "conflict", "judge", "judge: it is the network under test, which fails on every fault: name another one."
            )
        try:
            _ = believed.on_seeds
        except (BadInput, RuntimeError, ValueError) as error:
            shape = "x".join(map(str, seeds.x.shape[1:]))
            raise BadInput(
                "unsuitable", "judge", f"judge: {judge.spec} does not take the seeds, of {shape} ({str(error)[:80]})."
            ) from None
        return believed

    @property
    def learnable(self) -> bool:
        """Whether the seeds can teach their classes: each half is judged by what the other one holds of the same class."""
        classes = self.seeds.expected[:LEARNED]
        halves = classes[::2], classes[1::2]
        shared = np.isin(classes, np.intersect1d(*halves)).mean() if len(classes) else 0.0
        return len(np.unique(classes)) >= 2 and float(shared) >= LEAST_RECOGNISED

    @cached_property
    def recognition(self) -> Recognition:
        with torch.inference_mode():
            first, classes = self.seeds.x[:LEARNED], self.seeds.expected[:LEARNED]
            x = torch.from_numpy(first) if first.dtype == np.uint8 else self.seeds.unit(first)
            return Recognition.of(x, classes, self.seeds.classes, self.mutations, levels=self.seeds.levels)

    @cached_property
    def on_seeds(self) -> float:
        """The share of the seeds, or of those that were learned from, that is recognised."""
        rows = np.arange(len(self.seeds) if self.judge is not None else min(LEARNED, len(self.seeds)))
        looked = self._classes(self.seeds.x[rows], [()] * len(rows), rows)
        return float((looked == self.seeds.expected[rows]).mean())

    def _classes(self, x: NDArray[np.generic], chains: Sequence[Any], roots: NDArray[np.int64]) -> NDArray[np.int64]:
        with torch.inference_mode():
            if self.judge is None:
                step = at_once(torch.from_numpy(x[:1]))
                places = [slice(i, i + step) for i in range(0, len(x), step)]
                looked = [self.recognition.classes(self.seeds.unit(x[p]), chains[p], roots[p]) for p in places]
                return np.concatenate(looked)
            parts = [self.judge.prepare(np.ascontiguousarray(x[i : i + AT_ONCE])) for i in range(0, len(x), AT_ONCE)]
            return np.concatenate([predicted(self.judge.logits(part)) for part in parts])

    def add(self, outputs: Sequence[Mutant]) -> None:
        """Judge the outputs of a batch."""
        self.count(outputs, self.recognised(outputs))

    def recognised(self, outputs: Sequence[Mutant]) -> list[bool]:
        """Which outputs are given their class."""
        if not outputs:
            return []
        roots = np.array([mutant.root for mutant in outputs])
        looked = self._classes(np.stack([mutant.x for mutant in outputs]), [mutant.chain for mutant in outputs], roots)
        right: list[bool] = (looked == self.seeds.expected[roots]).tolist()
        return right

    def ready(self) -> None:
        """Learn what it learns from the seeds, before it goes to workers."""
        if self.judge is None:
            _ = self.recognition

    def count(self, outputs: Sequence[Mutant], recognised: Sequence[bool]) -> None:
        for mutant, right in zip(outputs, recognised, strict=True):
            counts = self.by_seed.setdefault(mutant.root, [0] * COUNTS)
            first = 0 if mutant.fault else 2
            counts[first] += 1
            counts[first + 1] += right

    def plain(self) -> list[list[int]]:
        return [[root, *counts] for root, counts in self.by_seed.items()]

    def restore(self, content: Any) -> None:
        """Take over what `plain` gave; a campaign that was begun by an earlier version has judged none of its outputs so far."""
        self.by_seed = {int(root): [int(n) for n in counts] for root, *counts in content or () if len(counts) == COUNTS}

    def summary(self) -> dict[str, Any] | None:
        """The share with its interval, by whom, and how often that one recognises others; None without faults."""
        counts = np.array(list(self.by_seed.values()), dtype=np.float64).reshape(-1, COUNTS)
        faults, right, others, others_right = counts.sum(0)
        if not faults:
            return None
        share = valid_share(counts, 1 / self.seeds.classes, self.on_seeds)
        return {
            "share": None if share is None else share.value, "interval": None if share is None else [share.low, share.high],
            "judged": int(faults), "recognised": float(right / faults),
            "others_recognised": float(others_right / others) if others else None,
            "seeds_recognised": self.on_seeds, "by": "learner" if self.judge is None else self.judge.spec,
        }  # fmt: skip


def sentence(valid: dict[str, Any] | None) -> str:
    """For people; empty where nothing was judged."""
    if not valid:
        return ""
    by = "a learner trained on the seeds" if valid["by"] == "learner" else valid["by"]
    if valid["share"] is None:
        few = f"{by} recognises too few of the seeds"
        return f"what share of the faults is valid cannot be told: {few}; name a better network as --judge"
    low, high = valid["interval"]
    share, interval = f"about {100 * valid['share']:.0f} % of the faults", f"{100 * low:.0f} .. {100 * high:.0f}"
    others, beside = valid["others_recognised"], "changed inputs that the network still gets right"
    if others is None:
        others, beside = valid["seeds_recognised"], "seeds"
    recognised = f"the class of {100 * valid['recognised']:.0f} % of the faults and of {100 * others:.0f} % of the {beside}"
    return f"{share} ({interval}) still look like their class (believed valid): {by} recognises {recognised}"
