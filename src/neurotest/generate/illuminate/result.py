"""The result of illumination: the archive as a suite, and how many of its cells are filled."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neurotest.generate.outcome import class_name
from neurotest.generate.suite import AttackResult


@dataclass(frozen=True, eq=False)
class IlluminateResult(AttackResult):
    """The archive: one fault per filled cell, the smallest change. `all_faults` counts those that lost their cell, too."""

    way: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64), repr=False)
    ways: tuple[str, ...] = ()
    all_faults: int = 0
    pairs: int = 0  # (true, predicted) pairs with a fault
    possible: int = 0
    all_roots: int = 0
    root_label_pairs: int = 0
    spent: int = 0  # forward passes with a backward pass counted as two
    stopped: str = ""

    @property
    def numbers(self) -> NDArray[np.int64]:
        return np.arange(len(self))

    def about(self, i: int) -> dict[str, Any]:
        return {**super().about(i), "operator": self.ways[int(self.way[i])], "seed": int(self.positions[i])}

    @property
    def cells(self) -> Counter[tuple[int, int, str]]:
        """(true, predicted, way) of the archive."""
        named = [self.ways[int(w)] for w in self.way]
        return Counter(zip(self.expected.tolist(), self.predicted.tolist(), named, strict=True))

    def to_dict(self) -> dict[str, Any]:
        plain = super().to_dict()
        for name in ("attack", "diversity", "success", "success_interval"):
            del plain[name]
        by_way = Counter(self.way.tolist())
        return {
            **plain, "faults": self.all_faults, "families": len(self.cells), "roots": self.all_roots, "archive": len(self),
            "cells": {"filled": self.pairs, "possible": self.possible}, "root_label_pairs": self.root_label_pairs,
            "by_change": {name: by_way[number] for number, name in enumerate(self.ways)}, "spent": self.spent,
            "stopped": self.stopped,
        }  # fmt: skip

    def table(self) -> list[dict[str, Any]]:
        """One row per cell, the smallest change first."""
        return [
            {
                "true": class_name(int(self.expected[i]), self.classes),
                "predicted": class_name(int(self.predicted[i]), self.classes),
                "operator": self.ways[int(self.way[i])],
                "l2": round(float(self.distance[i, 1]), 4),
            }
            for i in np.argsort(self.distance[:, 1], kind="stable")
        ]
