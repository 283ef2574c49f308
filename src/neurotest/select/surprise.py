"""Surprise adequacy as selectors: the further from training data, the earlier."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Self

import numpy as np

from neurotest import rng
from neurotest.checks import setting
from neurotest.coverage import adequacy
from neurotest.measure.traces import Layout, joined
from neurotest.registry import register
from neurotest.select.scorer import PerInput, Pool, Scorer
from neurotest.target import Trace, Want

KIM = "Kim et al., ICSE 2019"
KIM2 = "Kim et al., ESEC/FSE 2020"
WEISS = "Weiss et al., A Review and Refinement of Surprise Adequacy, 2021"
HIGHEST = 1e300  # stands for infinite surprise: a prediction that no training input has
BLOCK = 1000  # inputs scored at once
DIGITS = 9  # products round differently in batches of different sizes: what is equal must stay equal
KEPT = "one forward pass per input and training input; keeps 8 bytes per input and the training activations"


@dataclass(frozen=True, kw_only=True)
class _Surprising(Scorer):
    """layer: a glob or preset. neuron: `channel` or `unit`. inputs: so many training inputs, drawn at random (none: all)."""

    layer: str = "pre_activation"
    neuron: Literal["channel", "unit"] = "channel"
    inputs: int | None = setting(None, "1000 in the paper on NSS; none: all")

    @property
    def want(self) -> Want:
        return Want(layers=self.layer, neuron=self.neuron)

    @property
    def learns(self) -> tuple[str, Want]:
        return "traces", self.want

    def start(self, pool: Pool) -> _Surprises:
        assert isinstance(self, adequacy.Adequacy)
        traces = pool.context.traces(self.want, type(self).__name__.lower())
        if self.inputs is not None and self.inputs < len(traces.values):
            rows = np.sort(rng.stream("select.surprise", pool.seed).permutation(len(traces.values))[: self.inputs])
            labels = None if traces.labels is None else traces.labels[rows]
            traces = dataclasses.replace(traces, values=traces.values[rows], predicted=traces.predicted[rows], labels=labels)
        fitted = self.fit(traces, seed=pool.seed)
        return _Surprises(fitted, self.want, pool.context.layout(self.want), len(pool))


class _Surprises(PerInput):
    def __init__(self, fitted: adequacy.Fitted, want: Want, layout: Layout, n: int) -> None:
        super().__init__(n)
        self.fitted, self.want, self.layout = fitted, want, layout
        self.unseen = 0
        self.waiting: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []  # positions, activations, predictions

    def update(self, index: np.ndarray, trace: Trace, partners: Sequence[Trace]) -> None:
        values = joined(trace, self.want, self.layout).values
        self.waiting.append((index, values, trace.predictions.cpu().numpy()))
        if sum(len(positions) for positions, _, _ in self.waiting) >= BLOCK:
            self._flush()

    def _flush(self) -> None:
        """Score what waits, class by class: many inputs per class at once cost half of what a batch's few cost."""
        if not self.waiting:
            return
        index, values, predictions = (np.concatenate(part) for part in zip(*self.waiting, strict=True))
        self.waiting = []
        surprise = self.fitted.score(values, predictions)
        self.unseen += int(np.isposinf(surprise).sum())
        self.scores[index] = np.clip(steady(surprise), -HIGHEST, HIGHEST)

    def value(self) -> np.ndarray:
        self._flush()
        return self.scores

    def fresh(self, n: int) -> Self | None:
        part = super().fresh(n)
        assert part is not None
        part.unseen, part.waiting = 0, []
        return part

    def result(self) -> tuple[np.ndarray, int]:
        return self.value(), self.unseen

    def merge(self, index: np.ndarray, result: tuple[np.ndarray, int]) -> None:
        self.scores[index] = result[0]
        self.unseen += result[1]

    def notes(self) -> tuple[str, ...]:
        if not self.unseen:
            return self.fitted.notes
        note = f"{self.unseen} candidates are infinitely surprising (no training input is predicted like them): they come first."
        return (*self.fitted.notes, note)


def steady(values: np.ndarray, digits: int = DIGITS) -> np.ndarray:
    """Values rounded to so many digits; what is not finite stays."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        scale = 10.0 ** (digits - 1 - np.floor(np.log10(np.abs(values))))
        return np.where(np.isfinite(scale) & np.isfinite(values), np.round(values * scale) / scale, values)


@register(
    "selector", "lsa", paper=KIM, cost=f"{KEPT}; one kernel per training input of the predicted class",
    differs="Predicted classes on both sides. A covariance that cannot be inverted is shrunk; scipy refuses it, and dnn-tip "
    "underflows to infinity far from the data, where ours stays finite (log-sum-exp).",
)  # fmt: skip
class LSA(_Surprising, adequacy.LSA):
    """Score by -log of the kernel density of the training data (of the predicted class) at the input.

    per: `class` or `all`. bandwidth: `scott` or a number. inverse: `auto`, `pinv` or `none`. min_var, features: which neurons.
    layer, neuron: where activations are taken from.
    """


@register(
    "selector", "dsa", main="reference", paper=KIM, cost=f"{KEPT}; one distance per training input of the predicted class",
    differs="Exact neighbours; `reference=test` measures the second distance from the input, as NeuraL-Coverage does.",
)  # fmt: skip
class DSA(_Surprising, adequacy.DSA):
    """Score by the distance to the nearest training input of the predicted class over that one's to another class.

    reference: `nearest` or `test`. min_var, features: which neurons. layer, neuron: where activations are taken from.
    """


@register(
    "selector", "mdsa", paper=KIM2, cost=f"{KEPT}; one product with a covariance per input",
    differs="The root is taken, per predicted class; dnn-tip squares and takes all classes together (`squared=true,per=all`).",
)  # fmt: skip
class MDSA(_Surprising, adequacy.MDSA):
    """Score by the Mahalanobis distance from the mean of the training data (of the predicted class).

    per: `class` or `all`. squared: without the root. inverse: `auto`, `pinv` or `none`. min_var, features: which neurons.
    layer, neuron: where activations are taken from.
    """


@register(
    "selector", "mlsa", main="components", paper=WEISS, cost=f"{KEPT}; a mixture is fitted once",
    differs="Variances are regularised, so that no component collapses, and the fit is seeded; dnn-tip's is neither.",
)  # fmt: skip
class MLSA(_Surprising, adequacy.MLSA):
    """Score by -log likelihood under a mixture of `components` Gaussians fitted to the training data.

    per: `all` or `class`. regularise: added to every variance. min_var, features: which neurons. layer, neuron: where
    activations are taken from.
    """
