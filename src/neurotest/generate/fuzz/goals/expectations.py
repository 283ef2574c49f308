"""What a campaign has reached lately, and what it may expect of going on."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

WINDOW = 1000  # forward passes that expectations are about


class Expectations:
    """Of the batches in the last WINDOW passes: how many passes each took, how many goals its plan expected and reached."""

    def __init__(self) -> None:
        self.passes = 0  # in all
        self.recent: deque[tuple[int, float, int]] = deque()
        self._leg: list[tuple[int, float, int]] | None = None  # of a leg, on an island

    def add(self, passes: int, expected: float, reached: int) -> None:
        self.passes += passes
        self.recent.append((passes, expected, reached))
        if self._leg is not None:
            self._leg.append((passes, expected, reached))
        while sum(n for n, _, _ in self.recent) - self.recent[0][0] >= WINDOW:
            self.recent.popleft()

    def next_window(self) -> float | None:
        """New goals in the next WINDOW passes: what the newest plan expects per pass, corrected by how far the last were off.

        None before the first WINDOW passes.
        """
        if self.passes < WINDOW:
            return None
        hoped, reached = sum(e for _, e, _ in self.recent), sum(r for _, _, r in self.recent)
        passes, expected, _ = self.recent[-1]
        return WINDOW * expected / max(1, passes) * (reached + 1) / (hoped + 1)

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {"recent": np.array(self.recent, dtype=np.float64).reshape(-1, 3), "passes": np.array([self.passes])}

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        self.passes = int(arrays["passes"][0])
        self.recent = deque((int(n), float(e), int(r)) for n, e, r in arrays["recent"])

    def begin_leg(self) -> None:
        self._leg = []

    def changes(self) -> dict[str, NDArray[Any]]:
        return {"batches": np.array(self._leg or [], dtype=np.float64).reshape(-1, 3)}

    def learn(self, changes: Mapping[str, NDArray[Any]]) -> None:
        for passes, expected, reached in changes["batches"].tolist():
            self.add(int(passes), expected, int(reached))
