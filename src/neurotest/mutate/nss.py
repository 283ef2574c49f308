"""The seven benign mutations of the NSS paper, of which candidate pools are made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from neurotest import registry
from neurotest.errors import BadInput
from neurotest.mutate.base import Draws, Family, RoundedMutations
from neurotest.mutate.operators import Affine, BoxBlur, Brightness, Contrast, RangeOperator, Rotation, Scale, Shear, Shift


@registry.register(
    "mutation",
    "nss",
    paper="NSS, table III",
    cost="about a tenth of a LeNet-5 forward pass per input",
    differs="The paper gives ranges only. Shift draws sign and size per axis, rotation and shear draw a sign; "
    "brightness adds (b - 1) / 2, because adding b itself makes every image white; "
    "results are rounded to 1/255, so that what is tested is what a PNG holds. In a campaign the affine ones are allowed once "
    "per lineage; the paper mutates every input once.",
)
@dataclass(frozen=True, kw_only=True)
class NssMutations(RoundedMutations):
    """Seven benign mutations, one drawn uniformly per input: shift, rotation, scale, shear, contrast, brightness, blur.

    rounding: `exact`, or as in candidate `pool`s, where the last bit of some pixels depends on the rest of the batch.
    """

    operators: Mapping[str, RangeOperator] = field(
        default_factory=lambda: {
            "shift": Shift(), "rotation": Rotation(), "scale": Scale(), "shear": Shear(),
            "contrast": Contrast(), "brightness": Brightness(), "blur": BoxBlur(),
        }
    )  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.operators, Mapping) or not all(isinstance(v, RangeOperator) for v in self.operators.values()):
            raise BadInput(
                "wrong-type",
                "operators",
                f"operators={self.operators!r}: expected a dict such as {{'rotation': Rotation(low=5, high=25)}}.",
            )

    def _families(self) -> Sequence[Family]:
        return [Family(name, one, (), one.neutral, once=isinstance(one, Affine)) for name, one in self.operators.items()]

    def draw(self, random: np.random.Generator, n: int) -> Draws:
        """One mutation for each of n items: all families first, then the values family by family, as pools always drew them."""
        kind = random.integers(0, len(self.operators), n).astype(np.int8)
        parameters = np.zeros((n, 2))
        for number, operator in enumerate(self.operators.values()):
            mine = np.flatnonzero(kind == number)
            values = operator.draw(random, len(mine))
            parameters[mine, : values.shape[1]] = values
        return Draws(self.names, kind, parameters)
