"""Everything NSGen needs to decide whether a mutant has another decision path than its seed, from one set of settings."""

from __future__ import annotations

from dataclasses import dataclass, fields
from hashlib import blake2b
from typing import Any, Literal, TypedDict

import numpy as np
from numpy.typing import NDArray

from neurotest import registry
from neurotest.checks import Settings, setting
from neurotest.data.source import Source
from neurotest.errors import BadInput
from neurotest.scan import Progress, aligned, fit
from neurotest.semantics.critical import DEPTH, CriticalSettings, path_layers
from neurotest.semantics.descriptions import DEAD, DEFAULT, Descriptions, describe
from neurotest.semantics.exemplars import globs
from neurotest.semantics.paths import MARGIN, PathComparer, PathComparison, PathReader, Paths
from neurotest.semantics.threshold import PER_CLASS, QUANTILE, MutatedImages, PathSample, Threshold
from neurotest.semantics.threshold import tau as threshold
from neurotest.target import Layer, Target


class GuidanceOptions(TypedDict, total=False):
    """The fields of `Guidance` that `neurotest.explain` takes; its `target` is the network."""

    mode: str | None
    distance: Literal["text", "jaccard", "desc-jaccard"] | None
    encoder: Any
    fallback: str | None
    critical: Any
    depth: int | None
    layers: str | None
    top: int | None
    margin: float | None
    describe: Any
    labels: int | None
    shuffle: bool | None
    repeats: bool | None
    tau: float | None
    quantile: float | None
    per_class: float | None
    seed: int | None


@dataclass(frozen=True, kw_only=True)
class Guidance(Settings):
    """Settings of decision paths and of how they are compared.

    mode, distance, encoder, fallback, labels, shuffle, repeats: see `Comparison`. critical: how neurons are chosen (see
    `neurotest list critical`), or `all` for all neurons of the layers. depth: how many layers; layers: globs instead. top:
    neurons per layer. margin: ties. target: whose logit is attributed, the `reference`'s predicted class, the mutant's `own`
    (which reveals its prediction) or the `true` one. describe: a describer. tau: the threshold, else the `quantile` over
    `per_class` training images under 95 rules (below 1: that share of every class).
    """

    mode: str = "no-label"
    distance: Literal["text", "jaccard", "desc-jaccard"] = "text"
    encoder: Any = "lsa"
    fallback: str | None = None
    critical: Any = "conductance"
    depth: int = DEPTH
    layers: str | None = None
    top: int = 1
    margin: float = MARGIN
    target: Literal["reference", "own", "true"] = "reference"
    describe: Any = DEFAULT
    labels: int = 1
    shuffle: bool = False
    repeats: bool = False
    tau: float | None = setting(None, "a similarity, or none to take it from the training data", least=-1, most=1)
    quantile: float = setting(QUANTILE, "0.25 is the lower quartile", above=0, below=1)
    per_class: float = PER_CLASS
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.comparison()

    def comparison(self) -> PathComparison:
        settings = {f.name: getattr(self, f.name) for f in fields(PathComparison) if f.name != "everything"}
        return PathComparison(**settings, everything=self.critical == "all")

    def reader(self, target: Target, train: Source | None, bank: Descriptions | None) -> PathReader:
        """What finds the paths."""
        critical = registry.build("critical", "activation" if self.critical == "all" else self.critical)
        if not isinstance(critical, CriticalSettings):
            raise BadInput(
                "unknown-name", "critical", f"critical={self.critical!r}: expected a name of `neurotest list critical`, or all."
            )
        critic = critical.start(target, path_layers(target, self.depth, self.layers), train)
        return PathReader(critic, top=self.top, margin=self.margin, target=self.target, dead=bank)

    def bank(self, target: Target, train: Source, progress: Progress | None = None) -> Descriptions:
        """The descriptions of the path's layers, from the cache where they are there."""
        layers = path_layers(target, self.depth, self.layers)
        if isinstance(self.describe, Descriptions):
            bank = self.describe
        else:
            bank = describe(target, train, self.describe, layers=globs(layers), progress=progress)
        bank.check(target)
        for layer in layers:
            if layer.name not in bank.layers:
                raise BadInput(
                    "missing",
                    "descriptions",
                    f"no descriptions of layer {layer.name!r}, which the path passes: describe it, or name others.",
                )
        return bank

    def about(self) -> str:
        """What the paths of a sample depend on beside target and images."""
        return repr((repr(self.critical), self.depth, self.layers, self.top, self.margin, self.target))

    def start(self, target: Target, train: Source, *, progress: Progress | None = None, cache: bool = True) -> Semantics:
        fit(target, train)
        train = aligned(target, train)
        bank = self.bank(target, train, progress)
        reader = self.reader(target, train, bank)
        comparer = self.comparison().start(reader.layers, bank, target.classes or train.classes)
        sample = estimate = None
        if self.tau is None:
            # The choice of neurons depends on the first training inputs: the mean colour, or the usual values.
            first = blake2b(np.ascontiguousarray(train.ids()[:1000]).tobytes(), digest_size=8).hexdigest()
            dead = [(d.layer, d.neuron) for layer in reader.layers for d in bank.layer(layer.name) if d.text == DEAD]
            images = MutatedImages.of(target, train, f"{self.about()} {first} {dead}", self.per_class, self.seed)
            sample = images.paths(reader, cache=cache, progress=progress)
            estimate = threshold(sample.similarities(comparer), self.quantile, self.seed)
        value = float(self.tau) if estimate is None else estimate.value  # type: ignore[arg-type]
        return Semantics(self, target, reader, comparer, bank, value, estimate, sample)


@dataclass(frozen=True, eq=False)
class Semantics:
    """Ready for one target: reads paths, puts them into words, compares them with `tau`."""

    settings: Guidance
    target: Target
    reader: PathReader
    comparer: PathComparer
    bank: Descriptions
    tau: float
    threshold: Threshold | None
    sample: PathSample | None

    @property
    def layers(self) -> tuple[Layer, ...]:
        return self.reader.layers

    @property
    def passes(self) -> int:
        """Forward passes per mutant beside the one that tests it."""
        return 0 if self.settings.mode == "label-only" or self.settings.critical == "all" else self.reader.critic.passes

    def similarity(self, references: Paths, paths: Paths) -> NDArray[np.float64]:
        return self.comparer.similarity(references, paths)

    def differs(self, references: Paths, paths: Paths) -> NDArray[np.bool_]:
        """Which paths are others than their references'."""
        return self.similarity(references, paths) < self.tau
