"""What the functions of the Python interface have in common: their whole signature, and a clear answer to a misspelt option."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from neurotest.errors import BadInput, near
from neurotest.settings import CommandSettings, declared

P = ParamSpec("P")
R = TypeVar("R")


class UnknownOption(BadInput, TypeError):
    """A keyword that a function does not have; a TypeError too, as Python itself would raise."""


def _keywords(settings: Any) -> list[inspect.Parameter]:
    keyword = inspect.Parameter.KEYWORD_ONLY
    if isinstance(settings, type) and issubclass(settings, CommandSettings):
        fields = {f.name: f for f in dataclasses.fields(settings)}
        return [
            inspect.Parameter(name, keyword, default=fields[name].default, annotation=fields[name].type)
            for name in declared(settings)
        ]
    if dataclasses.is_dataclass(settings):
        return [inspect.Parameter(f.name, keyword, default=None, annotation=f.type) for f in dataclasses.fields(settings)]
    return [p for p in inspect.signature(settings).parameters.values() if p.kind is keyword]


def public(*settings: type | Callable[..., Any], method: bool = False) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """A decorator: `help` and `inspect.signature` show every option, and one that does not exist is named with the nearest.

    settings: what the function takes as `**settings`: those of a command, the fields of dataclasses, or the keywords of other
    functions. method: whether the rest goes to a method of the user's choice, which checks it. `batch="auto"` is what happens
    without it.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(function)
        parameters = list(signature.parameters.values())
        rest = [p for p in parameters if p.kind is p.VAR_KEYWORD]
        if settings:
            added = {p.name: p for one in settings for p in _keywords(one)}
            parameters = [p for p in parameters if p.kind is not p.VAR_KEYWORD]
            parameters += [p for name, p in added.items() if name not in signature.parameters] + (rest if method else [])
        names = [p.name for p in parameters if p.kind is not p.VAR_KEYWORD]

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            for name in () if method else kwargs:
                if name not in names:
                    message = f"{function.__name__}() has no option {name!r}. {near(name, names)}"
                    raise UnknownOption("unknown-option", name, message, allowed=names)
            if isinstance(batch := kwargs.get("batch"), str):
                if batch != "auto":
                    raise BadInput(
                        "out-of-range", "batch", f"batch={batch!r}: expected an integer >= 1, or 'auto' for the usual one."
                    )
                del kwargs["batch"]
            return function(*args, **kwargs)

        call.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        return call

    return decorate
