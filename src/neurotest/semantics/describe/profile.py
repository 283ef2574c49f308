"""Class profiles: a neuron is named after the classes whose inputs excite it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from neurotest import checks
from neurotest.errors import BadInput
from neurotest.registry import register
from neurotest.semantics.describe.material import Describer, Material
from neurotest.semantics.descriptions import NeuronDescription

SURE = 4.0  # standard errors


@register(
    "describer",
    "class-profile",
    paper="after Network Dissection's practice and Morcos et al. 2018 (class selectivity)",
    cost="one pass over the data; sums per class and neuron",
    differs="Values are counted from the neuron's floor, the .01 quantile of its pooled values, so that layers with negative "
    "values (outputs, convolutions before their activation) have lifts too. A rectified neuron that is often silent has floor 0 "
    "and nothing changes.",
)
class ClassProfile(checks.Settings, Describer):
    """Names up to `most` classes whose mean pooled activation is at least `lift` times the mean over classes.

    The score is the lift of the first class: 1 says nothing, the number of classes is the most there can be.
    A class must also lie four standard errors above that mean, so that a few inputs do not decide. `numbers=true` writes lift
    and selectivity index into the text as well.
    """

    most: int = checks.setting(3, "3 is usual")
    lift: float = checks.setting(1.5, "1.5 is usual", least=1)
    numbers: bool = False

    def describe(self, material: Material) -> Iterator[NeuronDescription]:
        if material.source.labels is None:
            raise BadInput(
                "no-labels",
                "data",
                f"class-profile names classes by their labels, and {material.source.what} has none: give labelled data, or a "
                "describer without labels (--method attributes).",
            )
        names = material.classes
        exemplars = material.exemplars
        for layer in material.layers:
            means = exemplars.means(layer.name)
            lifts = _lift_of(means)
            above = np.nan_to_num(means) - np.nanmean(np.where(np.isfinite(means), means, np.nan), axis=0)
            sure = above >= SURE * exemplars.errors(layer.name)
            for neuron, column in enumerate(lifts.T):
                order = np.argsort(-column, kind="stable")[: self.most]
                words = [names[c] for c in order if column[c] >= self.lift and sure[c, neuron]]
                if words:
                    numbers = f" (x{column.max():.1f}, selectivity {_selectivity(column):.2f})" if self.numbers else ""
                    text = ", ".join(words) + numbers
                    yield NeuronDescription(layer.name, neuron, text, float(column[order[0]]), "class-profile")


def _lift_of(means: np.ndarray) -> np.ndarray:
    """Means per class (classes, neurons) over their mean over the classes that were seen; 0 for a class that was not."""
    seen = np.isfinite(means)
    filled = np.where(seen, means, 0.0)
    base = filled.sum(axis=0) / np.maximum(seen.sum(axis=0), 1)
    return np.divide(filled, base, out=np.ones_like(filled), where=base > 0)  # type: ignore[no-any-return]


def _selectivity(lifts: np.ndarray) -> float:
    """(largest - mean of the others) / (largest + mean of the others): 0 for all classes alike, 1 for one class alone."""
    first = int(np.argmax(lifts))
    others = float(np.delete(lifts, first).mean()) if len(lifts) > 1 else 0.0
    largest = float(lifts[first])
    return (largest - others) / (largest + others) if largest + others > 0 else 0.0
