"""What the package promises before anything is loaded."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

SLOW = ("torch", "kornia", "sklearn")
LIGHT = (
    "neurotest",
    "neurotest.errors",
    "neurotest.registry",
    "neurotest.rng",
    "neurotest.files",
    "neurotest.stats",
    "neurotest.runs",
)


def in_new_process(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("module", LIGHT)
def test_the_ground_floor_imports_nothing_slow(module: str) -> None:
    loaded = json.loads(in_new_process(f"import json, sys, {module}; print(json.dumps(sorted(sys.modules)))"))
    assert not set(SLOW) & set(loaded)


def test_every_public_name_can_be_reached_from_the_package() -> None:
    missing = in_new_process("import neurotest; print([n for n in neurotest.__all__ if not hasattr(neurotest, n)])")
    assert missing.strip() == "[]"


@pytest.mark.parametrize("first", ["neurotest.scan", "neurotest.select", "neurotest.data.spec"])
def test_functions_that_share_a_name_with_a_package_stay_callable(first: str) -> None:
    """Importing a subpackage sets it as an attribute of neurotest: that must not hide the function of the same name."""
    code = f"import {first}, neurotest; print([n for n in ('data', 'scan', 'select') if not callable(getattr(neurotest, n))])"
    assert in_new_process(code).strip() == "[]"
