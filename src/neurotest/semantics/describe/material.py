"""What a describer works on, and what a describer is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np

from neurotest import checks
from neurotest.arrays import LARGEST_ARRAY
from neurotest.data.source import Source
from neurotest.errors import BadInput
from neurotest.files import atomic_write, cache_dir
from neurotest.reading import read_bytes, user_path
from neurotest.scan import BATCH, Consumer, Progress, scan
from neurotest.semantics.descriptions import DEAD, UNKNOWN, NeuronDescription
from neurotest.semantics.exemplars import QUANTILE, Exemplars, K, has_map
from neurotest.target import Layer, Target

if TYPE_CHECKING:
    from neurotest.semantics.describe.work import Snapshots

FORMAT = 3  # of kept exemplars
MEMORY = 1 << 28  # bytes of recorded maps per batch


@runtime_checkable
class Describer(Protocol):
    """Settings of a method that puts neurons into words."""

    @property
    def signature(self) -> str:
        """Everything the words depend on beside target, data and layers: settings, and the content of files that are read."""
        return repr(self)

    def describe(self, material: Material) -> Iterable[NeuronDescription]:
        """Descriptions of the material's neurons; what is left out is unknown."""
        raise NotImplementedError


@dataclass(eq=False)
class Material:
    """A target, data, the layers to be described, and what all describers share: one pass for the exemplars of them all."""

    target: Target
    data: Source | None
    layers: tuple[Layer, ...]
    k: int = K
    quantile: float = QUANTILE
    batch: int = BATCH
    seed: int = 0
    cache: bool = True
    progress: Progress | None = None
    snapshots: Snapshots | None = None
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        checks.count("k", self.k, f"{K} is usual")
        checks.number("quantile", self.quantile, f"{QUANTILE} is usual", above=0, below=1)

    @property
    def source(self) -> Source:
        if self.data is None:
            raise BadInput(
                "missing",
                "data",
                "there is no data to take exemplars from: give inputs such as zoo:NAME/train (training data is best).",
            )
        return self.data

    @property
    def sizes(self) -> dict[str, int]:
        return {layer.name: layer.neurons() for layer in self.layers}

    @property
    def shape(self) -> tuple[int, ...]:
        shape = self.target.shape or (self.data.shape if self.data is not None else None)
        if shape is None:
            raise BadInput(
                "missing", "size", "the size of the network's inputs is unknown: pass --size, for example --size 3x32x32."
            )
        return tuple(shape)

    def mapped(self, layer: Layer) -> bool:
        """Whether the layer's neurons have maps over the input."""
        return has_map(layer, self.shape)

    def safe_batch(self) -> int:
        """As many inputs per pass as their maps fit into memory."""
        each = 4 * sum(int(np.prod(layer.shape)) for layer in self.layers)
        return max(1, min(self.batch, MEMORY // max(1, each)))

    @cached_property
    def classes(self) -> tuple[str, ...]:
        """The class names, each once; numbers where there are none."""
        names = self.target.classes or self.source.classes
        if names is None:
            self.notes.append("the classes have no names and are called by their numbers: --classes FILE names them.")
            names = tuple(f"class {number}" for number in range(self.width))
        return distinct(names)

    @property
    def width(self) -> int:
        """How many classes labels are counted by."""
        labels = self.source.labels
        return 0 if labels is None else max(int(labels.max()) + 1, len(self.target.classes or self.source.classes or ()))

    @cached_property
    def exemplars(self) -> Exemplars:
        exemplars = Exemplars(self.layers, self.k, self.quantile, labels=self.source.labels, classes=self.width)
        place = cache_dir() / "exemplars" / f"{self.key(repr((FORMAT, self.k, self.quantile, self.width)))}.safetensors"
        if not self.cache or not _restored(exemplars, place):
            self._pass(exemplars)
            if self.cache:
                _keep(exemplars, place)
        if exemplars.nonfinite:
            self.notes.append(f"NaN or infinite activations for {exemplars.nonfinite} inputs and layers; they count as least.")
        return exemplars

    def _pass(self, exemplars: Exemplars) -> None:
        """Over the data or, where a run holds the first part of it already, over the rest."""
        consumers: list[Consumer] = [exemplars]
        if self.snapshots is not None:
            self.snapshots.restore(exemplars)
            consumers.append(self.snapshots)
        seen, total = exemplars.seen, len(self.source)
        if seen < total:
            rest = self.source.take(np.arange(seen, total)) if seen else self.source
            shown = self.progress and (lambda done, _: self.progress and self.progress(seen + done, total))
            scan(self.target, rest, consumers, batch=self.safe_batch(), progress=shown)

    def key(self, more: str) -> str:
        """A hash of everything the result depends on: the target, the layers, the inputs and their labels, and `more`."""
        seen = blake2b(digest_size=16)
        names = [(layer.name, layer.shape, layer.axis) for layer in self.layers]
        seen.update(repr((self.target.fingerprint, self.target.classes, names, more)).encode())
        if self.data is not None:
            seen.update(repr((len(self.data), self.data.classes)).encode())
            seen.update(np.ascontiguousarray(self.data.ids()).tobytes())
            seen.update(b"" if self.data.labels is None else self.data.labels.tobytes())
        return seen.hexdigest()

    def complete(self, rows: Iterable[NeuronDescription], method: str) -> list[NeuronDescription]:
        """A description of every neuron: dead ones are named as such where there are exemplars, the rest is unknown."""
        every = {
            (layer, n): NeuronDescription(layer, n, UNKNOWN, 0.0, method)
            for layer, count in self.sizes.items()
            for n in range(count)
        }
        every |= {(row.layer, row.neuron): row for row in rows if (row.layer, row.neuron) in every}
        if self.data is not None:
            dead = [(layer, int(n)) for layer in self.sizes for n in np.flatnonzero(self.exemplars.dead(layer))]
            every |= {(layer, n): NeuronDescription(layer, n, DEAD, 0.0, method) for layer, n in dead}
        return list(every.values())


def distinct(names: Sequence[str]) -> tuple[str, ...]:
    """Class names, refused when one is empty or stands twice: descriptions refer to classes by name."""
    for number, name in enumerate(names):
        if not str(name).strip():
            raise BadInput(
                "empty",
                "classes",
                f"class {number} has an empty name: give every class one with --classes FILE, one name per line.",
            )
        if name in (first := list(names[:number])):
            raise BadInput(
                "duplicate",
                "classes",
                f"the class name {name!r} stands twice (classes {first.index(name)} and {number}): give each class its own "
                "with --classes FILE.",
            )
    return tuple(str(name) for name in names)


def content_hash(*files: str) -> str:
    """Of the files that descriptions are made from."""
    seen = blake2b(digest_size=16)
    for file in files:
        seen.update(read_bytes(user_path(file), "a file to describe with", limit=LARGEST_ARRAY))
    return seen.hexdigest()


def _restored(exemplars: Exemplars, place: Path) -> bool:
    if not place.is_file():
        return False
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        exemplars.load(load_file(place))
    except (SafetensorError, OSError, KeyError, ValueError):  # damaged: computed again
        return False
    return True


def _keep(exemplars: Exemplars, place: Path) -> None:
    """The sample of map values is not kept, only its quantile: the rest of it is never needed again."""
    from safetensors.numpy import save_file

    state = exemplars.state_dict()
    for number, name in enumerate(exemplars.best):
        state[f"{number}/places"] = exemplars.gamma(name).numpy()[None]
        state[f"{number}/places.keys"] = np.zeros(1, dtype=np.uint64)
    with suppress(BadInput), atomic_write(place) as part:  # a cache that cannot be written to costs time, nothing else
        save_file(state, part)
