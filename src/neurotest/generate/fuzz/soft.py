"""Guides by soft decision paths: what all neurons contributed, or plainly put out, compared with the seed's by the cosine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from neurotest import registry
from neurotest.data.source import Source
from neurotest.generate.fuzz.guides import BatchContext, Guide, GuideState
from neurotest.generate.fuzz.semantic import PathState
from neurotest.measure.context import Context
from neurotest.semantics.soft import ByValue, Contributions, Soft, SoftPaths, Values, Vectors
from neurotest.target import Trace


@dataclass(frozen=True, kw_only=True)
class _SoftGuide(Soft, Guide):
    """What both guides share."""

    reference: Literal["root", "parent"] = "root"

    def start(self, context: Context, seeds: Source) -> GuideState:
        train = context.need_train(f"the guide {type(self).__name__.lower()}")
        ready = self.ready(context.need_target(), train, progress=context.progress, cache=context.cache)
        return _SoftState(ready, self.reference)


@registry.register(
    "guide",
    "path",
    paper="ours, after NSGen (Huang et al., TOSEM 2025)",
    cost="14 further forward passes per mutant, and once per target those of 10 training images per class under 95 rules",
    differs="NSGen takes the one neuron per layer that contributed most and compares descriptions of these; this compares the "
    "contributions of all neurons, layer by layer, and needs neither words nor labels. Contributions are to the logit of the "
    "seed's predicted class, for the mutant, too: its own class would reveal its prediction.",
    main="critical",
)
class Path(_SoftGuide, Contributions):
    """Keep a mutant when what its neurons contributed to the seed's class points in another direction than what the seed's did.

    The similarity is the mean over layers of the cosine of all neurons' contributions. critical: how contributions are measured
    (`neurotest list critical`). reference: the seed at the `root` of the mutant's lineage, or its `parent`. depth or layers:
    which layers. tau: the threshold, else the `quantile` over `per_class` training images (below 1: that share of every class)
    under 95 rules.
    """


@registry.register(
    "guide",
    "activation",
    paper="ours: the control that NSGen lacks",
    cost="none per mutant: the pass that tests it shows its activations; one pass per seed, and once per target those of 10 "
    "training images per class under 95 rules",
    differs="What is left of NSGen without conductance, top neurons, descriptions and labels.",
    main="depth",
)
class Activation(_SoftGuide, Values):
    """Keep a mutant when its neurons' activations point in another direction than its seed's.

    The similarity is the mean over layers of the cosine of all activations. neuron: `channel` takes the mean of a map, `unit`
    every value of it. reference: the seed at the `root` of the mutant's lineage, or its `parent`. depth or layers: which layers.
    tau: the threshold, else the `quantile` over `per_class` training images (below 1: that share of every class) under 95 rules.
    """


class _SoftState(PathState):
    """Vectors instead of paths; where the pass that tests a mutant shows them, nothing more is run."""

    ready: SoftPaths

    def __init__(self, ready: SoftPaths, reference: str = "root") -> None:
        super().__init__(ready, reference)
        if isinstance(ready.reader, ByValue):
            self.want = ready.reader.want

    @property
    def reference_passes(self) -> int:
        return max(1, self.ready.passes)

    def _paths(self, trace: Trace, batch: BatchContext, references: Vectors) -> Vectors:
        if isinstance(self.ready.reader, ByValue):
            return self.ready.reader.of(trace)
        vectors: Vectors = super()._paths(trace, batch, references)
        return vectors

    def details(self) -> dict[str, Any]:
        names = {"dpd_rate": "rate below tau", "dpd_count": "kept"}
        return {names.get(name, name): value for name, value in super().details().items()}
