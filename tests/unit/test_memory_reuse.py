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


def test_the_peak_of_a_process_is_its_own() -> None:
    """Linux counts for a child what its parent held when it began; `peak` does not."""
    held = bytearray(300 << 20)
    held[::4096] = b"1" * len(held[::4096])
    code = "from neurotest.memory import peak; before = peak(); held = b'1' * (80 << 20); print(before, peak())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    before, after = map(int, done.stdout.split())
    assert 0 < before < len(held) / 2
    assert after - before > 60 << 20
