"""The numbers that stored inputs are made of: 8 bits of an image's value, 16 bits of a sample of audio.

Mutations, attacks and distances work in [0, 1]. What is tested there lies on the levels that a file can hold, so that what is
tested is what is saved.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Levels:
    """Level k of 0 .. `highest` is k / `steps` in [0, 1] and k + `lowest` in the file.

    Sound never reaches 1: its samples are -32768 .. 32767, so that silence, 0, is exactly the middle.
    """

    bits: int
    steps: int
    highest: int
    lowest: int = 0

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(np.uint8 if self.bits == 8 else np.int16)

    @property
    def top(self) -> float:
        """The largest value there is in [0, 1]."""
        return self.highest / self.steps

    @property
    def words(self) -> str:
        return f"{self.bits}-bit data (1/{self.steps}, {1 / self.steps:.2g})"

    def unit(self, x: Tensor) -> Tensor:
        """Stored numbers in [0, 1], as a new tensor."""
        values = x.float()
        return (values.sub_(self.lowest) if self.lowest else values).div_(self.steps)

    def stored(self, u: Tensor) -> NDArray[Any]:
        """The inverse, for what lies on a level."""
        numbers = u.mul(self.steps).round_().clamp_(0, self.highest).add_(self.lowest).cpu().numpy()
        return np.asarray(numbers.astype(self.dtype))

    def nearest(self, u: Tensor) -> Tensor:
        """Clipped to [0, 1] and rounded to the nearest level, exactly as reading the file gives it."""
        return u.clamp(0, 1).mul(self.steps).round_().clamp_(max=self.highest).div_(self.steps)


EIGHT = Levels(8, 255, 255)
SIXTEEN = Levels(16, 65536, 65535, -32768)


def levels_of(dtype: Any) -> Levels | None:
    """Of stored inputs of this type; None for floating point, which a file holds as it is."""
    return {np.dtype(np.uint8): EIGHT, np.dtype(np.int16): SIXTEEN}.get(np.dtype(dtype))
