"""Settings checked where they are given: each refusal names the setting, its value, what is allowed and what is usual."""

from __future__ import annotations

import re
import sys
import types
from collections.abc import Callable
from dataclasses import field, fields
from functools import cache
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from neurotest.errors import BadInput
from neurotest.errors import shown as shown

T = TypeVar("T")
LARGEST = 2**63 - 1  # what arrays and databases can count


class Settings:
    """Base of dataclasses of settings: what is declared by `setting`, or by a `Literal` type, is checked when one is made."""

    def __post_init__(self) -> None:
        _check(self)


def _check(settings: Any) -> None:
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
        raise BadInput("out-of-range", name, f"{name}={shown(value)}: expected {words(allowed)}.", value=value, allowed=allowed)


def words(allowed: tuple[Any, ...]) -> str:
    return f"{', '.join(map(str, allowed[:-1]))} or {allowed[-1]}" if len(allowed) > 1 else str(allowed[0])


def choices(settings: Any) -> None:
    """Every setting whose type is a `Literal` must be one of its words."""
    for name, allowed in _words(settings.__class__).items():
        one_of(name, getattr(settings, name), allowed)


@cache
def _words(kind: type) -> dict[str, tuple[str, ...]]:
    return {name: get_args(hint) for name, hint in get_type_hints(kind).items() if get_origin(hint) is Literal}


def integer(name: str, value: Any, least: int, usual: str, most: int | None = None) -> int:
    fits = isinstance(value, int) and not isinstance(value, bool) and least <= value <= LARGEST
    if not fits or (most is not None and value > most):
        allowed = f"an integer >= {least}" if most is None else f"an integer from {least} to {most}"
        raise BadInput("out-of-range", name, f"{name}={shown(value)}: expected {allowed} ({usual}).", value=value)
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
    fits = isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= sys.float_info.max
    if fits:
        fits = (above is None or value > above) and (least is None or value >= least)
        fits = fits and (below is None or value < below) and (most is None or value <= most)
    if not fits:
        words = (("above", above), (">=", least), ("below", below), ("at most", most))
        allowed = " and ".join(f"{word} {limit:g}" for word, limit in words if limit is not None)
        if least is not None and most is not None:
            allowed = f"from {least:g} to {most:g}"
        raise BadInput(
            "out-of-range", name, f"{name}={shown(value)}: expected a number{allowed and ' '}{allowed} ({usual}).", value=value
        )
    return float(value)


def fraction(name: str, value: Any, least: float, most: float | None, usual: str) -> float:
    """A number that may be written as text, as a fraction too: `8/255`."""
    return number(name, _fraction_of(value) if isinstance(value, str) else value, usual, least=least, most=most)


def _fraction_of(text: str) -> float | str:
    """`8/255` as a number; the text itself if it is none."""
    top, slash, bottom = text.partition("/")
    try:
        return float(top) / float(bottom) if slash else float(top)
    except (ValueError, ZeroDivisionError, OverflowError):
        return text


def eps_share(name: str, value: Any) -> float:
    """A distance as a share of the input range: 0.1 of bounds 0 .. 255 is 25.5."""
    return fraction(name, value, 0, 1, "a share of the range between the bounds, for example 0.1 or 8/255")


def option(name: str, hint: Any, value: Any) -> Any:
    """The value of a method's option, if the annotation allows its type; words and fractions become what they mean."""
    kinds = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    for kind in kinds:
        fits, meant = _as_kind(kind, value)
        if fits:
            return meant
    raise BadInput(
        "wrong-type", name, f"{name}={shown(value)}: expected {' or '.join(dict.fromkeys(map(_kind_name, kinds)))}.", value=value
    )


_FRACTION = re.compile(r"[+-]?[0-9.]+(e[+-]?[0-9]{1,3})?(/[0-9.]+)?", re.IGNORECASE)
_PLAIN = (str, bool, int, float, type(None))


def _as_kind(kind: Any, value: Any) -> tuple[bool, Any]:
    """Whether a value is of this kind, and what it means then."""
    if get_origin(kind) is Literal:
        word = str(value).lower() if isinstance(value, bool | None) else value
        return any(type(word) is type(one) and word == one for one in get_args(kind)), word
    if kind is type(None):
        return value is None, None
    if kind is bool:
        return isinstance(value, bool) or (type(value) is int and value in (0, 1)), value
    if kind is int:
        return type(value) is int and abs(value) <= LARGEST, value
    if kind is float:
        if isinstance(value, str) and _FRACTION.fullmatch(value):
            meant = _fraction_of(value)
            return not isinstance(meant, str), meant
        return type(value) is float or (type(value) is int and abs(value) <= LARGEST), value
    if kind is str:
        return isinstance(value, str), value
    items = isinstance(value, list | tuple) and len(value) <= 1000
    return isinstance(value, _PLAIN) or hasattr(value, "__dataclass_fields__") or items, value  # the class itself knows more


def _kind_name(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return words(get_args(kind))
    names = {type(None): "none", bool: "true or false", int: "an integer", float: "a number", str: "a word"}
    return names.get(kind, "a name, a number or a list")


@cache
def hints(kind: Any) -> dict[str, Any]:
    """The types of a dataclass's settings; what cannot be resolved here is Any."""
    try:
        return get_type_hints(kind)
    except (NameError, AttributeError, TypeError):
        own: dict[str, Any] = {}
        for name, field in kind.__dataclass_fields__.items():
            try:
                own[name] = eval(field.type, vars(sys.modules[kind.__module__])) if isinstance(field.type, str) else field.type
            except (NameError, AttributeError, TypeError):
                own[name] = Any
        return own
