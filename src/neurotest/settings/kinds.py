"""Kinds of settings that few have: of targets, and of commands that take a time, a budget or methods."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

from neurotest.errors import BadInput
from neurotest.settings.declared import Kind, Number, Numbers, Several, is_number, several, written


@dataclass(frozen=True)
class Either(Kind):
    """A number that may be written as text: `224x320`, `5%`. whole: only an integer will do."""

    whole: bool = True

    def fits(self, value: Any) -> bool:
        return isinstance(value, str) or is_number(value, whole=self.whole)

    def fits_run(self, value: Any) -> bool:
        return is_number(value, whole=self.whole) or (self.whole and isinstance(value, str))  # a share was turned into a number

    def words(self, option: str, value: Any) -> list[str]:
        return [option, value if isinstance(value, str) else written(value)]


@dataclass(frozen=True)
class Pair(Numbers):
    """Two numbers: typed as two words."""

    expected: str = "two numbers, [0, 1]"
    typed: Any = tuple[float, float] | None

    def fits(self, value: Any) -> bool:
        return isinstance(value, list) and len(value) == 2 and super().fits(value)

    def words(self, option: str, value: Any) -> list[str]:
        return [option, *(written(one) for one in value)]


@dataclass(frozen=True)
class Size(Kind):
    """Sides of an input: typed as 1x28x28."""

    expected: str = 'text such as "1x28x28", or a list of integers'

    def fits(self, value: Any) -> bool:
        return isinstance(value, str) or (isinstance(value, list) and all(is_number(one, whole=True) for one in several(value)))

    def fits_run(self, value: Any) -> bool:
        return isinstance(value, list) and self.fits(value)

    def words(self, option: str, value: Any) -> list[str]:
        return [option, value if isinstance(value, str) else "x".join(map(str, value))]


@dataclass(frozen=True)
class Names(Kind):
    """A file with one name per line, a run that has them, or the names themselves."""

    expected: str = "a file name in quotation marks, or a list of names"

    def fits(self, value: Any) -> bool:
        return all(isinstance(one, str) for one in several(value))

    def fits_run(self, value: Any) -> bool:
        return isinstance(value, list) and self.fits(value)


@dataclass(frozen=True)
class Duration(Number):
    """Seconds: `300`, `90s`, `5m` or `1h`."""

    expected: str = 'seconds, or text such as "5m"'
    typed: Any = str | None

    def parse(self, name: str, typed: Any) -> Any:
        return self.normal(name, typed)

    def normal(self, name: str, value: Any) -> Any:
        match = re.fullmatch(r"\s*(\d{1,9}(?:\.\d{1,6})?)\s*(s|m|h)?\s*", str(value))
        seconds = float(match[1]) * {"s": 1, "m": 60, "h": 3600}[match[2] or "s"] if match else math.nan
        if not seconds >= 1:
            raise BadInput(
                "out-of-range", name, f"{name}={str(value)[:40]!r}: expected at least one second, such as 90s, 5m or 1h."
            )
        return seconds

    def fits(self, value: Any) -> bool:
        return isinstance(value, str) or super().fits(value)


@dataclass(frozen=True)
class Amount(Kind):
    """How many of something: a number, or a share such as 5%."""

    expected: str = 'an integer, or text such as "5%"'

    def parse(self, name: str, typed: Any) -> Any:
        return str(typed)

    def normal(self, name: str, value: Any) -> Any:
        return str(value)

    def fits(self, value: Any) -> bool:
        return isinstance(value, str) or is_number(value)


@dataclass(frozen=True)
class Methods(Several):
    """Names of methods; Python takes the methods themselves, too, and a run stores how they are written."""

    def normal(self, name: str, value: Any) -> Any:
        several = [value] if isinstance(value, str) or not hasattr(value, "__iter__") else value
        return [one if isinstance(one, str) else repr(one) for one in several]
