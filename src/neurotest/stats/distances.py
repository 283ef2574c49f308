"""Points in float64: distances and nearest neighbours in chunks, covariance with shrinkage, Mahalanobis, Gaussian kernels."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from neurotest.errors import BadInput
from neurotest.memory import check_memory

CHUNK = 1 << 22  # distances held at once: 32 MB
Floats = NDArray[np.float64]
Inverse = Literal["auto", "pinv", "none"]
WORST = 1e12  # condition number beyond which a float64 inverse is noise


def squared_distances(left: Floats, right: Floats) -> Floats:
    """|l - r|^2 of every pair: (n, m). What cancels when points are far from the origin is restored by a common shift."""
    if not len(left) or not len(right):
        return np.zeros((len(left), len(right)))
    centre = right[0]
    a, b = left - centre, right - centre
    products = a @ b.T
    products *= -2
    products += np.einsum("ij,ij->i", a, a)[:, None]
    products += np.einsum("ij,ij->i", b, b)
    squared: Floats = np.maximum(products, 0, out=products)
    return squared


def nearest_other(points: Floats) -> Floats:
    """Distance of each point to the nearest other: (n,)."""
    distances = np.full(len(points), np.inf)
    step = max(1, CHUNK // max(1, len(points)))
    for start in range(0, len(points), step):
        apart = squared_distances(points[start : start + step], points)
        rows = np.arange(len(apart))
        apart[rows, start + rows] = np.inf
        distances[start : start + step] = np.sqrt(apart.min(axis=1))
    return distances


class Points:
    """Points that are searched again and again: what does not depend on the query is computed once."""

    def __init__(self, points: Floats) -> None:
        self.points = np.ascontiguousarray(points, dtype=np.float64)  # (n, d)
        self._centre = self.points.mean(axis=0)
        centred = self.points - self._centre
        self._double: Floats = np.ascontiguousarray(-2 * centred.T)  # (d, n)
        self._squares: Floats = np.einsum("ij,ij->i", centred, centred)

    def __len__(self) -> int:
        return len(self.points)

    def nearest(self, queries: Floats) -> tuple[Floats, NDArray[np.int64]]:
        """The nearest is searched by products, its distance taken from the difference itself."""
        index = np.empty(len(queries), dtype=np.int64)
        step = max(1, CHUNK // len(self))
        for start in range(0, len(queries), step):
            part = (queries[start : start + step] - self._centre) @ self._double
            part += self._squares
            index[start : start + step] = part.argmin(axis=1)
        apart = queries - self.points[index]
        return np.sqrt(np.einsum("ij,ij->i", apart, apart)), index


def check_square(neurons: int) -> None:
    """Refuse a covariance that no memory holds: it and two more of its size are needed at a time."""
    way_out = "use --neuron channel, fewer --layers, or fewer neurons (features=100)"
    check_memory(24 * neurons * neurons, f"the covariance of {neurons:,} neurons", way_out)


def _ledoit_wolf(centred: Floats) -> Floats:
    """Covariance shrunk towards its mean variance by the intensity Ledoit and Wolf (2004) estimate: (d, d)."""
    n, d = centred.shape
    sample: Floats = centred.T @ centred / n
    mean = np.trace(sample) / d
    spread = float(np.square(sample).sum() - d * mean * mean)  # squared distance of the sample from the target
    if spread <= 0:
        return sample
    fourth = float(np.square(np.einsum("ij,ij->i", centred, centred)).sum())
    noise = (fourth / n - float(np.square(sample).sum())) / n
    weight = min(1.0, max(0.0, noise / spread))
    shrunk: Floats = (1 - weight) * sample
    shrunk[np.diag_indices(d)] += weight * mean
    return shrunk


def _whitening(covariance: Floats, centred: Floats, inverse: Inverse) -> tuple[Floats, float, bool]:
    """W with W W^T the inverse covariance, log of the determinant's root of the covariance, and whether it was shrunk.

    `auto` takes the covariance as it is when it can be inverted in float64, otherwise Ledoit and Wolf's of the same points with
    a little of the mean variance added; `pinv` leaves out the directions without spread; `none` takes it as it is.
    """
    if inverse == "none":
        return _as_it_is(covariance)
    if inverse == "pinv" or len(centred) > len(covariance):  # so few points have a singular covariance: no need to look
        values, vectors = np.linalg.eigh(covariance)
        top = float(values[-1])
        if inverse == "pinv":
            kept = values > top * len(values) * np.finfo(np.float64).eps  # as scipy.linalg.pinvh cuts
            return vectors[:, kept] / np.sqrt(values[kept]), float(0.5 * np.log(values[kept]).sum()), False
        if values[0] > 0 and top / values[0] < WORST:
            return vectors / np.sqrt(values), float(0.5 * np.log(values).sum()), False
    shrunk = _ledoit_wolf(centred)
    mean = float(np.trace(shrunk)) / len(shrunk)
    shrunk[np.diag_indices(len(shrunk))] += 1e-6 * mean if mean > 0 else 1e-12
    values, vectors = np.linalg.eigh(shrunk)
    values = np.maximum(values, values[-1] / WORST)
    return vectors / np.sqrt(values), float(0.5 * np.log(values).sum()), True


def _as_it_is(covariance: Floats) -> tuple[Floats, float, bool]:
    try:
        root = np.linalg.cholesky(covariance)
    except np.linalg.LinAlgError:
        raise BadInput(
            "unsuitable",
            "inverse",
            "inverse='none': a covariance is singular (fewer inputs than neurons, or neurons that depend on each other): "
            "use auto or pinv.",
        ) from None
    whiten: Floats = np.linalg.inv(root).T
    return whiten, float(np.log(np.diag(root)).sum()), False


class Gaussian:
    """Mean and inverse covariance (divided by the count) of points."""

    def __init__(self, points: Floats, inverse: Inverse = "auto") -> None:
        points = _checked(points)
        check_square(points.shape[1])
        self.mean = points.mean(axis=0)
        self.few = len(points) <= points.shape[1]  # so few points have a singular covariance
        centred = points - self.mean
        self.whiten, _, self.shrunk = _whitening(centred.T @ centred / len(points), centred, inverse)

    def squared_distance(self, values: Floats) -> Floats:
        """Squared Mahalanobis distance from the mean: (n,)."""
        white = (values - self.mean) @ self.whiten
        squared: Floats = np.einsum("ij,ij->i", white, white)
        return squared


class Kernels:
    """Gaussian kernels on points. bandwidth: `scott`, with the points' covariance, or one number for every direction."""

    def __init__(self, points: Floats, bandwidth: Literal["scott"] | float = "scott", inverse: Inverse = "auto") -> None:
        points = _checked(points)
        n, d = points.shape
        check_square(d)
        self.mean = points.mean(axis=0)
        self.shrunk, self.few = False, n <= d
        if bandwidth == "scott":
            centred = points - self.mean
            covariance = centred.T @ centred / max(1, n - 1)
            whiten, root, self.shrunk = _whitening(covariance, centred, inverse)
            factor = n ** (-1 / (d + 4))
            self.whiten: Floats = whiten / factor
            log_root = root + d * np.log(factor)
        else:
            self.whiten = np.eye(d) / float(bandwidth)
            log_root = d * np.log(float(bandwidth))
        self.points: Floats = (points - self.mean) @ self.whiten
        self._constant = np.log(n) + 0.5 * self.whiten.shape[1] * np.log(2 * np.pi) + log_root

    def log_density(self, values: Floats) -> Floats:
        """Natural logarithm of the density: (n,)."""
        white = (values - self.mean) @ self.whiten
        logs = np.empty(len(white))
        step = max(1, CHUNK // len(self.points))
        for start in range(0, len(white), step):
            exponents = squared_distances(white[start : start + step], self.points)
            exponents *= -0.5
            most = exponents.max(axis=1)
            exponents -= most[:, None]
            logs[start : start + step] = most + np.log(np.exp(exponents, out=exponents).sum(axis=1))
        logs -= self._constant
        return logs


def _checked(points: Floats) -> Floats:
    if points.ndim != 2 or not points.size:
        raise BadInput(
            "wrong-shape", "points", f"points have shape {points.shape}: expected at least one point and one dimension."
        )
    return np.asarray(points, dtype=np.float64)
