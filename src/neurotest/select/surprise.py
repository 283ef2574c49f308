"""Surprise adequacy as selectors: the further from training data, the earlier."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from neurotest import rng
from neurotest.checks import setting
from neurotest.coverage import adequacy
from neurotest.registry import register
from neurotest.select.scorer import BlockState, Pool, TrainedScorer, steady
from neurotest.target import Want

KIM = "Kim et al., ICSE 2019"
KIM2 = "Kim et al., ESEC/FSE 2020"
WEISS = "Weiss et al., A Review and Refinement of Surprise Adequacy, 2021"
HIGHEST = 1e300  # stands for infinite surprise: a prediction that no training input has
COST = "one forward pass per input and training input; keeps 8 bytes per input and the training activations"


@dataclass(frozen=True, kw_only=True)
class _Surprising(TrainedScorer):
    """layer: a glob or preset. neuron: `channel` or `unit`. inputs: so many training inputs, drawn at random (none: all)."""

    layer: str = "pre_activation"
    neuron: Literal["channel", "unit"] = "channel"
    inputs: int | None = setting(None, "1000 in the paper on NSS; none: all")

    def start(self, pool: Pool) -> _Surprises:
        assert isinstance(self, adequacy.Adequacy)
        traces = pool.context.traces(self.want, type(self).__name__.lower())
        if self.inputs is not None and self.inputs < len(traces.values):
            rows = np.sort(rng.stream("select.surprise", pool.seed).permutation(len(traces.values))[: self.inputs])
            labels = None if traces.labels is None else traces.labels[rows]
            traces = dataclasses.replace(traces, values=traces.values[rows], predicted=traces.predicted[rows], labels=labels)
        return _Surprises(self.fit(traces, seed=pool.seed), self.want, pool)


class _Surprises(BlockState):
    block: ClassVar[int] = 1000

    def __init__(self, fitted: adequacy.Fitted, want: Want, pool: Pool) -> None:
        super().__init__(want, pool)
        self.fitted = fitted

    def score(self, columns: Sequence[np.ndarray]) -> np.ndarray:
        values, predicted = columns
        surprise = self.fitted.score(values, predicted)
        self.foreign += int(np.isposinf(surprise).sum())
        return np.asarray(np.clip(steady(surprise), -HIGHEST, HIGHEST))

    def notes(self) -> tuple[str, ...]:
        if not self.foreign:
            return self.fitted.notes
        note = f"{self.foreign} candidates are infinitely surprising (no training input is predicted like them): they come first."
        return (*self.fitted.notes, note)


@register(
    "selector", "lsa", paper=KIM, cost=f"{COST}; one kernel per training input of the predicted class",
    differs="Predicted classes on both sides. A covariance that cannot be inverted is shrunk; scipy refuses it, and dnn-tip "
    "underflows to infinity far from the data, where ours stays finite (log-sum-exp).",
)  # fmt: skip
class LSA(_Surprising, adequacy.LSA):
    """Score by -log of the kernel density of the training data (of the predicted class) at the input.

    per: `class` or `all`. bandwidth: `scott` or a number. inverse: `auto`, `pinv` or `none`. min_var, features: which neurons.
    layer, neuron: where activations are taken from.
    """


@register(
    "selector", "dsa", main="reference", paper=KIM, cost=f"{COST}; one distance per training input of the predicted class",
    differs="Exact neighbours; `reference=test` measures the second distance from the input, as NeuraL-Coverage does.",
)  # fmt: skip
class DSA(_Surprising, adequacy.DSA):
    """Score by the distance to the nearest training input of the predicted class over that one's to another class.

    reference: `nearest` or `test`. min_var, features: which neurons. layer, neuron: where activations are taken from.
    """


@register(
    "selector", "mdsa", paper=KIM2, cost=f"{COST}; one product with a covariance per input",
    differs="The root is taken, per predicted class; dnn-tip squares and takes all classes together (`squared=true,per=all`).",
)  # fmt: skip
class MDSA(_Surprising, adequacy.MDSA):
    """Score by the Mahalanobis distance from the mean of the training data (of the predicted class).

    per: `class` or `all`. squared: without the root. inverse: `auto`, `pinv` or `none`. min_var, features: which neurons.
    layer, neuron: where activations are taken from.
    """


@register(
    "selector", "mlsa", main="components", paper=WEISS, cost=f"{COST}; a mixture is fitted once",
    differs="Variances are regularised, so that no component collapses, and the fit is seeded; dnn-tip's is neither.",
)  # fmt: skip
class MLSA(_Surprising, adequacy.MLSA):
    """Score by -log likelihood under a mixture of `components` Gaussians fitted to the training data.

    per: `all` or `class`. regularise: added to every variance. min_var, features: which neurons. layer, neuron: where
    activations are taken from.
    """
