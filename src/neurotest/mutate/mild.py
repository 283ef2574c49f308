"""Sixteen mild changes, the same for every input: small enough that a reliable decision stays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor

from neurotest import registry
from neurotest.mutate.base import Family, RoundedMutations
from neurotest.mutate.chain import Mutation, apply_to_all
from neurotest.mutate.nss import NssMutations

# In turn, so that the first few already are of several kinds.
CHANGES = (
    Mutation("rotation", (10.0,)), Mutation("scale", (0.9,)), Mutation("shift", (0.05, 0.05)), Mutation("shear", (10.0,)),
    Mutation("contrast", (0.8,)), Mutation("brightness", (1.1,)), Mutation("blur", (2.0,)), Mutation("rotation", (-10.0,)),
    Mutation("scale", (1.1,)), Mutation("shift", (-0.05, -0.05)), Mutation("shear", (-10.0,)), Mutation("contrast", (1.25,)),
    Mutation("brightness", (0.9,)), Mutation("blur", (3.0,)), Mutation("shift", (0.05, -0.05)), Mutation("shift", (-0.05, 0.05)),
)  # fmt: skip


@registry.register("mutation", "mild", paper="", cost="about a tenth of a LeNet-5 forward pass per mutant")
class MildMutations(RoundedMutations):
    """Rotation by 10 degrees, scale by a tenth, shift by a twentieth, shear by 10 degrees, contrast, brightness, blur.

    rounding: `exact`, or as in candidate `pool`s and in the scores of `nss+`.
    """

    def _families(self) -> Sequence[Family]:
        return [
            replace(family, rules=tuple(change.parameters for change in CHANGES if change.operator == family.name))
            for family in NssMutations().families
        ]

    def variants(self, x: Tensor) -> list[Tensor]:
        """Every change of a batch (n, c, h, w) in [0, 1], each of the batch's shape; clipped and rounded to 1/255."""
        return [apply_to_all(self, x, change) for change in CHANGES]
