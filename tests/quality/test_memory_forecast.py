"""What `fuzz --plan` says of the memory, beside what the campaign takes, each in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux, which says how much memory a process took"),
]

NETWORK = """
import torch
from torch import nn

def build():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 24, 3, padding=1), nn.ReLU(), nn.Conv2d(24, 24, 3, padding=1), nn.ReLU(), nn.MaxPool2d(4),
        nn.Conv2d(24, 48, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(48, 4),
    ).eval()
"""
WORK = """
import json, sys
from pathlib import Path
import numpy as np, torch
import neurotest
from neurotest.campaign.forecast import forecast_fuzz

def peak():
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return 1024 * int(line.split()[1])

if __name__ == "__main__":
    how, guide, neuron = sys.argv[1:]
    torch.set_num_threads(1)
    target = neurotest.load("py:network.py:build", size="3x64x64")
    seeds = np.random.default_rng(0).integers(0, 256, (64, 3, 64, 64), dtype=np.uint8)
    options = {"guide": guide, "neuron": neuron, "train": seeds, "oracle": "metamorphic", "batch": 64}
    if how == "plan":
        plan = forecast_fuzz(target, seeds, budget={"forwards": 640}, **options)
        before = plan.memory["the process so far"]  # may count the process that started this one
        print(json.dumps({"memory": plan.bytes - before + peak(), "by": plan.memory}))
    else:
        neurotest.fuzz(target, seeds, forwards=640, out="run", **options)
        print(json.dumps({"memory": peak()}))
"""


def process(folder: Path, *words: str) -> dict[str, Any]:
    (folder / "network.py").write_text(NETWORK)
    (folder / "work.py").write_text(WORK)
    done = subprocess.run([sys.executable, "work.py", *words], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    content: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return content


@pytest.mark.parametrize(("guide", "neuron"), [("kmnc:100", "channel"), ("kmnc:10", "unit")])
def test_a_campaign_takes_about_what_was_forecast(guide: str, neuron: str, tmp_path: Path) -> None:
    plan, real = (process(tmp_path, how, guide, neuron) for how in ("plan", "real"))
    assert real["memory"] <= 1.3 * plan["memory"], (real, plan)
    assert plan["memory"] <= 3 * real["memory"], (real, plan)
