"""Packages of other people, installed by `make test-peers`."""

from __future__ import annotations

import importlib
import os
from typing import Any

import pytest


def package(module: str) -> Any:
    """The module, or a skip of the whole file; with NEUROTEST_PEERS=required a missing one is an error."""
    if os.environ.get("NEUROTEST_PEERS") == "required":
        return importlib.import_module(module)
    return pytest.importorskip(module, reason=f"{module.partition('.')[0]} is not installed (make test-peers)")
