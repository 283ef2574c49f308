"""Soft decision paths: instead of the one neuron per layer that decided most, what every neuron did, compared by the cosine."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from neurotest import registry
from neurotest.checks import Settings, setting
from neurotest.data.source import Source
from neurotest.errors import BadInput
from neurotest.scan import Progress, aligned, fit
from neurotest.semantics.critical import DEPTH, Critic, CriticalSettings, path_layers
from neurotest.semantics.exemplars import globs
from neurotest.semantics.threshold import PER_CLASS, QUANTILE, MutatedImages, Threshold
from neurotest.semantics.threshold import tau as threshold
from neurotest.target import Layer, Probe, Target, Trace, Want

Similarities = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Vectors:
    """What the neurons of the layers did on many inputs, layer by layer, and for whose logit."""

    layers: tuple[NDArray[np.float32], ...]  # each (n, neurons)
    classes: NDArray[np.int64]  # (n,)

    def __len__(self) -> int:
        return len(self.classes)

    def __getitem__(self, rows: Any) -> Vectors:
        return Vectors(tuple(layer[rows] for layer in self.layers), self.classes[rows])

    @staticmethod
    def joined(parts: Sequence[Vectors]) -> Vectors:
        columns = zip(*(part.layers for part in parts), strict=True)
        return Vectors(tuple(np.concatenate(column) for column in columns), np.concatenate([part.classes for part in parts]))


def cosines(one: Vectors, other: Vectors) -> Similarities:
    """(n,) the mean over layers of the cosine of what the neurons did; a layer silent on both is alike, on one it is not."""
    total = np.zeros(len(one))
    for a, b in zip(one.layers, other.layers, strict=True):
        products = np.einsum("ij,ij->i", a, b, dtype=np.float64)
        sizes = [np.sqrt(np.einsum("ij,ij->i", v, v, dtype=np.float64)) for v in (a, b)]
        both = sizes[0] * sizes[1]
        silent = (sizes[0] == 0) & (sizes[1] == 0)
        total += np.where(silent, 1.0, products / np.where(both > 0, both, 1.0))
    values: Similarities = (total / len(one.layers)).round(6)  # products round differently in other batches
    return values


class VectorReader(ABC):
    """Reads vectors of inputs. passes: forward passes per input beside the one that tests it."""

    target: Target
    layers: tuple[Layer, ...]
    passes: int

    @abstractmethod
    def references(self, x: Tensor, labels: NDArray[np.int64] | None = None) -> Vectors: ...

    @abstractmethod
    def mutants(self, x: Tensor, references: Vectors, predicted: Tensor | None = None) -> Vectors: ...


@dataclass(eq=False)
class _ByCritic(VectorReader):
    """Contributions of neurons to the logit of the reference's class, for the reference and for its mutants."""

    critic: Critic

    def __post_init__(self) -> None:
        self.target, self.layers, self.passes = self.critic.target, self.critic.layers, self.critic.passes

    def references(self, x: Tensor, labels: NDArray[np.int64] | None = None) -> Vectors:
        with torch.inference_mode():
            classes = self.target.logits(x).argmax(1)
        return self._read(x, classes)

    def mutants(self, x: Tensor, references: Vectors, predicted: Tensor | None = None) -> Vectors:
        return self._read(x, torch.from_numpy(references.classes).to(x.device))

    def _read(self, x: Tensor, classes: Tensor) -> Vectors:
        scores = self.critic(x, classes).scores
        parts = tuple(scores[layer.name].detach().nan_to_num().float().cpu().numpy() for layer in self.layers)
        return Vectors(parts, classes.cpu().numpy())


@dataclass(eq=False)
class ByValue(VectorReader):
    """What neurons put out: of a mutant the pass that tests it shows it, so `passes` is 0. Knows no class."""

    target: Target
    layers: tuple[Layer, ...]
    want: Want
    passes: int = 0

    def references(self, x: Tensor, labels: NDArray[np.int64] | None = None) -> Vectors:
        with Probe(self.target, self.want) as probe:
            return self.of(probe(x))

    def mutants(self, x: Tensor, references: Vectors, predicted: Tensor | None = None) -> Vectors:
        return self.references(x)

    def of(self, trace: Trace) -> Vectors:
        values = trace[self.want]
        parts = tuple(values[layer.name].flatten(1).float().cpu().numpy() for layer in self.layers)
        return Vectors(parts, trace.predictions.cpu().numpy())


@dataclass(frozen=True, kw_only=True)
class Soft(Settings, ABC):
    """Settings of soft paths: which layers (`depth` of them evenly spaced, or globs), and how tau is taken."""

    depth: int = DEPTH
    layers: str | None = None
    tau: float | None = setting(None, "a similarity, or none to take it from the training data", least=-1, most=1)
    quantile: float = setting(QUANTILE, "0.25 is the lower quartile", above=0, below=1)
    per_class: float = PER_CLASS
    seed: int = 0

    @abstractmethod
    def reader(self, target: Target, train: Source) -> VectorReader: ...

    def ready(self, target: Target, train: Source, *, progress: Progress | None = None, cache: bool = True) -> SoftPaths:
        fit(target, train)
        train = aligned(target, train)
        reader, estimate = self.reader(target, train), None
        if self.tau is None:
            first = blake2b(np.ascontiguousarray(train.ids()[:1000]).tobytes(), digest_size=8).hexdigest()
            about = f"{replace(self, quantile=QUANTILE, per_class=PER_CLASS, seed=0)!r} {first}"
            images = MutatedImages.of(target, train, about, self.per_class, self.seed)
            values = images.similarities(reader, cosines, cache=cache, progress=progress)
            estimate = threshold(values, self.quantile, self.seed)
        return SoftPaths(target, reader, float(self.tau) if estimate is None else estimate.value, estimate)  # type: ignore[arg-type]


@dataclass(frozen=True, eq=False)
class SoftPaths:
    """Ready for one target."""

    target: Target
    reader: VectorReader
    tau: float
    threshold: Threshold | None

    @property
    def layers(self) -> tuple[Layer, ...]:
        return self.reader.layers

    @property
    def passes(self) -> int:
        return self.reader.passes

    def similarity(self, references: Vectors, vectors: Vectors) -> Similarities:
        return cosines(references, vectors)


@dataclass(frozen=True, kw_only=True)
class Contributions(Soft):
    """critical: how contributions are measured."""

    critical: Any = "conductance"

    def reader(self, target: Target, train: Source) -> VectorReader:
        critical = registry.build("critical", self.critical)
        if not isinstance(critical, CriticalSettings):
            raise BadInput(
                "unknown-name", "critical", f"critical={self.critical!r}: expected a name of `neurotest list critical`."
            )
        return _ByCritic(critical.start(target, path_layers(target, self.depth, self.layers), train))


@dataclass(frozen=True, kw_only=True)
class Values(Soft):
    """neuron: `channel` takes the mean of a map, `unit` every value of it."""

    neuron: Literal["channel", "unit"] = "channel"

    def reader(self, target: Target, train: Source) -> VectorReader:
        layers = path_layers(target, self.depth, self.layers)
        return ByValue(target, layers, Want(layers=globs(layers), neuron=self.neuron))
