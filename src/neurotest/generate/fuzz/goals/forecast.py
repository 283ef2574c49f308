"""What each rule would do to an input: ridge regressions of the change, one per rule, that share what kindred rules have seen."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neurotest.generate.fuzz.goals.candidates import Arms

RIDGE = 1.0
WINDOW = 1000  # forward passes that expectations are about
Floats = NDArray[np.float64]


class Regressions:
    """One ridge regression per arm, of `outputs` values on `inputs` features, out of sums that grow with every observation.

    weights_r = (sum_s K_rs A_s + RIDGE I)^-1 sum_s K_rs B_s over the arms s of the family, where A_s = sum x x', B_s = sum x y'.
    """

    def __init__(self, arms: Arms, inputs: int, outputs: int) -> None:
        self.arms = arms
        self.squares = np.zeros((len(arms), inputs, inputs))
        self.products = np.zeros((len(arms), inputs, outputs))
        self._weights = np.zeros((len(arms), inputs, outputs))
        self._stale: set[int] = set()  # families
        self._marked = (self.squares, self.products)

    def update(self, arm: NDArray[np.int64], x: Floats, y: Floats) -> None:
        """Observations (n, inputs) and (n, outputs) of these arms (n,)."""
        order = np.argsort(arm, kind="stable")
        numbers, starts = np.unique(arm[order], return_index=True)
        for number, rows in zip(numbers.tolist(), np.split(order, starts[1:]), strict=True):
            self.squares[number] += x[rows].T @ x[rows]
            self.products[number] += x[rows].T @ y[rows]
            self._stale.add(int(self.arms.kind[number]))

    @property
    def weights(self) -> Floats:
        """(arms, inputs, outputs)"""
        for family in sorted(self._stale):
            block, kernel = self.arms.blocks[family], self.arms.kernels[family]
            left, right = self.squares[block], self.products[block]
            a = (kernel @ left.reshape(len(left), -1)).reshape(left.shape) + RIDGE * np.eye(left.shape[1])
            b = (kernel @ right.reshape(len(right), -1)).reshape(right.shape)
            self._weights[block] = np.linalg.solve(a, b)
        self._stale.clear()
        return self._weights

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {"squares": self.squares, "products": self.products}

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        self.squares, self.products = np.array(arrays["squares"]), np.array(arrays["products"])
        self._stale = set(range(len(self.arms.blocks)))

    def begin_leg(self) -> None:
        self._marked = (self.squares.copy(), self.products.copy())

    def changes(self) -> dict[str, NDArray[Any]]:
        squares, products = self._marked
        return {"squares": self.squares - squares, "products": self.products - products}

    def learn(self, changes: Mapping[str, NDArray[Any]]) -> None:
        self.restore({name: value + changes[name] for name, value in self.arrays().items()})


class Temperature:
    """How sharp forecasts are: the temperature of a grid under which the outcomes of the last batches were most likely."""

    GRID = np.geomspace(0.02, 2.0, 21)
    BATCHES = 12

    def __init__(self) -> None:
        self._batches: deque[tuple[NDArray[np.float32], NDArray[np.int64]]] = deque(maxlen=self.BATCHES)
        self.value = 0.3
        self._leg = 0  # batches of this leg

    def add(self, logits: NDArray[np.float32], outcome: NDArray[np.int64]) -> None:
        """Forecast logits (n, k) and which of them (n,) was predicted in the end."""
        if not len(outcome):
            return
        self._batches.append((np.asarray(logits, dtype=np.float32), outcome))
        self._leg += 1
        self._fit()

    def _fit(self) -> None:
        forecasts = np.concatenate([part for part, _ in self._batches]).astype(np.float64)
        outcomes = np.concatenate([part for _, part in self._batches])
        self.value = float(self.GRID[int(np.argmin([self.loss(forecasts, outcomes, t) for t in self.GRID]))])

    @staticmethod
    def loss(logits: Floats, outcome: NDArray[np.int64], temperature: float) -> float:
        """Mean negative log likelihood."""
        scaled = (logits - logits.max(axis=1, keepdims=True)) / temperature
        return float((np.log(np.exp(scaled).sum(axis=1)) - scaled[np.arange(len(outcome)), outcome]).mean())

    def arrays(self) -> dict[str, NDArray[Any]]:
        return self._packed(list(self._batches))

    def _packed(self, batches: list[tuple[NDArray[np.float32], NDArray[np.int64]]]) -> dict[str, NDArray[Any]]:
        parts = batches or [(np.zeros((0, 1), dtype=np.float32), np.zeros(0, dtype=np.int64))]
        return {
            "temperature": np.array([self.value]),
            "outcomes": np.concatenate([outcome for _, outcome in parts]),
            "forecasts": np.concatenate([logits for logits, _ in parts]),
            "sizes": np.array([len(outcome) for _, outcome in batches], dtype=np.int64),
        }

    def _take(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        edges = np.cumsum(arrays["sizes"])[:-1]
        if len(arrays["sizes"]):
            parts = zip(np.split(arrays["forecasts"], edges), np.split(arrays["outcomes"], edges), strict=True)
            self._batches.extend((np.array(a), np.array(b)) for a, b in parts)

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        self._batches.clear()
        self._take(arrays)
        self.value = float(arrays["temperature"][0])

    def begin_leg(self) -> None:
        self._leg = 0

    def changes(self) -> dict[str, NDArray[Any]]:
        batches = list(self._batches)
        return self._packed(batches[len(batches) - min(self._leg, len(batches)) :])

    def learn(self, changes: Mapping[str, NDArray[Any]]) -> None:
        self._take(changes)
        if self._batches:
            self._fit()


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
