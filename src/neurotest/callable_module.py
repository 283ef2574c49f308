"""Lets a package be called by its own name: `neurotest.select(...)` runs `neurotest.select.select`."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any


class CallableModule(ModuleType):
    """A module that runs its function of the same name when called.

    Python binds an imported submodule to its package, so a function `neurotest.select` beside a package of that name would
    work or not depending on what was imported before.
    """

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(*args, **kwargs)

    @property
    def _function(self) -> Callable[..., Any]:
        function: Callable[..., Any] = getattr(self, self.__name__.rpartition(".")[2])
        return function

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(self._function)

    @property
    def __doc__(self) -> str:  # type: ignore[override]
        """The function's, since that is what people call: `help(neurotest.select)` begins with it."""
        function = self._function
        return f"{function.__name__}{self.__signature__}\n\n{inspect.getdoc(function)}"


def callable_module(name: str) -> None:
    sys.modules[name].__class__ = CallableModule
