"""Numbers of a suite: FID, KID and inception score, its distance from training data, its variety, its distance from originals."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from neurotest.errors import BadInput
from neurotest.mutate import unit
from neurotest.stats.distances import Points, check_square, nearest_other

Floats = NDArray[np.float64]
FID_INPUTS = 2048  # below this many inputs FID is known to depend on their number
KID_INPUTS = 100
WINDOW = 11  # as in the paper on SSIM
PAIRS_AT_ONCE = 256


class Score(NamedTuple):
    """A number, and what to know before trusting it."""

    value: float
    warnings: tuple[str, ...] = ()


def _features(name: str, values: NDArray[np.floating], least: int = 2) -> Floats:
    features = np.asarray(values, dtype=np.float64)
    if features.ndim != 2 or features.shape[1] < 1 or not np.isfinite(features).all():
        raise BadInput(
            "wrong-shape", "features", f"{name}: features of shape {features.shape}; expected (inputs, features), all finite."
        )
    if len(features) < least:
        raise BadInput("too-few", "features", f"{name}: {len(features)} inputs are too few, at least {least} are needed.")
    return features


def _pair(left: NDArray[np.floating], right: NDArray[np.floating]) -> tuple[Floats, Floats]:
    a, b = _features("suite", left), _features("reference", right)
    if a.shape[1] != b.shape[1]:
        raise BadInput(
            "wrong-count",
            "features",
            f"features of {a.shape[1]} and {b.shape[1]} numbers: both sides must come from the same extractor.",
        )
    return a, b


def _root(matrix: Floats) -> Floats:
    values, vectors = np.linalg.eigh(matrix)
    root: Floats = (vectors * np.sqrt(np.maximum(values, 0))) @ vectors.T
    return root


def _frechet(mean1: Floats, cov1: Floats, mean2: Floats, cov2: Floats) -> float:
    """Squared distance of two normal distributions: |m1 - m2|^2 + tr(S1 + S2 - 2 (S1 S2)^.5).

    The trace of the root is that of the symmetric (S1^.5 S2 S1^.5)^.5, so no complex numbers arise.
    """
    half = _root(cov1)
    shared = np.linalg.eigvalsh(half @ cov2 @ half)
    away = mean1 - mean2
    return float(away @ away + np.trace(cov1) + np.trace(cov2) - 2 * np.sqrt(np.maximum(shared, 0)).sum())


def fid(
    suite: NDArray[np.floating], reference: NDArray[np.floating], *, covariance: Literal["sample", "shrunk"] = "sample"
) -> Score:
    """Fréchet distance of two sets of features (n, d). Fewer inputs than features need covariance='shrunk' (Ledoit and Wolf)."""
    a, b = _pair(suite, reference)
    if covariance not in ("sample", "shrunk"):
        raise BadInput("out-of-range", "covariance", f"covariance={covariance!r}: expected sample or shrunk.")
    n, d = min(len(a), len(b)), a.shape[1]
    if covariance == "sample" and n <= d:
        raise BadInput(
            "too-few",
            "covariance",
            f"FID from {n} inputs with {d} features: the covariance is singular and the number means nothing. Use more than {d} "
            "inputs, KID, or covariance='shrunk'.",
        )
    warnings = (
        []
        if n >= FID_INPUTS
        else [f"FID from {n} inputs: below {FID_INPUTS:,} it depends on their number; compare equal numbers only."]
    )
    if covariance == "shrunk":
        warnings.append("FID with shrunk covariances is not comparable with any published FID.")
    cov1, cov2 = (_covariance(x, covariance) for x in (a, b))
    return Score(max(0.0, _frechet(a.mean(0), cov1, b.mean(0), cov2)), tuple(warnings))


def _covariance(x: Floats, kind: str) -> Floats:
    check_square(x.shape[1])
    if kind == "shrunk":
        from sklearn.covariance import ledoit_wolf

        return np.asarray(ledoit_wolf(x)[0], dtype=np.float64)
    return np.atleast_2d(np.cov(x, rowvar=False))


def kid(suite: NDArray[np.floating], reference: NDArray[np.floating]) -> Score:
    """Kernel distance, (x.y / d + 1)^3, unbiased: its mean does not depend on the number of inputs, and it may be below 0."""
    a, b = _pair(suite, reference)
    d, n, m = a.shape[1], len(a), len(b)
    own1, own2, across = ((x @ y.T / d + 1) ** 3 for x, y in ((a, a), (b, b), (a, b)))
    first = (own1.sum() - np.trace(own1)) / (n * (n - 1))
    second = (own2.sum() - np.trace(own2)) / (m * (m - 1))
    few = min(n, m)
    warnings = () if few >= KID_INPUTS else (f"KID from {few} inputs scatters widely: use at least {KID_INPUTS}.",)
    return Score(float(first + second - 2 * across.mean()), warnings)


def inception_score(probs: NDArray[np.floating], *, splits: int = 1) -> Score:
    """exp of the mean divergence of p(y|x) from p(y): 1 (one answer for all) to the number of classes. Mean over the splits."""
    rows = _features("probs", probs, 1)
    if (rows < 0).any() or not np.allclose(rows.sum(1), 1, atol=1e-4):
        raise BadInput("out-of-range", "probs", "probs: expected rows of probabilities that sum to 1.")
    n, classes = rows.shape
    if splits < 1:
        raise BadInput("out-of-range", "splits", f"splits={splits}: expected an integer >= 1.")
    if n // splits < classes:
        raise BadInput(
            "too-few",
            "splits",
            f"inception score of {n} inputs in {splits} splits: {n // splits} inputs per split cannot show {classes} classes; "
            f"use fewer splits or at least {classes * splits} inputs.",
        )
    scores = []
    for part in np.array_split(rows, splits):
        mean = part.mean(0, keepdims=True)
        with np.errstate(divide="ignore", invalid="ignore"):
            terms = np.where(part > 0, part * (np.log(part) - np.log(mean)), 0.0)
        scores.append(math.exp(terms.sum(1).mean()))
    low = n // splits < 10 * classes
    warnings = (f"inception score from {n // splits} inputs per split and {classes} classes is biased low.",) if low else ()
    return Score(float(np.mean(scores)), warnings)


@dataclass(frozen=True, eq=False)
class Manifold:
    """Training features, and the distance to the nearest other that only 1 % of them exceed."""

    points: Points
    limit: float

    @classmethod
    def of(cls, train: Floats, *, quantile: float = 0.99) -> Manifold:
        if len(train) < 100:
            raise BadInput(
                "too-few", "train", f"train: {len(train)} inputs cannot tell what is far from training data; give at least 100."
            )
        if not 0 < quantile < 1:
            raise BadInput("out-of-range", "quantile", f"quantile={quantile}: expected a number between 0 and 1 (0.99 is usual).")
        limit = float(np.quantile(nearest_other(train), quantile))
        if limit == 0:
            raise BadInput(
                "duplicate", "train", "train: nearly all inputs have an exact copy among the others: leave the copies out."
            )
        return cls(Points(train), limit)

    def distance(self, features: Floats) -> Floats:
        """To the nearest training input, in units of the limit: above 1 is outside."""
        return np.asarray(self.points.nearest(features)[0] / self.limit)


@dataclass(frozen=True)
class Spread:
    """How various a suite is. vendi: the effective number of different inputs, from 1 to n, by cosine similarity."""

    nearest: float  # mean distance to the nearest other input
    pairwise: float  # root mean square distance of two inputs
    vendi: float


def spread(features: Floats) -> Spread:
    """Variety of features (n, d)."""
    x = np.asarray(features, dtype=np.float64)
    n = len(x)
    if n < 2:
        raise BadInput("too-few", "inputs", f"{n} inputs: nearest others need at least 2.")
    near = nearest_other(x)
    centred = x - x.mean(0)
    pairwise = float(np.sqrt(2 * np.square(centred).sum() / (n - 1)))
    norm = np.linalg.norm(x, axis=1, keepdims=True)
    unit = np.divide(x, norm, out=np.zeros_like(x), where=norm > 0)
    # Eigenvalues of the n x n similarities are those of the smaller of the two products.
    product = unit @ unit.T if n <= unit.shape[1] else unit.T @ unit
    values = np.linalg.eigvalsh(product)
    values = values[values > 1e-12 * max(1.0, float(values.max()))]
    shares = values / values.sum() if values.size else np.ones(1)
    return Spread(float(near.mean()), pairwise, float(np.exp(-(shares * np.log(shares)).sum())))


def _same_shape(x: Tensor, original: Tensor) -> None:
    if x.shape != original.shape:
        raise BadInput(
            "wrong-shape",
            "originals",
            f"inputs of {tuple(x.shape)} against originals of {tuple(original.shape)}: each needs its own original.",
        )


def distances(x: Tensor, original: Tensor) -> dict[str, Floats]:
    """Per input the share of values that differ (l0), l2 and linf, for values in [0, 1]."""
    _same_shape(x, original)
    return dict(zip(unit.NORMS, unit.distances(x, original).T, strict=True))


def total_variation(x: Tensor) -> Floats:
    """Mean absolute difference of neighbouring pixels, down and across: (n,)."""
    _images(x)
    down, across = (x[:, :, 1:] - x[:, :, :-1]).abs(), (x[..., 1:] - x[..., :-1]).abs()
    variation = (down.flatten(1).sum(1) + across.flatten(1).sum(1)) / x[0].numel()
    return np.asarray(variation.cpu().double().numpy())


def ssim(x: Tensor, original: Tensor) -> Floats:
    """Structural similarity of each pair of images in [0, 1], mean over places and channels: 1 for equal ones."""
    from kornia.metrics import ssim as places

    _same_shape(x, original)
    _images(x)
    side = min(x.shape[2:])
    window = min(WINDOW, side if side % 2 else side - 1)
    parts = [
        places(x[i : i + PAIRS_AT_ONCE].float(), original[i : i + PAIRS_AT_ONCE].float(), window, max_val=1.0).flatten(1).mean(1)
        for i in range(0, len(x), PAIRS_AT_ONCE)
    ]
    return np.asarray(torch.cat(parts).cpu().double().numpy())


def _images(x: Tensor) -> None:
    if x.ndim != 4:
        raise BadInput(
            "unsuitable",
            "shape",
            f"inputs of shape {tuple(x.shape[1:])} are no images (channels, height, width): SSIM and variation need them.",
        )
