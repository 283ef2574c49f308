"""Settings checked where they are given: each refusal names the setting, its value and what is usual."""

from __future__ import annotations

import math

from neurotest.errors import BadInput


def one_of(name: str, value: object, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise BadInput(f"{name}={value!r}: expected {', '.join(allowed[:-1])} or {allowed[-1]}.")


def whole_from(name: str, value: object, least: int, usual: str) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise BadInput(f"{name}={value!r}: expected an integer >= {least} ({usual}).")


def real(name: str, value: object, usual: str, *, above: float | None = None, least: float | None = None) -> None:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not math.isfinite(value):
        raise BadInput(f"{name}={value!r}: expected a number ({usual}).")
    if (above is not None and value <= above) or (least is not None and value < least):
        limit = f"above {above:g}" if above is not None else f"of at least {least:g}"
        raise BadInput(f"{name}={value!r}: expected a number {limit} ({usual}).")
