"""Lets a package be called by its own name: `neurotest.select(...)` runs `neurotest.select.select`."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class CallableModule(ModuleType):
    """A module that runs its function of the same name when called.

    Python binds an imported submodule to its package, so a function `neurotest.select` beside a package of that name would
    work or not depending on what was imported before.
    """

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return getattr(self, self.__name__.rpartition(".")[2])(*args, **kwargs)


def callable_module(name: str) -> None:
    sys.modules[name].__class__ = CallableModule
