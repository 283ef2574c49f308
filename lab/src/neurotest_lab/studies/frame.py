"""The frame of every study: its networks, its cells, what is absent, the table of each from what is finished, and its numbers."""

from __future__ import annotations

import functools
import math
import tomllib
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any, ClassVar, TypeVar

import numpy as np

from neurotest import zoo
from neurotest.data.source import Source
from neurotest.data.spec import data
from neurotest.stats.bootstrap import mean_interval, wilson

SCALES = ("quick", "full")
ABSENT = "absent"  # the key under which a cell says why it has no content
Row = dict[str, Any]
Reason = tuple[str, str]  # what is not in the tables, and why
Groups = dict[tuple[str, str], list[Any]]  # repetitions by subject and method
Results = tuple[dict[str, list[Row]], dict[str, float]]  # tables, checks


@dataclass(frozen=True)
class Cell:
    """One piece of a study: `make` gives plain data, the same whenever it is called. optional: only where `--only` names it."""

    key: str
    make: Callable[[], Any]
    optional: bool = False


def cell(key: str, function: Callable[..., Any], *arguments: Any, **settings: Any) -> Cell:
    return Cell(key, functools.partial(function, *arguments, **settings))


@dataclass(frozen=True)
class Subjects:
    """Networks of the zoo by scale, as names."""

    quick: tuple[str, ...]
    full: tuple[str, ...]

    def here(self, scale: str) -> list[str]:
        """Those of a scale whose weights are here."""
        return [name for name in (self.quick if scale == "quick" else self.full) if zoo.find(name).weights is not None]

    def absent(self, scale: str) -> list[Reason]:
        missing = [name for name in self.full if name not in self.here(scale)]
        untrained = {n: f"its weights are not here: `neurotest zoo train {n}`" for n in missing if zoo.find(n).weights is None}
        return [(name, untrained.get(name, "not part of the quick scale")) for name in missing]


class Study(ABC):
    """A paper's tables rerun. A subclass says what its cells are, and makes tables and checks of those that are finished."""

    subjects: ClassVar[Subjects]
    absent: ClassVar[Sequence[Reason]] = ()  # what of the paper cannot be rerun here
    absent_title: ClassVar[str] = "not rerun"

    def cells(self, scale: str) -> list[Cell]:
        return list(self.each_cell(scale))

    @abstractmethod
    def each_cell(self, scale: str) -> Iterable[Cell]:
        """Everything there is to compute, in this order."""

    @abstractmethod
    def results(self, scale: str, done: dict[str, Any]) -> Results:
        """Tables by title, and claims as numbers, from the finished cells that have content."""

    def left_out(self, scale: str, done: dict[str, Any]) -> Iterable[Reason]:
        """What this scale leaves out, besides networks."""
        return ()

    def absent_name(self, key: str) -> str:
        """What a cell without content is called."""
        return key

    def tables(self, scale: str, done: dict[str, Any]) -> Row:
        """Tables and checks; the last table lists everything that is not in the others, with the reason."""
        reasons: dict[str, str] = {}
        content = {}
        for key, value in done.items():
            if isinstance(value, dict) and ABSENT in value:
                reasons.setdefault(self.absent_name(key), str(value[ABSENT]))
            else:
                content[key] = value
        tables, checks = self.results(scale, content)
        absent = (*self.absent, *self.left_out(scale, content), *self.subjects.absent(scale), *reasons.items())
        return {"tables": {**tables, self.absent_title: [{"what": w, "why": why} for w, why in absent]}, "checks": checks}


def printed(study: str) -> Row:
    """What a paper prints, from `STUDY/published.toml`; what it does not report is nan, or empty, there and None here."""
    text = (resources.files("neurotest_lab.studies") / study / "published.toml").read_text(encoding="utf-8")
    numbers: Row = _reported(tomllib.loads(text))
    return numbers


def _reported(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _reported(part) for name, part in value.items()}
    if isinstance(value, list):
        return tuple(_reported(part) for part in value) or None
    return None if isinstance(value, float) and math.isnan(value) else value


def repeated(done: dict[str, Any], pattern: str, count: int) -> list[Any]:
    """The cells of several seeds: `pattern` has one {} for the number of the seed."""
    return [done[key] for i in range(count) if (key := pattern.format(i)) in done]


def grouped(done: dict[str, Any], pattern: str, count: int, names: Mapping[str, Iterable[str]]) -> Groups:
    """The repetitions there are of every subject's methods (`names`); in `pattern` {s} is the subject and {m} the method."""
    keys = {(s, m): pattern.replace("{s}", s).replace("{m}", m) for s, methods in names.items() for m in methods}
    return {key: cells for key, text in keys.items() if (cells := repeated(done, text, count))}


def below(done: dict[str, Any], start: str) -> dict[str, Any]:
    """The cells whose keys begin so, by the rest of their keys."""
    return {key.removeprefix(start): value for key, value in done.items() if key.startswith(start)}


def split_of(name: str, split: str) -> Source:
    """A split of the data a network of the zoo was trained on."""
    return data(f"zoo:{zoo.find(name).dataset}/{split}")


def odd(source: Source) -> Source:
    """The inputs with odd numbers: settings were chosen on the even ones."""
    return source.take(np.arange(1, len(source), 2))


def even(source: Source) -> Source:
    """The inputs with even numbers, on which settings are chosen."""
    return source.take(np.arange(0, len(source), 2))


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
