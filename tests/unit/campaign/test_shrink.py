"""Each step of shrinking a chain, by hand: fewer mutations, milder ones, a smaller region."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from neurotest.campaign.shrink import _ChainSearch, _cuts
from neurotest.mutate.chain import REGION, Chain, Mutation

CHAIN = (Mutation("blur", (5.0,)), Mutation("noise", (1.0,)))


class Reader:
    """Stands for a run: a chain fails if it blurs by 2 or more in a region with the pixel (1, 2)."""

    mutations = SimpleNamespace(
        find=lambda name: SimpleNamespace(milder=lambda parameters: [(float(v),) for v in range(1, int(parameters[0]))])
    )
    variants: list[Chain]

    def root(self, number: int) -> NDArray[np.uint8]:
        return np.zeros((1, 4, 4), np.uint8)

    def make(self, x: NDArray[np.uint8], variants: list[Chain]) -> NDArray[np.uint8]:
        self.variants = variants
        return x

    def fails(self, root: int, x: NDArray[np.uint8], wrong: int) -> NDArray[np.bool_]:
        return np.array([self.chain_fails(chain) for chain in self.variants])

    def chain_fails(self, chain: Chain) -> bool:
        strength = max((step.parameters[0] for step in chain if step.operator == "blur"), default=0.0)
        top, left, rows, columns = next((step.parameters for step in chain if step.operator == REGION), (0, 0, 4, 4))
        return strength >= 2 and top <= 1 < top + rows and left <= 2 < left + columns


def search(chain: Chain) -> _ChainSearch:
    reader: Any = Reader()
    fault: Any = SimpleNamespace(root=0, chain=chain)
    return _ChainSearch(reader, (0, 1, "blur"), fault)


def test_all_steps_together_leave_what_the_fault_needs() -> None:
    chain, _ = search(CHAIN).simplest()
    assert chain == (Mutation("blur", (2.0,)), Mutation(REGION, (1.0, 2.0, 1.0, 1.0)))


def test_each_step_alone() -> None:
    assert search(CHAIN)._fewer(CHAIN) == CHAIN[:1]
    assert search(CHAIN)._milder(CHAIN) == (Mutation("blur", (2.0,)), CHAIN[1])
    assert search(CHAIN)._smaller(CHAIN) == (*CHAIN, Mutation(REGION, (1.0, 2.0, 1.0, 1.0)))


def test_what_is_needed_stays() -> None:
    needed = (Mutation("blur", (2.0,)),)
    assert search(needed)._fewer(needed) == needed
    assert search(needed)._milder(needed) == needed


@pytest.mark.parametrize("region", [(0, 0, 4, 4), (1, 2, 3, 1), (0, 0, 1, 1)])
def test_cuts_are_smaller_regions_inside_the_smallest_first(region: tuple[int, int, int, int]) -> None:
    top, left, height, width = region
    boxes = _cuts(region)
    areas = [rows * columns for _, _, rows, columns in boxes]
    assert areas == sorted(areas)
    assert all(0 < area < height * width for area in areas)
    for box_top, box_left, rows, columns in boxes:
        assert top <= box_top <= box_top + rows <= top + height
        assert left <= box_left <= box_left + columns <= left + width
