"""NSGen's guide: keep mutants whose decision path differs from that of the input they come from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from neurotest import registry
from neurotest.coverage.criterion import Arrays
from neurotest.data.source import Source
from neurotest.generate.fuzz.guides import BatchContext, Guide, GuideState
from neurotest.generate.fuzz.seeds import Seeds
from neurotest.measure.context import Context
from neurotest.semantics.guidance import Guidance, Semantics
from neurotest.semantics.paths import LABELS, Paths
from neurotest.target import Trace, Want

SIMILARITY = Want(layers="(similarity of paths)")  # stands for no layer: what `prepare` adds to a trace
NAME = "similarity"
BLOCK_SEEDS = 16  # seeds whose paths are read together: fixed groups, so that a resumed campaign reads the same
MOST_PATHS = 20_000  # paths of parents
DEEPEST = 10_000  # mutations on top of each other where the paper sets no limit: as many as a campaign has turns


@registry.register(
    "guide",
    "nsgen",
    paper="Huang et al., NSGen, TOSEM 2025",
    cost="14 further forward passes per mutant (7 steps of conductance, a backward pass counted as one), and once per target the "
    "paths of 10 training images per class under 95 rules",
    differs="The published path holds the predicted label, so that another path partly means another prediction; here `no-label` "
    "is the default, `with-label` is the paper's, `label-only` and `random-words` are controls. Conductance is taken for the "
    "seed's class, not for the mutant's, which would repeat the prediction (`target=own`). Paths are compared with those of "
    "the seed at the root; algorithm 1 compares with the seed that was sampled, which may be a mutant (`reference=parent`). "
    "Neurons within 2 % of each other are a tie. `preset=paper` is the text, `preset=code` the published program; below is what "
    "each sets.",
    main="mode",
    presets={
        "paper": {"mode": "with-label", "distance": "text", "target": "own", "reference": "parent", "margin": 0.0, "depth": 5,
                  "shuffle": True, "repeats": True, "per_class": 0.01, "campaign": "paper"},
        "code": {"mode": "with-label", "distance": "text", "target": "true", "reference": "parent", "margin": 0.0, "depth": 5,
                 "critical": "conductance:steps=50,grid=captum,rule=left", "campaign": "code"},
        "without-cns": {"critical": "all", "mode": "with-label"},
        "without-nldg": {"distance": "jaccard"},
    },
)  # fmt: skip
class NSGen(Guidance, Guide):
    """Keep a mutant when the similarity of its decision path to the reference's is below tau.

    reference: the seed at the `root` of the mutant's lineage, or its `parent`. campaign: what the fuzzer does where nothing else
    is said: `ours`, as for every guide, or as in the `paper` or its `code`. Everything else is about paths and how they are
    compared:
    mode: `no-label`, `with-label`, `label-only`, `random-words` or `label+random-words`. distance: `text`, `jaccard` on neurons
    or `desc-jaccard` on words. encoder, fallback: for `text`. critical: how neurons are chosen, or `all`. depth or layers: which
    layers. top: neurons per layer. margin: ties. target: whose logit is attributed. describe: a describer. labels: predicted
    classes in a path. tau: the threshold, else the `quantile` over `per_class` training images under 95 rules.
    """

    reference: Literal["root", "parent"] = "root"
    campaign: Literal["ours", "paper", "code"] = "ours"

    @property
    def defaults(self) -> dict[str, Any]:
        """Algorithm 1 adds whatever is kept to the seeds, faults too, and keeps nothing else."""
        if self.campaign == "ours":
            return {}
        algorithm = {"tries": 64, "accept": "first", "reuse_failures": True, "every_fault": False, "max_depth": DEEPEST}
        return {"validity": f"valid:preset=nsgen-{self.campaign}", **algorithm}

    def start(self, context: Context, seeds: Source) -> GuideState:  # type: ignore[override]
        train = context.need_train("the guide nsgen")
        ready = Guidance.start(self, context.need_target(), train, progress=context.progress, cache=context.cache)
        return NSGenState(ready, self.reference)


class PathState(GuideState):
    """Compares every mutant's path with that of its reference; paths of references are read once and kept.

    `ready` reads and compares: `Semantics`, or soft paths. What it reads has rows, and `joined` makes one of several.
    """

    shrinking = True  # gains do not depend on what was kept
    shares = True  # counts

    def __init__(self, ready: Any, reference: str = "root") -> None:
        self.ready, self.reference = ready, reference
        self.pairs = self.below = self.kept = 0
        self.tau: float = ready.tau
        self._paths_of: dict[int, Any] = {}
        self._marked: tuple[NDArray[np.int64], set[int]] = (np.zeros(3, dtype=np.int64), set())
        self._counted: set[int] = set()  # references whose passes were counted: a resumed campaign reads them again for free

    def prepare(self, trace: Trace, batch: BatchContext) -> Trace:
        references = self._references(batch)
        similarity = self.ready.similarity(references, self._paths(trace, batch, references))
        self.pairs += len(similarity)
        self.below += int(np.count_nonzero(similarity < self.tau))
        with torch.inference_mode():
            recorded = {**trace.recorded, SIMILARITY: {NAME: torch.from_numpy(similarity)}}
        return Trace(trace.logits, recorded)

    def _paths(self, trace: Trace, batch: BatchContext, references: Any) -> Any:
        """Of the mutants."""
        self.forwards += len(batch.x) * self.ready.passes
        return self.ready.reader.mutants(batch.x, references, trace.predictions)

    def _references(self, batch: BatchContext) -> Any:
        if self.reference == "root":
            keys: list[int] = batch.roots.tolist()
            self._read_roots(batch.seeds, set(keys))
        else:
            keys = [-1 - entry.number for entry in batch.parents]
            self._read_parents(batch, keys)
        parts = [self._paths_of[key] for key in keys]
        return type(parts[0]).joined(parts)

    def _read_roots(self, seeds: Seeds, roots: set[int]) -> None:
        """An island reads seeds of its own shard together: each `islands`-th."""
        every = self.islands
        for block, first in sorted(
            {(root // every // BLOCK_SEEDS, root % every) for root in roots if root not in self._paths_of}
        ):
            rows = np.arange(first, len(seeds), every)[block * BLOCK_SEEDS : (block + 1) * BLOCK_SEEDS]
            self._read(rows.tolist(), seeds.x[rows], seeds.roots.labels[rows])

    def _read_parents(self, batch: BatchContext, keys: list[int]) -> None:
        """One by one, because which parents come together depends on the campaign's past."""
        if len(self._paths_of) > MOST_PATHS:
            self._paths_of.clear()
        for entry, key in zip(batch.parents, keys, strict=True):
            if key not in self._paths_of:
                self._read([key], np.asarray(entry.x)[None], batch.seeds.roots.labels[[entry.root]])

    def _read(self, keys: list[int], images: NDArray[Any], labels: NDArray[np.int64]) -> None:
        x = self.ready.target.prepare(np.array(images))  # a copy: images of a resumed campaign are read-only
        self.forwards += len(set(keys) - self._counted) * self.reference_passes
        self._counted.update(keys)
        paths = self.read_references(x, labels)
        self._paths_of.update((key, paths[i : i + 1]) for i, key in enumerate(keys))

    @property
    def reference_passes(self) -> int:
        """Forward passes that a reference costs."""
        return int(self.ready.passes)

    def read_references(self, x: Tensor, labels: NDArray[np.int64]) -> Any:
        return self.ready.reader.references(x, labels)

    def gain(self, trace: Trace) -> NDArray[np.float64]:
        return self.tau - trace[SIMILARITY][NAME].numpy()

    def keep(self, trace: Trace) -> None:
        self.kept += len(trace.logits)

    def some(self, trace: Trace, rows: list[int]) -> Trace:
        return Trace(trace.logits[rows], {SIMILARITY: {NAME: trace[SIMILARITY][NAME][rows]}})

    def value(self) -> float | None:
        """The rate of decision path discrepancy: pairs below tau over all pairs."""
        return self.below / self.pairs if self.pairs else None

    def details(self) -> dict[str, Any]:
        threshold = self.ready.threshold
        return {
            "dpd_rate": self.value(),
            "dpd_count": self.kept,
            "tau": self.tau,
            "threshold": None if threshold is None else threshold.to_dict(),
            "layers": [layer.name for layer in self.ready.layers],
        }

    def arrays(self) -> Arrays:
        return {"counts": np.array([self.pairs, self.below, self.kept]), "paid": np.array(sorted(self._counted), dtype=np.int64)}

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        self.pairs, self.below, self.kept = (int(n) for n in arrays["counts"])
        self._counted = {int(key) for key in arrays["paid"]}

    def begin_leg(self) -> None:
        self._marked = (self.arrays()["counts"], set(self._counted))

    def changes(self) -> Arrays:
        counts, paid = self._marked
        return {"counts": self.arrays()["counts"] - counts, "paid": np.array(sorted(self._counted - paid), dtype=np.int64)}

    def learn(self, changes: Mapping[str, NDArray[Any]]) -> None:
        pairs, below, kept = (int(n) for n in changes["counts"])
        self.pairs, self.below, self.kept = self.pairs + pairs, self.below + below, self.kept + kept
        self._counted |= {int(key) for key in changes["paid"]}


class NSGenState(PathState):
    """Paths of one neuron per layer and their words; where neurons do not count, predictions alone."""

    ready: Semantics

    def _paths(self, trace: Trace, batch: BatchContext, references: Paths) -> Paths:
        if not self.ready.passes:
            return _labels_only(trace.logits, references)
        paths: Paths = super()._paths(trace, batch, references)
        return paths

    def read_references(self, x: Tensor, labels: NDArray[np.int64]) -> Paths:
        if self.ready.passes:
            return self.ready.reader.references(x, labels)
        with torch.inference_mode():
            return _labels_only(self.ready.target.logits(x), None, self.ready)

    def details(self) -> dict[str, Any]:
        return {**super().details(), "distinct paths": self.ready.comparer.distinct}


def _labels_only(logits: Tensor, like: Paths | None, ready: Semantics | None = None) -> Paths:
    """Paths of predictions alone, for comparisons in which neurons do not count."""
    labels = logits.topk(min(LABELS, logits.shape[1]), dim=1).indices.cpu().numpy()
    if like is not None:
        return Paths(like.units, like.scores, labels, like.classes)
    assert ready is not None
    shape = (len(labels), len(ready.layers), ready.settings.top)
    return Paths(np.zeros(shape, np.int64), np.zeros(shape, np.float32), labels, labels[:, 0])
