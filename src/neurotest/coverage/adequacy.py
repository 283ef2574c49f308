"""Surprise adequacy: how far an input's activations are from those of training data, as numbers per input.

Selection and surprise coverage share these scorers. Everything is float64; classes are the predicted ones on both sides.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from neurotest.checks import Settings, number, setting
from neurotest.errors import BadInput
from neurotest.measure.context import Traces
from neurotest.measure.traces import Values
from neurotest.stats.distances import Gaussian, Inverse, Kernels, Points

Floats = NDArray[np.float64]
Classes = NDArray[np.int64]
Rule = Callable[[Floats, Classes], Floats]
Model = Callable[[Floats], Floats]
Notes = tuple[str, ...]
EAGER_POINTS = 5000  # up to so many training points every distance between classes is computed at once, beyond as it is needed
ALL_CLASSES = -1  # the class of everything where classes are not distinguished


@dataclass(frozen=True, kw_only=True)
class Adequacy(Settings, ABC):
    """What the scorers share. min_var: neurons that vary less over the training data are left out. features: of the rest, so
    many with the greatest variance are kept (none: all)."""

    min_var: float = setting(1e-5, "1e-5 is usual", least=0)
    features: int | None = setting(300, "300 is usual, none keeps all")

    def fit(self, traces: Traces, *, seed: int = 0) -> Fitted:
        """Learn the training data; inputs with NaN or infinite activations are left out and counted."""
        values = np.asarray(traces.values)
        good = np.isfinite(values).all(axis=1)
        if not good.any():
            raise BadInput(
                "not-finite",
                "train",
                f"surprise needs finite training activations: of {len(values)} inputs none is usable. Give --train.",
            )
        keep = self._features(values[good])
        points = values[good][:, keep].astype(np.float64)
        rule, notes = self._fit(points, np.asarray(traces.predicted)[good], seed)
        dead = int(np.count_nonzero(values[good].min(axis=0) == values[good].max(axis=0)))
        return Fitted(keep, rule, int((~good).sum()), notes, dead)

    def _features(self, values: Values) -> NDArray[np.int64]:
        """Which neurons are looked at, in their order."""
        variance = values.astype(np.float64).var(axis=0)
        kept = np.flatnonzero(variance >= self.min_var)
        if not len(kept):
            raise BadInput(
                "empty",
                "min_var",
                f"min_var={self.min_var:g} leaves no neuron: the greatest variance over the training data is "
                f"{variance.max():.3g}. Give more training inputs, other --layers or a smaller min_var.",
            )
        if self.features is not None and len(kept) > self.features:
            kept = np.sort(kept[np.argsort(-variance[kept], kind="stable")[: self.features]])
        return kept

    @abstractmethod
    def _fit(self, points: Floats, classes: Classes, seed: int) -> tuple[Rule, Notes]:
        """What scores (n, features) values and predicted classes, and sentences about the fit."""


@dataclass(eq=False)
class Fitted:
    """A scorer that knows its training data. `score` takes (n, neurons) values and predicted classes and gives (n,):
    NaN where the values are not finite, inf where training data has nothing of the predicted class."""

    keep: NDArray[np.int64]
    rule: Rule
    left_out: int = 0
    notes: Notes = ()
    dead: int = 0  # neurons that never changed in training

    def score(self, values: Values, predicted: Classes) -> Floats:
        chosen = np.asarray(values)[:, self.keep].astype(np.float64)
        finite = np.isfinite(chosen).all(axis=1)
        if finite.all():
            return self.rule(chosen, predicted)
        scores = np.full(len(chosen), np.nan)
        scores[finite] = self.rule(chosen[finite], np.asarray(predicted)[finite])
        return scores


def _by_class(models: dict[int, Model], values: Floats, classes: Classes) -> Floats:
    """Each class by its own model; a class without one is infinitely surprising."""
    if ALL_CLASSES in models:
        return models[ALL_CLASSES](values)
    scores = np.full(len(values), np.inf)
    for predicted in np.unique(classes):
        if int(predicted) in models:
            here = classes == predicted
            scores[here] = models[int(predicted)](values[here])
    return scores


def _groups(points: Floats, classes: Classes, per: str) -> dict[int, Floats]:
    if per == "all":
        return {ALL_CLASSES: points}
    return {int(c): points[classes == c] for c in np.unique(classes)}


def _shrunk(models: dict[int, Any]) -> Notes:
    causes = {True: "too few training inputs for so many neurons", False: "some neurons are linear combinations of others"}
    notes = []
    for few, cause in causes.items():
        weak = [str(c) if c != ALL_CLASSES else "all" for c, model in models.items() if model.shrunk and model.few == few]
        if weak:
            notes.append(f"the covariance of class {', '.join(weak)} cannot be inverted ({cause}): it is shrunk.")
    return tuple(notes)


@dataclass(frozen=True, kw_only=True)
class LSA(Adequacy):
    """-log of the kernel density of the training data (of the predicted class) at the input.

    per: `class` or `all`. bandwidth: `scott` with the full covariance, or a number, the same in every direction. inverse: `auto`
    shrinks a covariance that cannot be inverted, `pinv` leaves out directions without spread, `none` takes it as it is.
    """

    per: Literal["class", "all"] = "class"
    bandwidth: Literal["scott"] | float = "scott"
    inverse: Inverse = "auto"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.bandwidth != "scott":
            number("bandwidth", self.bandwidth, "scott, or for example 0.2", above=0)

    def _fit(self, points: Floats, classes: Classes, seed: int) -> tuple[Rule, Notes]:
        kernels = {c: Kernels(group, self.bandwidth, self.inverse) for c, group in _groups(points, classes, self.per).items()}
        models: dict[int, Model] = {c: partial(_negative, k.log_density) for c, k in kernels.items()}
        return partial(_by_class, models), _shrunk(kernels)


def _negative(log_density: Model, values: Floats) -> Floats:
    return -log_density(values)


@dataclass(frozen=True, kw_only=True)
class DSA(Adequacy):
    """Distance to the nearest training input of the predicted class over that one's distance to the nearest of another class.

    reference: from where the second distance is measured: `nearest`, the training input found first, or `test`, the input
    itself, as NeuraL-Coverage does it.
    """

    reference: Literal["nearest", "test"] = "nearest"

    def _fit(self, points: Floats, classes: Classes, seed: int) -> tuple[Rule, Notes]:
        if len(np.unique(classes)) < 2:
            raise BadInput(
                "too-few",
                "train",
                "dsa needs training inputs of at least two predicted classes: give more of them with --train DATA.",
            )
        return _Between(points, classes, self.reference).score, ()


class _Between:
    """Nearest neighbours within and across classes; a training point's distance to other classes is computed once."""

    def __init__(self, points: Floats, classes: Classes, reference: str) -> None:
        self.reference = reference
        self.own = {int(c): Points(points[classes == c]) for c in np.unique(classes)}
        self.points, self.classes = points, classes
        self.across = {c: np.full(len(own), np.nan) for c, own in self.own.items()}
        if reference == "nearest" and len(points) <= EAGER_POINTS:
            for c in self.own:
                self._across(c, np.arange(len(self.own[c])))

    @cached_property
    def others(self) -> dict[int, Points]:
        return {c: Points(self.points[self.classes != c]) for c in self.own}

    def _across(self, c: int, index: NDArray[np.int64]) -> Floats:
        apart = self.across[c]
        if len(new := np.unique(index[np.isnan(apart[index])])):
            apart[new] = self.others[c].nearest(self.own[c].points[new])[0]
        distances: Floats = apart[index]
        return distances

    def score(self, values: Floats, classes: Classes) -> Floats:
        scores = np.full(len(values), np.inf)
        order = np.argsort(classes, kind="stable")
        present, starts = np.unique(classes[order], return_index=True)
        for c, here in zip(present.tolist(), np.split(order, starts[1:]), strict=True):
            if c in self.own:
                near, index = self.own[c].nearest(values[here])
                far = self._across(c, index) if self.reference == "nearest" else self.others[c].nearest(values[here])[0]
                with np.errstate(divide="ignore", invalid="ignore"):
                    scores[here] = np.where(far > 0, near / far, np.inf)
        return scores


@dataclass(frozen=True, kw_only=True)
class MDSA(Adequacy):
    """Mahalanobis distance from the mean of the training data (of the predicted class).

    per: `class` or `all`. squared: leave the root out, as dnn-tip does. inverse: `auto` shrinks a covariance that cannot be
    inverted, `pinv` leaves out directions without spread, `none` takes it as it is.
    """

    per: Literal["class", "all"] = "class"
    squared: bool = False
    inverse: Inverse = "auto"

    def _fit(self, points: Floats, classes: Classes, seed: int) -> tuple[Rule, Notes]:
        return _mahalanobis(_groups(points, classes, self.per), self.inverse, self.squared)


def _mahalanobis(groups: dict[int, Floats], inverse: Inverse, squared: bool) -> tuple[Rule, Notes]:
    gaussians = {c: Gaussian(group, inverse) for c, group in groups.items()}
    rule = partial(_by_class, {c: gaussian.squared_distance for c, gaussian in gaussians.items()})
    return rule if squared else partial(_root, rule), _shrunk(gaussians)


def _root(squared: Rule, values: Floats, classes: Classes) -> Floats:
    return np.asarray(np.sqrt(squared(values, classes)))


@dataclass(frozen=True, kw_only=True)
class MLSA(Adequacy):
    """-log likelihood under a mixture of `components` Gaussians fitted to the training data (of the predicted class).

    per: `all`, as published, or `class`. regularise: added to every variance, so that no component collapses.
    """

    per: Literal["class", "all"] = "all"
    components: int = setting(3, "2 or 3 are usual")
    regularise: float = setting(1e-6, "1e-6 is usual", least=0)

    def _fit(self, points: Floats, classes: Classes, seed: int) -> tuple[Rule, Notes]:
        models = {c: self._mixture(group, seed) for c, group in _groups(points, classes, self.per).items()}
        return partial(_by_class, models), ()

    def _mixture(self, points: Floats, seed: int) -> Model:
        from sklearn.mixture import GaussianMixture

        if len(points) < 2:  # one point has no spread: its density is a kernel's of width 1
            return partial(_negative, Kernels(points, 1.0).log_density)
        components = min(self.components, len(points))
        mixture = GaussianMixture(components, random_state=seed, reg_covar=self.regularise).fit(points)
        return _Unlikelihood(mixture).score


class _Unlikelihood:
    """-log likelihood under a fitted mixture, all components in one matrix product: inputs come in many small batches."""

    def __init__(self, mixture: Any) -> None:
        roots = mixture.precisions_cholesky_  # (components, d, d), upper triangular
        self.count, d, _ = roots.shape
        half = (d + 1) // 2
        # What lies below the diagonal is zero: the first half of the columns needs only the first half of the neurons.
        self.parts = [(half, _side_by_side(roots[:, :half, :half])), (d, _side_by_side(roots[:, :, half:]))]
        centres = np.einsum("kd,kde->ke", mixture.means_, roots)
        self.shifts = [centres[:, :half].reshape(-1), centres[:, half:].reshape(-1)]
        log_roots = np.log(np.diagonal(roots, axis1=1, axis2=2)).sum(axis=1)
        self.constants = np.log(mixture.weights_) + log_roots - 0.5 * d * np.log(2 * np.pi)  # (components,)

    def score(self, values: Floats) -> Floats:
        squared = np.zeros((len(values), self.count))
        for (neurons, wide), shift in zip(self.parts, self.shifts, strict=True):
            white = values[:, :neurons] @ wide
            white -= shift
            white = white.reshape(len(values), self.count, wide.shape[1] // self.count)
            squared += np.einsum("nkd,nkd->nk", white, white)
        exponents = self.constants - 0.5 * squared
        most = exponents.max(axis=1)
        likelihood: Floats = most + np.log(np.exp(exponents - most[:, None]).sum(axis=1))
        return -likelihood


def _side_by_side(blocks: Floats) -> Floats:
    """(k, rows, columns) -> (rows, k * columns)."""
    k, rows, columns = blocks.shape
    return np.ascontiguousarray(blocks.transpose(1, 0, 2).reshape(rows, k * columns))


@dataclass(frozen=True, kw_only=True)
class MMDSA(Adequacy):
    """Mahalanobis distance from the cluster that k-means puts the input into, instead of from its predicted class.

    clusters: how many; none: 2 to 5, whichever has the best silhouette. squared, inverse: as in MDSA.
    """

    clusters: int | None = setting(None, "none chooses 2 to 5 by silhouette")
    squared: bool = False
    inverse: Inverse = "auto"

    def _fit(self, points: Floats, classes: Classes, seed: int) -> tuple[Rule, Notes]:
        means = self._cluster(points, seed)
        rule, notes = _mahalanobis(_groups(points, _assign(means, points), "class"), self.inverse, self.squared)
        return partial(_by_cluster, means, rule), notes

    def _cluster(self, points: Floats, seed: int) -> Any:
        from sklearn.cluster import KMeans
        from sklearn.metrics import silhouette_score

        most = min(5, len(points) - 1)
        if self.clusters is not None or most < 2:
            return KMeans(min(self.clusters or 1, len(points)), n_init=10, random_state=seed).fit(points)
        fits = [KMeans(k, n_init=10, random_state=seed).fit(points) for k in range(2, most + 1)]
        sample = min(2000, len(points))
        return max(fits, key=lambda f: silhouette_score(points, f.labels_, sample_size=sample, random_state=seed))


def _assign(means: Any, values: Floats) -> Classes:
    return np.asarray(means.predict(np.ascontiguousarray(values)), dtype=np.int64)


def _by_cluster(means: Any, rule: Rule, values: Floats, classes: Classes) -> Floats:
    return rule(values, _assign(means, values))
