"""Samples side by side: means with intervals, effect sizes, tests corrected for their number."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from neurotest.errors import BadInput
from neurotest.stats.bootstrap import Interval, mean_interval
from neurotest.stats.comparison import a12, holm, magnitude, sample

FEW_VALUES = 5


@dataclass(frozen=True)
class Pair:
    """Two samples: how often a value of `left` exceeds one of `right` (A12), and the p-value before and after Holm."""

    metric: str
    left: str
    right: str
    a12: float
    magnitude: str
    p: float
    p_holm: float


@dataclass(frozen=True)
class Comparison:
    """Every sample's mean with its interval, and every pair."""

    means: dict[str, dict[str, Interval]]  # metric -> sample -> mean
    sizes: dict[str, int]
    pairs: tuple[Pair, ...]
    test: str
    warnings: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return {
            "means": {
                metric: {name: {"mean": i.value, "interval": [i.low, i.high]} for name, i in samples.items()}
                for metric, samples in self.means.items()
            },
            "sizes": self.sizes,
            "pairs": [{k: None if isinstance(v, float) and math.isnan(v) else v for k, v in vars(p).items()} for p in self.pairs],
            "test": self.test,
            "warnings": list(self.warnings),
        }

    def table(self) -> list[dict[str, Any]]:
        """One row per metric and sample."""
        return [
            {"metric": metric, "sample": name, "n": self.sizes[name], "mean": i.value, "low": i.low, "high": i.high}
            for metric, samples in self.means.items()
            for name, i in samples.items()
        ]


def compare(
    samples: Mapping[str, ArrayLike] | Mapping[str, Mapping[str, ArrayLike]],
    *,
    paired: bool = False,
    draws: int = 2000,
    seed: int = 0,
) -> Comparison:
    """Compare samples {name: values}, or several metrics of each {name: {metric: values}}.

    Two samples are tested by Mann and Whitney, or with `paired` (value i of each belongs together) by Wilcoxon; all p-values of
    the call are corrected together. Values are taken as independent: seeds or repetitions, not inputs that share a seed.
    """
    if len(samples) < 2:
        raise BadInput("too-few", "samples", f"compare needs at least two samples, not {len(samples)}.")
    tables = {name: _metrics(name, values) for name, values in samples.items()}
    metrics = [m for m in next(iter(tables.values())) if all(m in table for table in tables.values())]
    if not metrics:
        raise BadInput("conflict", "metrics", "the samples have no metric in common: compare suites judged in the same way.")
    sizes = {name: len(table[metrics[0]]) for name, table in tables.items()}
    if paired and len(set(sizes.values())) > 1:
        raise BadInput(
            "wrong-count",
            "paired",
            f"paired=True, but the samples have {sizes} values: expected equal numbers in the same order.",
        )
    means = {m: {name: mean_interval(table[m], draws=draws, seed=seed) for name, table in tables.items()} for m in metrics}
    names = [(metric, left, right) for metric in metrics for left, right in combinations(tables, 2)]
    values = [(tables[left][metric], tables[right][metric]) for metric, left, right in names]
    effects, p_values = [a12(*pair) for pair in values], [_p(*pair, paired) for pair in values]
    pairs = tuple(
        Pair(*name, effect, magnitude(effect), p, float(corrected))
        for name, effect, p, corrected in zip(names, effects, p_values, holm(p_values), strict=True)
    )
    small = [name for name, n in sizes.items() if n < FEW_VALUES]
    warnings = (f"fewer than {FEW_VALUES} values in {', '.join(small)}: intervals and tests say little.",) if small else ()
    return Comparison(means, sizes, pairs, "wilcoxon" if paired else "mann-whitney", warnings)


def _metrics(name: str, values: Any) -> dict[str, NDArray[np.float64]]:
    metrics = values if isinstance(values, Mapping) else {"value": values}
    return {metric: sample(f"{name}, {metric}", numbers) for metric, numbers in metrics.items()}


def _p(left: NDArray[np.float64], right: NDArray[np.float64], paired: bool) -> float:
    """Two-sided; 1 where nothing differs at all."""
    from scipy.stats import mannwhitneyu, wilcoxon

    if paired:
        return 1.0 if np.array_equal(left, right) else float(wilcoxon(left, right).pvalue)
    together = np.concatenate([left, right])
    return 1.0 if np.ptp(together) == 0 else float(mannwhitneyu(left, right, alternative="two-sided").pvalue)
