"""What the results of all generators share: names of classes, rates with intervals, saving, and a view for notebooks."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from neurotest.files import write_json
from neurotest.notebook import Picture, view
from neurotest.stats.bootstrap import wilson
from neurotest.stats.diversity import entropy


def class_name(number: int, classes: Sequence[str] | None) -> str:
    if number < 0:
        return "non-finite"
    return classes[number] if classes and number < len(classes) else str(number)


def interval(part: int, whole: int) -> list[float] | None:
    """Wilson's, of a share; None of nothing."""
    if not whole:
        return None
    share = wilson(part, whole)
    return [share.low, share.high]


def spread(counts: Iterable[int], classes: int) -> float | None:
    """Evenness (Pielou's; output impartiality) of outcomes counted by class; None without any.

    >>> spread([5, 5], 4)
    0.5
    """
    values = list(counts)
    return entropy(values) / math.log(classes) if sum(values) and classes > 1 else None


class Outcome(ABC):
    """A result as one sentence, a table and a dictionary."""

    @abstractmethod
    def headline(self) -> str: ...

    @abstractmethod
    def table(self) -> list[dict[str, Any]]: ...

    @abstractmethod
    def to_dict(self) -> dict[str, Any]: ...

    def save(self, path: str | Path) -> Path:
        path = Path(path)
        write_json(path, self.to_dict())
        return path

    def pictures(self) -> Iterator[Picture]:
        """What a notebook shows of it: the first faults, each beside its seed where that is known."""
        yield from ()

    def _repr_html_(self) -> str:
        return view([self.headline()], self.pictures(), self.table())
