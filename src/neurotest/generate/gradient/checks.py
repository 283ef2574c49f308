"""Settings of attacks, checked where they are made."""

from __future__ import annotations

import math
from typing import Any

from neurotest.errors import BadInput


def real(name: str, value: Any, low: float, high: float | None, usual: str) -> float:
    """A finite number from `low` to `high`; a fraction may be written as text, `8/255`."""
    number: Any = value
    if isinstance(value, str):
        top, slash, bottom = value.partition("/")
        try:
            number = float(top) / float(bottom) if slash else float(top)
        except (ValueError, ZeroDivisionError):
            number = None
    fits = isinstance(number, (int, float)) and not isinstance(number, bool) and math.isfinite(number) and number >= low
    if not fits or (high is not None and number > high):
        allowed = f"a number from {low:g} to {high:g}" if high is not None else f"a number >= {low:g}"
        raise BadInput(f"{name}={value!r}: expected {allowed} ({usual}).")
    return float(number)


def eps_share(name: str, value: Any) -> float:
    """A distance as a share of the input range: 0.1 of bounds 0 .. 255 is 25.5."""
    return real(name, value, 0, 1, "a share of the range between the bounds, for example 0.1 or 8/255")


def count(name: str, value: Any, usual: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise BadInput(f"{name}={value!r}: expected an integer >= 1 ({usual}).")
    return value
