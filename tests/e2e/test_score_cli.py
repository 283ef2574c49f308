"""`neurotest score` as users have it: killed in the middle, by one worker or by all, and resumed."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import numpy as np
import pytest
from tests import commands
from tests.waiting import until

pq = pytest.importorskip("pyarrow.parquet", reason="Parquet needs pyarrow (pip install 'neurotest[data]').")
pytestmark = pytest.mark.plain
N, BATCH = 4000, 20

HELD = 5 * 16 * BATCH  # the first input that the network waits at, behind five parts

NETWORK = """
from pathlib import Path
import torch
from torch import nn

class Waiting(nn.Module):
    '''Waits for ever at a white corner, as long as nobody has put `go` beside this file.'''
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(16, 3)
    def forward(self, x):
        if (x[:, 0, 0, 0] == 1).any() and not Path(__file__).with_name("go").exists():
            import threading
            threading.Event().wait()
        return self.linear(x.flatten(1))

def build():
    torch.manual_seed(0)
    return Waiting().eval()
"""


@pytest.mark.parametrize(
    "workers", [(), ("--workers", "2"), pytest.param(("--workers", "2", "--ray", "local"), marks=pytest.mark.ray)]
)
def test_a_killed_job_goes_on_and_every_id_is_scored_once(workers: tuple[str, ...], tmp_path: Path) -> None:
    if "--ray" in workers:
        pytest.importorskip("ray", reason="Ray is not installed: `make test-ray` brings it.")
    (tmp_path / "waiting.py").write_text(NETWORK)
    x = np.random.default_rng(0).integers(0, 255, (N, 1, 4, 4), dtype=np.uint8)
    x[HELD:, 0, 0, 0] = 255
    np.savez(tmp_path / "x.npz", x=x, y=np.arange(N) % 3)
    words = ["py:waiting.py:build", "npz:x.npz", "--size", "1x4x4", "--method", "margin", "--batch", str(BATCH), "--budget", "7"]
    process = commands.start("score", *words, "--out", "run", *workers, "-q", cwd=tmp_path, session=True)
    parts = tmp_path / "run" / "scores"
    until(lambda: len(list(parts.glob("0*.parquet"))) >= 2, "two parts of the scores", process)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    (tmp_path / "go").touch()
    kept = sorted(parts.glob("0*.parquet"))
    assert 2 <= len(kept) < N // (16 * BATCH)
    before = {file: file.stat().st_mtime_ns for file in kept}
    done = commands.run("score", "--resume", "run", "--json", *workers, "-q", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    content = json.loads(done.stdout)
    assert {file: file.stat().st_mtime_ns for file in kept} == before
    table = pq.read_table(parts)
    assert sorted(int(one) for one in table["id"].to_pylist()) == list(range(N))
    assert (content["scored"], content["set_aside"]) == (N, [])
    assert len(content["methods"]["margin"]["ids"]) == 7
    assert (tmp_path / "run" / "report.html").is_file()
