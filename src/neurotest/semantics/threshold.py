"""The threshold tau: from which similarity on two paths are different, taken from training images under every mutation rule.

What costs is reading the paths of the sample. They are kept in the cache, by target, images and settings; the threshold of any
encoder, distance and mode comes from the same paths.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from neurotest import checks, rng
from neurotest.data.source import Source
from neurotest.errors import BadInput
from neurotest.files import atomic_write, cache_dir
from neurotest.levels import levels_of
from neurotest.mutate.base import Draws, Mutations
from neurotest.mutate.chain import Mutation, draws_of
from neurotest.mutate.rules import Rules95
from neurotest.mutate.unit import from_unit, to_unit
from neurotest.scan import Progress, predictions
from neurotest.semantics.paths import PathComparer, PathReader, Paths
from neurotest.target import Target

QUANTILE = 0.25
PER_CLASS = 10
VERSION = 1
GROUP = 4  # images whose mutants are read together
BOOTSTRAPS = 200
NAMES = ("units", "scores", "labels", "classes")


@dataclass(frozen=True, eq=False)
class PathSample:
    """Paths of training images and of their mutants, every rule once per image."""

    references: Paths  # (images,)
    mutants: Paths  # (images * rules,)
    images: int
    rules: int

    def similarities(self, comparer: PathComparer) -> NDArray[np.float64]:
        """(images, rules)."""
        rows = np.repeat(np.arange(self.images), self.rules)
        return comparer.similarity(self.references[rows], self.mutants).reshape(self.images, self.rules)

    def through(self, layers: Sequence[int]) -> PathSample:
        """The same sample through some of its layers."""
        return PathSample(self.references.through(layers), self.mutants.through(layers), self.images, self.rules)


@dataclass(frozen=True)
class Threshold:
    """tau with its stability: an interval from resampled images, and the share of the sample's mutants below it."""

    value: float
    low: float
    high: float
    below: float
    images: int
    pairs: int
    quantiles: tuple[float, ...]  # of the similarities, every twentieth

    def to_dict(self) -> dict[str, Any]:
        return {**vars(self), "quantiles": list(self.quantiles)}


def tau(similarities: NDArray[np.float64], quantile: float = QUANTILE, seed: int = 0) -> Threshold:
    """The lower quantile of (images, rules) similarities.

    Where so many are at their lowest that none is below the quantile, tau is the next higher value: "below tau" then means
    the lowest. Similarities that are all the same are refused.
    """
    checks.number("quantile", quantile, "0.25 is the lower quartile", above=0, below=1)
    values = np.sort(similarities.reshape(-1))
    if values[0] == values[-1]:
        raise BadInput(
            "empty",
            "tau",
            f"tau has no spread: all {values.size:,} mutants have similarity {values[0]:g} to their image, so paths do not "
            "differ. Take more layers (depth=), another distance, or describe the neurons with another method.",
        )
    random = rng.stream("semantics.tau", seed)
    n = len(similarities)
    drawn = [_lower(np.sort(similarities[random.integers(0, n, n)].reshape(-1)), quantile) for _ in range(BOOTSTRAPS)]
    low, high = np.quantile(drawn, [0.025, 0.975])
    value = _lower(values, quantile)
    below = float(np.searchsorted(values, value) / values.size)
    twentieths = tuple(float(v) for v in np.quantile(values, np.linspace(0, 1, 21)))
    return Threshold(value, float(low), float(high), below, n, values.size, twentieths)


def _lower(values: NDArray[np.float64], quantile: float) -> float:
    """Of sorted values."""
    value = float(values[min(int(quantile * values.size), values.size - 1)])
    higher = values[np.searchsorted(values, values[0], side="right") :]
    return float(higher[0]) if value == values[0] and len(higher) else value


def _stratified(source: Source, groups: NDArray[np.int64], per_class: float, seed: int) -> NDArray[np.int64]:
    """So many images of every class (fewer where there are fewer; below 1 that share of it, at least one), one of each class
    after the other."""
    if per_class < 1:
        checks.number("per_class", per_class, "a share of every class, 0.01 in the paper, or a number of images", above=0)
    else:
        checks.count("per_class", int(per_class) if per_class == int(per_class) else per_class, "images per class for tau")
    sizes = np.bincount(groups - groups.min()) if per_class < 1 else None
    order = rng.stream("semantics.sample", seed).permutation(len(source))
    ranked: list[tuple[int, int, int]] = []
    seen: dict[int, int] = {}
    for i in order.tolist():
        group = int(groups[i])
        most = per_class if sizes is None else max(1, round(per_class * int(sizes[group - groups.min()])))
        if (rank := seen.get(group, 0)) < most:
            ranked.append((rank, group, i))
            seen[group] = rank + 1
    return np.array([i for _, _, i in sorted(ranked)], dtype=np.int64)


def _every_rule(mutations: Mutations) -> Draws:
    """All rules, each once."""
    return draws_of(mutations, [Mutation(f.name, (*rule, *(0.0,) * f.seeded)) for f in mutations.families for rule in f.rules])


@dataclass(frozen=True, eq=False)
class MutatedImages:
    """A stratified sample of training images, all 95 rules, and where in the cache what they give is kept."""

    target: Target
    images: Source
    mutations: Mutations
    draws: Draws
    place: Path

    @staticmethod
    def of(target: Target, train: Source, about: str, per_class: float, seed: int) -> MutatedImages:
        if not len(train):
            raise BadInput("empty", "train", "the training data is empty: tau needs images to be taken from.")
        groups = train.labels if train.labels is not None else predictions(target, train)
        images = train.take(_stratified(train, groups, per_class, seed))
        mutations = Rules95()
        mutations.check(tuple(images.shape))
        draws = _every_rule(mutations)
        key = blake2b(repr((VERSION, target.fingerprint, about, repr(mutations), per_class, seed)).encode(), digest_size=16)
        key.update(np.ascontiguousarray(images.ids()).tobytes())
        return MutatedImages(target, images, mutations, draws, cache_dir() / "paths" / f"{key.hexdigest()}.safetensors")

    def paths(self, reader: PathReader, *, cache: bool = True, progress: Progress | None = None) -> PathSample:
        """The paths of the images and of their mutants."""
        n, rules = len(self.images), len(self.draws)
        columns = [f"{side}/{name}" for side in ("references", "mutants") for name in NAMES]
        if cache and (stored := _stored(self.place, columns)):
            sample = PathSample(Paths(*stored[: len(NAMES)]), Paths(*stored[len(NAMES) :]), n, rules)
            if len(sample.references) == n and len(sample.mutants) == n * rules:
                return sample
        both = list(self._groups(reader, progress))
        sample = PathSample(Paths.joined([one for one, _ in both]), Paths.joined([other for _, other in both]), n, rules)
        if cache:
            arrays = [getattr(side, name) for side in (sample.references, sample.mutants) for name in NAMES]
            _store(self.place, dict(zip(columns, map(np.ascontiguousarray, arrays), strict=True)))
        return sample

    def similarities(
        self,
        reader: Any,
        similarity: Callable[[Any, Any], NDArray[np.float64]],
        *,
        cache: bool = True,
        progress: Progress | None = None,
    ) -> NDArray[np.float64]:
        """(images, rules): how alike images and their mutants are, where nothing but that is needed of them."""
        shape = len(self.images), len(self.draws)
        if cache and (stored := _stored(self.place, ["similarities"])) and stored[0].shape == shape:
            return stored[0]
        parts = [
            similarity(references[np.repeat(np.arange(len(references)), shape[1])], mutants)
            for references, mutants in self._groups(reader, progress)
        ]
        values: NDArray[np.float64] = np.concatenate(parts).reshape(shape)
        if cache:
            _store(self.place, {"similarities": values})
        return values

    def _groups(self, reader: Any, progress: Progress | None) -> Iterator[tuple[Any, Any]]:
        """What a reader (of paths, or of what stands in their place) makes of some images, and of all their mutants."""
        n, labels = len(self.images), self.images.labels
        for start in range(0, n, GROUP):
            end = min(start + GROUP, n)
            some = None if labels is None else labels[start:end]
            yield self._read(reader, self.images.read(np.arange(start, end)), some)
            if progress is not None:
                progress(end, n)

    def _read(self, reader: Any, raw: NDArray[Any], labels: NDArray[np.int64] | None) -> tuple[Any, Any]:
        target, n, rules = self.target, len(raw), len(self.draws)
        x, every = target.prepare(raw), self.draws[np.tile(np.arange(rules), n)]
        with torch.inference_mode():
            unit = to_unit(x, target.bounds).repeat_interleave(rules, 0)
            changed = from_unit(self.mutations.apply(unit, every, levels=levels_of(raw.dtype)), target.bounds)
        references = reader.references(x, labels)
        return references, reader.mutants(changed, references[np.repeat(np.arange(n), rules)])


def _stored(place: Path, names: Sequence[str]) -> list[NDArray[Any]]:
    """Arrays from the cache; none where there is no file, or a damaged one."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        arrays = load_file(place)
        return [arrays[name] for name in names]
    except (OSError, SafetensorError, KeyError, ValueError):
        return []


def _store(place: Path, arrays: dict[str, NDArray[Any]]) -> None:
    from safetensors.numpy import save_file

    with suppress(BadInput), atomic_write(place) as part:  # a cache that cannot be written costs time only
        save_file(arrays, part)
