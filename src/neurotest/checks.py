"""Settings checked where they are given: each refusal names the setting, its value, what is allowed and what is usual."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import field, fields
from functools import cache
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from neurotest.errors import BadInput

T = TypeVar("T")


class Settings:
    """Base of dataclasses of settings: what is declared by `setting`, or by a `Literal` type, is checked when one is made."""

    def __post_init__(self) -> None:
        check(self)


def check(settings: Any) -> None:
    """Refuse settings that are not what their class declares; `read` is applied where it is declared."""
    for one in _declared(settings.__class__):
        value = getattr(settings, one.name)
        usual, read, limits = one.metadata["setting"]
        kinds = _type_name(one.type).split(" | ")
        if value is None and "None" in kinds:
            continue
        if read is not None:
            value = read(one.name, value)
            object.__setattr__(settings, one.name, value)
        if "int" in kinds:
            integer(one.name, value, limits.get("least", 1), usual, limits.get("most"))
        elif usual:
            number(one.name, value, usual, **limits)
    choices(settings)


def setting(default: T, usual: str = "", *, read: Callable[[str, Any], Any] | None = None, **limits: float) -> T:
    """A field of `Settings`: an integer of at least 1, or a number, as its type says, within the limits of `integer` or `number`.

    read: what makes the value out of what was given, and refuses what it cannot read (`eps_share`); without `usual` that is all.
    """
    declared: T = field(default=default, metadata={"setting": (usual, read, limits)})
    return declared


@cache
def _declared(kind: Any) -> list[Any]:
    return [one for one in fields(kind) if "setting" in one.metadata]


def _type_name(annotation: Any) -> str:
    return annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))


def one_of(name: str, value: object, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise BadInput(f"{name}={value!r}: expected {', '.join(allowed[:-1])} or {allowed[-1]}.")


def choices(settings: Any) -> None:
    """Every setting whose type is a `Literal` must be one of its words."""
    for name, allowed in _words(settings.__class__).items():
        one_of(name, getattr(settings, name), allowed)


@cache
def _words(kind: type) -> dict[str, tuple[str, ...]]:
    return {name: get_args(hint) for name, hint in get_type_hints(kind).items() if get_origin(hint) is Literal}


def integer(name: str, value: Any, least: int, usual: str, most: int | None = None) -> int:
    fits = isinstance(value, int) and not isinstance(value, bool) and value >= least
    if not fits or (most is not None and value > most):
        allowed = f"an integer >= {least}" if most is None else f"an integer from {least} to {most}"
        raise BadInput(f"{name}={value!r}: expected {allowed} ({usual}).")
    return int(value)


def count(name: str, value: Any, usual: str) -> int:
    return integer(name, value, 1, usual)


def number(
    name: str,
    value: Any,
    usual: str,
    *,
    above: float | None = None,
    least: float | None = None,
    below: float | None = None,
    most: float | None = None,
) -> float:
    """A finite number; `above` and `below` are limits it must not reach, `least` and `most` limits it may."""
    fits = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    if fits:
        fits = (above is None or value > above) and (least is None or value >= least)
        fits = fits and (below is None or value < below) and (most is None or value <= most)
    if not fits:
        words = (("above", above), (">=", least), ("below", below), ("at most", most))
        allowed = " and ".join(f"{word} {limit:g}" for word, limit in words if limit is not None)
        if least is not None and most is not None:
            allowed = f"from {least:g} to {most:g}"
        raise BadInput(f"{name}={value!r}: expected a number{allowed and ' '}{allowed} ({usual}).")
    return float(value)


def fraction(name: str, value: Any, least: float, most: float | None, usual: str) -> float:
    """A number that may be written as text, as a fraction too: `8/255`."""
    result: Any = value
    if isinstance(value, str):
        top, slash, bottom = value.partition("/")
        try:
            result = float(top) / float(bottom) if slash else float(top)
        except (ValueError, ZeroDivisionError):
            result = value
    return number(name, result, usual, least=least, most=most)


def eps_share(name: str, value: Any) -> float:
    """A distance as a share of the input range: 0.1 of bounds 0 .. 255 is 25.5."""
    return fraction(name, value, 0, 1, "a share of the range between the bounds, for example 0.1 or 8/255")
