"""The user's own words: folders of images, one per concept."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from neurotest import checks
from neurotest.data.source import Source
from neurotest.data.spec import data as read_data
from neurotest.errors import BadInput
from neurotest.registry import register
from neurotest.scan import batches
from neurotest.semantics.describe.material import Describer, Material
from neurotest.semantics.descriptions import NeuronDescription
from neurotest.semantics.exemplars import globs, maps
from neurotest.target import Probe, Want

SURE = 4.0  # standard errors above a coin toss
LEAST_IMAGES = 2  # images per concept


@register(
    "describer",
    "concepts",
    paper="after concept activation vectors (Kim et al. 2018), one neuron at a time",
    cost="one pass over the concept images and, where there are some, over the data as images of no concept",
    main="folder",
    differs="No direction is fitted: a neuron alone has to separate a concept's images from the others, by AUC.",
)
class Concepts(checks.Settings, Describer):
    """Names the concept whose images a neuron separates from all others, from a folder with one sub-folder of images per concept.

    `folder` may also be any DATA with class names (`npz:...`). The score is the AUC of the neuron's pooled value (spatial
    maximum): .5 is chance. Below `auc`, or within four standard errors of chance, the neuron is unknown.
    """

    opens: ClassVar[tuple[str, ...]] = ("folder",)

    folder: str
    auc: float = checks.setting(0.75, "0.75 is usual", least=0.5, below=1)

    @property
    def spec(self) -> str:
        return self.folder if ":" in self.folder else f"dir:{self.folder}"

    def source(self, material: Material) -> Source:
        spec, source = self.spec, read_data(self.spec, shape=material.shape)
        if source.labels is None or source.classes is None:
            raise BadInput(
                "missing",
                "concepts",
                f"concepts: {spec} names no concepts: give a folder with one sub-folder of images per concept.",
            )
        counts = np.bincount(source.labels, minlength=len(source.classes))
        if len(source.classes) < 2 and material.data is None:
            raise BadInput(
                "too-few",
                "concepts",
                f"concepts: {spec} holds one concept, and there is no other data: give DATA or a second concept.",
            )
        for name, count in zip(source.classes, counts, strict=True):
            if count < LEAST_IMAGES:
                raise BadInput(
                    "too-few",
                    "images",
                    f"concepts: {spec} holds {count} usable images of {name!r}: at least {LEAST_IMAGES} are needed.",
                )
        return source

    @property
    def signature(self) -> str:
        source = read_data(self.spec)
        return f"{self!r} {source.classes} {source.digest()}"

    def describe(self, material: Material) -> Iterator[NeuronDescription]:
        source = self.source(material)
        assert source.classes is not None
        assert source.labels is not None
        groups, values = source.labels, _pooled(material, source)
        if material.data is not None:  # images of no concept
            others = _pooled(material, material.data)
            groups = np.concatenate([groups, np.full(len(material.data), -1)])
            values = {name: np.concatenate([values[name], others[name]]) for name in values}
        for layer, table in values.items():
            area, error = _areas(table, groups, len(source.classes))  # (concepts, neurons)
            best = area.argmax(axis=0)
            for neuron, concept in enumerate(best):
                value = area[concept, neuron]
                if value >= self.auc and value - 0.5 >= SURE * error[concept]:
                    yield NeuronDescription(layer, neuron, source.classes[concept], float(value), "concepts")


def _pooled(material: Material, source: Source) -> dict[str, NDArray[np.float32]]:
    """Every input's spatial maximum per neuron: layer -> (n, neurons)."""
    want = Want(layers=globs(material.layers), keep="map")
    parts: dict[str, list[NDArray[np.float32]]] = {layer.name: [] for layer in material.layers}
    with Probe(material.target, want) as probe:
        for part in batches(material.target, source, batch=material.safe_batch()):
            trace = probe(part.x)
            for layer in material.layers:
                parts[layer.name].append(maps(layer, trace[want][layer.name]).amax(dim=2).float().cpu().numpy())
    return {name: np.concatenate(some) for name, some in parts.items()}


def _areas(values: NDArray[np.float32], groups: NDArray[np.int64], count: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """AUC of each group against all other inputs, (groups, neurons), and its standard error under chance, (groups,)."""
    from scipy.stats import rankdata

    ranks = rankdata(np.nan_to_num(values, nan=-np.inf), axis=0)  # (n, neurons), ties share their mean rank
    member = groups[None] == np.arange(count)[:, None]  # (groups, n)
    size = member.sum(axis=1).astype(float)
    rest = len(groups) - size
    wins = member.astype(float) @ ranks - (size * (size + 1) / 2)[:, None]
    return wins / np.maximum(size * rest, 1)[:, None], np.sqrt((len(groups) + 1) / (12 * np.maximum(size * rest, 1)))
