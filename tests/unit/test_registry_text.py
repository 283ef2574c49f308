"""`registry.text` is the exact inverse of `registry.build`: over every registered method, with random settings."""

from __future__ import annotations

import dataclasses
import re
import typing
from typing import Any, Literal, get_args, get_origin

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from tests.refusals import refused

from neurotest import registry
from neurotest.coverage.ranges import KMNC
from neurotest.errors import BadInput

METHODS = [
    (kind, name)
    for kind in registry.kinds()
    for name, entry in registry.entries(kind).items()
    if dataclasses.is_dataclass(entry.make)
]
WORDS = st.text(alphabet="abcXYZ019._*-,()[]{}'\"\\=:/# \n\té", max_size=8)
NUMBERS = st.floats(allow_nan=False) | st.floats(0, 1) | st.integers(-3, 2000).map(float)
BY_TYPE: dict[Any, st.SearchStrategy[Any]] = {
    int: st.integers(-3, 2000), float: NUMBERS, str: WORDS, bool: st.booleans(), type(None): st.none(),
}  # fmt: skip


def values(hint: Any, default: Any) -> st.SearchStrategy[Any]:
    """Random values of a type; where it is none that text can be made of, the default."""
    if get_origin(hint) is Literal:
        return st.sampled_from(get_args(hint))
    if hint in BY_TYPE:
        return BY_TYPE[hint]
    parts = get_args(hint)
    if parts and get_origin(hint) is not tuple and all(p in BY_TYPE or get_origin(p) is Literal for p in parts):
        return st.one_of(*(values(part, default) for part in parts))
    if hint is Any and isinstance(default, str):  # another method, as text or as an object
        return st.just(default) | st.integers(1, 50).map(lambda n: KMNC(sections=n))
    return st.just(default)


def drawn(data: st.DataObject, entry: registry.Entry) -> Any:
    hints = typing.get_type_hints(entry.make)
    options = {}
    for name, field in entry.options.items():
        factory = field.default_factory
        default = field.default if factory is dataclasses.MISSING else factory()
        if default is dataclasses.MISSING:
            options[name] = data.draw(values(hints[name], "word"), label=name)
        elif data.draw(st.booleans(), label=f"set {name}"):
            options[name] = data.draw(values(hints[name], default), label=name)
    try:
        return entry.make(**options)
    except (BadInput, TypeError, ValueError, AttributeError, OverflowError):
        # The method itself refuses these settings.
        assume(False)


@pytest.mark.parametrize(("kind", "name"), METHODS)
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_method_is_what_its_text_says(kind: str, name: str, data: st.DataObject) -> None:
    method = drawn(data, registry.find(kind, name))
    text = registry.text(method)
    again = registry.build(kind, text)
    assert again == method
    assert repr(again) == repr(method)
    assert registry.text(again) == text
    assert re.match(re.escape(name) + r"(\(|$)", text)


def test_by_hand() -> None:
    assert registry.text(KMNC()) == "kmnc"
    assert registry.text(KMNC(sections=10, layers="a,b")) == "kmnc(layers='a,b', sections=10)"
    assert registry.build("criterion", "kmnc(layers='a,b', sections=10)") == KMNC(sections=10, layers="a,b")


def test_methods_inside_methods() -> None:
    method = registry.build("selector", "cam(criterion=criterion/kmnc(sections=7))")
    assert method.criterion == KMNC(sections=7)
    assert registry.build("selector", registry.text(method)) == method


def test_what_cannot_be_written_is_said() -> None:
    with refused("unknown-name", "method"):
        registry.text(object())
    method = registry.find("criterion", "kmnc").make(layers=object())
    with refused("unsupported", "layers"):
        registry.text(method)
