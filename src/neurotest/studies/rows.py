"""Numbers of a study's rows: rounded, with their intervals, beside random."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

import numpy as np

from neurotest.stats.bootstrap import mean_interval, wilson
from neurotest.studies.frame import Row

ENDS = ("value", "low", "high")
Names = tuple[str, str, str]
Item = TypeVar("Item")
Key = TypeVar("Key", bound=Hashable)


def by(items: Iterable[Item], key: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    """Items with equal keys together, keys in the order of their first item."""
    groups: dict[Key, list[Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def rounded(value: float | None, digits: int = 4) -> float | None:
    """None for what is not defined, NaN included."""
    return None if value is None or math.isnan(value) else round(value, digits)


def with_ends(values: Sequence[float | None] | None, digits: int, names: Names = ENDS) -> Row:
    """A value and its interval as three columns; None: not known."""
    return dict(zip(names, (rounded(v, digits) for v in values or (None,) * 3), strict=True))


def mean(values: Iterable[float | None], digits: int = 4) -> float | None:
    """Of those that are defined."""
    defined = [value for value in values if value is not None]
    return round(float(np.mean(defined)), digits) if defined else None


def spread(values: Sequence[float], digits: int, names: Names = ENDS) -> Row:
    """The mean over repetitions with its bootstrap interval."""
    return with_ends(mean_interval(np.asarray(values, dtype=np.float64)), digits, names)


def share(count: int, of: int, digits: int, names: Names = ENDS) -> Row:
    """A share with Wilson's interval."""
    return with_ends(wilson(count, of), digits, names)
