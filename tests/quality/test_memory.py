"""Memory stays level over a campaign of 100,000 iterations; its disk use is bounded."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from neurotest import zoo

pytestmark = pytest.mark.skipif(
    zoo.find("mnist-lenet1").weights is None or not Path("/proc/self/status").exists(), reason="needs LeNet-1's weights and Linux"
)
SCRIPT = Path(__file__).resolve().parents[2] / "lab" / "scripts" / "measure_memory.py"


def measured(iterations: int, folder: Path) -> dict[str, Any]:
    spec = importlib.util.spec_from_file_location("measure_memory", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    memory: dict[str, Any] = module.measure(iterations, folder)
    return memory


@pytest.mark.slow
def test_memory_is_level_over_100_000_iterations(tmp_path: Path) -> None:
    memory = measured(100_000, tmp_path)
    first, half, last = memory["megabytes"].values()
    assert last - half < 40, memory  # eight bytes per output and what the database caches, not images
    assert last - first < 80, memory


def test_a_short_campaign_is_measured_the_same_way(tmp_path: Path) -> None:
    memory = measured(1000, tmp_path)
    assert set(memory["megabytes"]) == {"100", "500", "1000"}
    assert memory["random forwards"] > 0.9 * memory["forwards"]
    assert memory["disk megabytes"] < 60
