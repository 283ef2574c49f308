"""Freed memory stays with the process: large tensors do not cost new pages in every pass."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

pytestmark = pytest.mark.plain
CODE = """
import resource, sys
import numpy as np
from neurotest.memory import keep_freed

if sys.argv[1] == "keep":
    assert keep_freed()

def use():
    array = np.empty(40 << 20, np.uint8)
    array[:: 4096] = 1

use()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    use()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has these switches")
@pytest.mark.parametrize("way", ["keep", "leave"])
def test_pages_are_asked_for_once(way: str) -> None:
    done = subprocess.run([sys.executable, "-c", CODE, way], capture_output=True, text=True, check=True)
    faults = int(done.stdout)
    if way == "keep":
        assert faults < 100, "five times 40 MB are used again"
    else:
        assert faults > 50, "else what this test is about does not happen here (large pages make it few)"
