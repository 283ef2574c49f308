"""What a method of differential testing is: settings that begin a search, which then takes batch after batch of seeds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from neurotest.checks import Settings
from neurotest.generate.differential.ensemble import Ensemble
from neurotest.jobs.parts import Arrays


@dataclass(frozen=True, eq=False)
class Outcome:
    """The outputs of a batch, as they will be saved; a method may give several of one seed."""

    x: Tensor  # (m, *shape) in [0, 1]
    rows: NDArray[np.int64]  # (m,) of which seed of the batch
    steps: NDArray[np.int64]  # (m,) after how many steps
    unstable: int  # seeds that differed before rounding only


class Search(Protocol):
    """A method at work: it remembers what was covered, and can be saved between batches. classes: or quantities, where the
    targets predict one."""

    def batch(self, seed: Tensor, classes: NDArray[Any], positions: NDArray[np.int64]) -> Outcome: ...

    def coverage(self) -> list[float]: ...

    def arrays(self) -> Arrays: ...

    def restore(self, arrays: Arrays) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Method(Settings, ABC):
    """Settings. `several`: whether it compares targets or tests a single one; `operator` is what its faults are named after."""

    name: ClassVar[str]
    several: ClassVar[bool]
    layers: str = "pre_activation"

    @property
    def operator(self) -> str:
        return self.name

    def check(self, shape: tuple[int, ...], *, sound: bool = False) -> None:
        """Refuse inputs that it cannot change."""

    @abstractmethod
    def begin(self, ensemble: Ensemble, random: int) -> Search: ...
