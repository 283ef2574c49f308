"""The default: what a neuron looks for and which classes it serves, in one text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field

from neurotest.registry import register
from neurotest.semantics.describe.attributes import Attributes
from neurotest.semantics.describe.material import Describer, Material
from neurotest.semantics.describe.profile import ClassProfile
from neurotest.semantics.descriptions import NeuronDescription


@register("describer", "combined", paper="attributes and class-profile together", cost="that of both")
class Combined(Describer):
    """`attributes; classes`: what lights the neuron up on generated probes, then the classes that excite it most.

    The half that has nothing to say is left out, without labels the second half always; unknown when neither speaks. The
    score is a share of 1: the better of the attributes' IoU and of the class profile's (lift - 1) / (classes - 1). On inputs
    that are no images of at least 8x8 pixels only classes are named.
    """

    attributes: Attributes = field(default_factory=Attributes)
    classes: ClassProfile = field(default_factory=ClassProfile)

    def describe(self, material: Material) -> Iterator[NeuronDescription]:
        labelled = material.data is not None and material.data.labels is not None
        image = len(material.shape) == 3 and min(material.shape[1:]) >= 8
        looks = {(d.layer, d.neuron): d for d in self.attributes.describe(material)} if image else {}
        serves = {(d.layer, d.neuron): d for d in self.classes.describe(material)} if labelled or not image else {}
        if not labelled and image:
            material.notes.append("the data has no labels: descriptions name attributes only.")
        most = max(1, len(material.classes) - 1) if serves else 1
        for key in sorted({*looks, *serves}):
            both = [d.text for d in (looks.get(key), serves.get(key)) if d is not None]
            shares = [looks[key].score] if key in looks else []
            shares += [(serves[key].score - 1) / most] if key in serves else []
            yield NeuronDescription(*key, "; ".join(both), max(shares), "combined")
