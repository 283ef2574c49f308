"""How far a mutant may be from its reference image."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Literal

import torch
from torch import Tensor

from neurotest import registry
from neurotest.checks import Settings, setting
from neurotest.mutate.unit import SAME

CODE = {"mode": "or", "l0_unit": "value", "l0_base": "nonzero", "check_once": True, "style_exempt": True}
SHARES = "a share; NSGen uses alpha=0.2, beta=0.4"
NSGEN = {**CODE, "alpha": 0.2, "beta": 0.4}


class ValidityRule(Settings, ABC):
    """Decides whether mutants are still what their references are."""

    check_once: bool  # also operators that are allowed once per lineage
    style_exempt: bool  # not families that say that they are exempt
    beta: float = 1.0  # the largest change of a value that is allowed

    @abstractmethod
    def check(self, mutants: Tensor, references: Tensor) -> Tensor:
        """(n,) bool, from inputs (n, ...) in [0, 1]."""


@registry.register(
    "validity",
    "valid",
    paper="DeepHunter, ISSTA 2019; NeuraL-Coverage, ICSE 2023; NSGen, section 5.2",
    cost="one difference per value",
    differs="NSGen's text asks for few changed values and small changes; its code, and the code it follows, are content with "
    "one of the two (`mode=or`), count channel values instead of pixels and compare with the number of values that are "
    "not 0. The published checks of affine operators compare with the image before it was moved, so that nearly every "
    "rotation of a photograph is refused: here they are not checked (`check_once=true` does), because their ranges are "
    "conservative already. A peer subtracts 8-bit arrays, which wraps; we do not.",
    presets={
        "nsgen-paper": {**NSGEN, "mode": "and", "l0_unit": "pixel", "l0_base": "size", "style_exempt": False},
        "nsgen-code": NSGEN,
        "nlc-code": {**CODE, "alpha": 0.4, "beta": 0.8},
        "deephunter": {"mode": "or", "alpha": 0.02, "beta": 0.2, "check_once": False},
    },
)
class Validity(ValidityRule):
    """A mutant is valid if it changes less than `alpha` of its reference image or (and) no value by more than `beta`.

    l0_unit: what is counted, `value` or `pixel`. l0_base: of what alpha is a share, of the `nonzero` ones of the reference or
    of its `size`. check_once: check operators that are allowed once per lineage (affine ones) too. style_exempt: style is not
    checked. contrast: the range of values in the data, of which beta is a share.
    """

    mode: Literal["or", "and"] = "or"
    alpha: float = setting(0.2, SHARES, least=0, most=1)
    beta: float = setting(0.4, SHARES, least=0, most=1)
    l0_unit: Literal["value", "pixel"] = "value"
    l0_base: Literal["nonzero", "size"] = "nonzero"
    check_once: bool = False
    style_exempt: bool = True
    contrast: float = setting(1.0, "1 for data that use the whole range", above=0, most=1)

    def check(self, mutants: Tensor, references: Tensor) -> Tensor:
        """(n,) bool, from images (n, c, ...) in [0, 1]."""
        apart = (mutants - references).abs().reshape(*mutants.shape[:2], -1)
        different, present = apart > SAME, references.view_as(apart) > 0
        if self.l0_unit == "pixel":
            different, present = different.any(1, keepdim=True), present.any(1, keepdim=True)
        base = present.sum((1, 2)) if self.l0_base == "nonzero" else torch.full_like(present.sum((1, 2)), different[0].numel())
        few = different.sum((1, 2)) < self.alpha * base
        small = apart.amax((1, 2)) <= self.beta * self.contrast + 1e-6
        return few | small if self.mode == "or" else few & small
