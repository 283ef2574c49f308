"""Sixteen mild changes, the same for every input: small enough that a sound decision stands."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from neurotest.errors import BadInput
from neurotest.mutate.operators import BoxBlur, Brightness, Contrast, Operator, Rotation, Scale, Shear, Shift
from neurotest.mutate.space import round8

# In turn, so that the first few already are of several kinds.
CHANGES: tuple[tuple[Operator, tuple[float, float]], ...] = (
    (Rotation(), (10.0, 0.0)), (Scale(), (0.9, 0.0)), (Shift(), (0.05, 0.05)), (Shear(), (10.0, 0.0)),
    (Contrast(), (0.8, 0.0)), (Brightness(), (1.1, 0.0)), (BoxBlur(), (2.0, 0.0)), (Rotation(), (-10.0, 0.0)),
    (Scale(), (1.1, 0.0)), (Shift(), (-0.05, -0.05)), (Shear(), (-10.0, 0.0)), (Contrast(), (1.25, 0.0)),
    (Brightness(), (0.9, 0.0)), (BoxBlur(), (3.0, 0.0)), (Shift(), (0.05, -0.05)), (Shift(), (-0.05, 0.05)),
)  # fmt: skip


@dataclass(frozen=True)
class MildMutations:
    """Rotation by 10 degrees, scale by a tenth, shift by a twentieth, shear by 10 degrees, contrast, brightness, blur."""

    def variants(self, x: Tensor) -> list[Tensor]:
        """Every change of a batch (n, c, h, w) in [0, 1], each of the batch's shape; clipped and rounded to 1/255."""
        if x.ndim != 4:
            raise BadInput(f"mutations need images (n, channels, height, width), not inputs of shape {tuple(x.shape[1:])}.")
        return [
            round8(operator.apply(x, torch.tensor(parameters, dtype=x.dtype, device=x.device).expand(len(x), 2)))
            for operator, parameters in CHANGES
        ]
