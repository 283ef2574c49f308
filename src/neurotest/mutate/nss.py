"""The seven benign mutations of the NSS paper, of which candidate pools are made."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import field

import numpy as np
import torch
from numpy.typing import NDArray

from neurotest import registry, rng
from neurotest.data.source import ArraySource, Source
from neurotest.errors import BadInput
from neurotest.mutate.base import Draws, Family, RoundedMutations
from neurotest.mutate.operators import Affine, BoxBlur, Brightness, Contrast, RangeOperator, Rotation, Scale, Shear, Shift

VALUES_AT_ONCE = 1_500_000  # mutated at a time: fewer calls than small chunks need, and still in the caches


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

    def apply_to_source(self, source: Source, draws: Draws, chunk: int) -> NDArray[np.uint8]:
        """Every input of an 8-bit source changed by its draw, so many at a time."""
        mutants = np.empty((len(source), *source.shape), np.uint8)
        for start in range(0, len(source), chunk):
            part = np.arange(start, min(start + chunk, len(source)))
            x = torch.from_numpy(source.read(part)).float().div_(255)
            mutants[part] = self.apply(x, draws[part]).mul_(255).round_().to(torch.uint8).numpy()
        return mutants


@registry.register("split", "nss-pool", paper="NSS, section IV.A", cost="one mutation per input")
def nss_pool(*, source: Source, seed: int) -> Source:
    """`zoo:NAME/nss-pool@SEED`: each test image changed by one of the seven `nss` mutations, with its original's label."""
    if source.dtype != np.uint8:
        raise BadInput("unsuitable", "dtype", f"{source.spec} is not 8-bit: a mutation pool needs 8-bit images.")
    mutations = NssMutations(rounding="pool")
    draws = mutations.draw(rng.stream("pool.nss", seed), len(source))
    pool = mutations.apply_to_source(source, draws, max(1, VALUES_AT_ONCE // math.prod(source.shape)))
    return ArraySource(pool, source.labels, classes=source.classes, spec=source.spec, originals=source, notes={"draws": draws})
