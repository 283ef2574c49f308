"""Methods as a run stores them: text from which an equal method is made again."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from neurotest import registry
from neurotest.checks import shown
from neurotest.errors import BadInput, near


def with_options(kind: str, method: Any, options: Mapping[str, Any]) -> Any:
    """The method that a text stands for, with the options that are not None in place of its own."""
    built = registry.build(kind, method)
    if not dataclasses.is_dataclass(built) or isinstance(built, type) or not hasattr(built, "name"):
        raise BadInput(
            "wrong-type", kind, f"{kind}={built!r}: expected a name (`neurotest list {kind}`) or its settings as an object."
        )
    changes = {name: value for name, value in options.items() if value is not None}
    fields = [f.name for f in dataclasses.fields(built) if f.init]
    for name in changes:
        if name not in fields:
            raise BadInput("unknown-option", name, f"{built.name} has no option {name!r}. {near(name, fields)}")
    return dataclasses.replace(built, **changes)


def stored_method(method: Any) -> Any:
    """A method as text; plain values stay. What cannot be written is stored for display only, and must be given again."""
    if method is None or isinstance(method, (str, int, float, bool, Mapping)):
        return method
    try:
        return registry.text(method)
    except BadInput:
        return {"object": repr(method)}


def read_method(kind: str, stored: Any) -> Any:
    """The method a run was made with. Runs of the first versions hold a name with options, or a repr."""
    if not isinstance(stored, (str, Mapping)):
        raise BadInput("damaged", "method", "the run's configuration does not name its method: it is damaged; start a new run.")
    if isinstance(stored, Mapping) and "object" in stored:
        raise BadInput(
            "missing",
            "method",
            f"the run was made with {shown(stored['object'])}, which a Python program brought along: give it again.",
        )
    try:
        if isinstance(stored, Mapping):
            if not isinstance(stored["name"], str) or not isinstance(stored["options"], Mapping):
                raise TypeError("no name with options")
            return _made(registry.find(kind, stored["name"]), dict(stored["options"]))
        return registry.build(kind, stored)
    except (KeyError, TypeError):
        raise BadInput(
            "changed", "method", "the run's configuration does not name its method as this version knows it: start a new run."
        ) from None


def _made(entry: registry.Entry, options: dict[str, Any]) -> Any:
    try:
        return registry.make(entry, options)
    except BadInput as error:
        raise BadInput(
            "changed",
            "method",
            f"the run's configuration does not fit its method ({error}) as this version knows it: start a new run.",
        ) from None
