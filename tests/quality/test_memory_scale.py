"""A million small inputs are scored from a Parquet file with level memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pa = pytest.importorskip("pyarrow", reason="Parquet needs pyarrow (pip install 'neurotest[data]').")
pq = pytest.importorskip("pyarrow.parquet")
pytestmark = [
    pytest.mark.plain,
    pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux, which says how much memory a process took"),
]
BYTES = 64  # per input: where it lies, its position and its label

NETWORK = """
import torch
from torch import nn

def build():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 4)).eval()
"""
WORK = """
import json, sys
from pathlib import Path
import neurotest

if __name__ == "__main__":
    file, out = sys.argv[1:]
    target = neurotest.load("py:network.py:build", size="1x4x4")
    result = neurotest.score(target, f"parquet:{file}", ["deepgini", "nss"], batch=5000, budget=100, out=out)
    peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    print(json.dumps({"scored": result.scored, "kilobytes": int(peak.split()[1])}))
"""


def peak(count: int, folder: Path) -> int:
    """Kilobytes that a process takes at most."""
    file = folder / f"{count}.parquet"
    schema = pa.schema({"image": pa.list_(pa.uint8(), 16), "label": pa.int64()})
    with pq.ParquetWriter(file, schema) as writer:
        for start in range(0, count, 50_000):
            rows = min(50_000, count - start)
            x = np.random.default_rng(start).integers(0, 256, rows * 16, dtype=np.uint8)
            column = pa.FixedSizeListArray.from_arrays(pa.array(x), 16)
            writer.write_table(pa.table({"image": column, "label": np.arange(start, start + rows) % 4}, schema=schema))
    (folder / "network.py").write_text(NETWORK)
    (folder / "work.py").write_text(WORK)
    words = [sys.executable, "work.py", str(file), f"run-{count}"]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    content = json.loads(done.stdout)
    assert content["scored"] == count
    table = pq.read_table(folder / f"run-{count}" / "scores", columns=["position"])
    assert np.array_equal(table["position"].to_numpy(), np.arange(count))
    return int(content["kilobytes"])


@pytest.mark.slow
def test_a_million_inputs_take_as_much_memory_as_a_quarter_of_them(tmp_path: Path) -> None:
    few, many = peak(250_000, tmp_path), peak(1_000_000, tmp_path)  # fewer do not fill what a process keeps of freed memory
    assert many - few < BYTES * 750_000 / 1000 + 10_000, (few, many)
