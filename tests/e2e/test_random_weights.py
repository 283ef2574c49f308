"""A builder that gives other weights each time is pointed out by every command that takes a target."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from .conftest import Cli

MODEL = """
from torch import nn

def build():
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3))
"""
COMMANDS = {
    "select": ["select", "{}", "npz:pool.npz#x"],
    "cover": ["cover", "{}", "npz:pool.npz", "--criteria", "nc"],
    "attack": ["attack", "{}", "npz:pool.npz", "--steps", "2", "--keep-wrong"],
    "fuzz": ["fuzz", "{}", "npz:pool.npz", "--forwards", "40", "--keep-wrong"],
    "diff": ["diff", "{}", "--seeds", "npz:pool.npz", "--method", "dlfuzz", "--steps", "2", "--keep-wrong"],
    "illuminate": ["illuminate", "{}", "npz:pool.npz", "--forwards", "60", "--keep-wrong"],
    "swarm": ["swarm", "{}", "npz:pool.npz", "--evaluations", "8", "--keep-wrong", "--controls", "none"],
    "describe": ["describe", "{}", "npz:pool.npz", "--method", "class-profile", "--k", "2"],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_random_weights_are_pointed_out(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    import torch

    monkeypatch.setenv("NEUROTEST_CACHE", str(tmp_path / "cache"))
    (tmp_path / "model.py").write_text(MODEL)
    random = np.random.default_rng(0)
    np.savez("pool.npz", x=random.random((12, 1, 8, 8), dtype=np.float32), y=random.integers(0, 3, 12))
    scope: dict[str, object] = {}
    exec(MODEL, scope)
    torch.manual_seed(0)
    torch.save(scope["build"]().state_dict(), "good.pt")  # type: ignore[operator]
    words = [word.format("py:model.py:build") for word in COMMANDS[command]]
    warned = cli(*words, "--out", "warned")
    assert warned.code == 0, warned.err
    assert warned.err.count("has random weights") == 1
    assert "--weights FILE" in warned.err
    silent = cli(*words, "--weights", "good.pt", "--out", "silent")
    assert silent.code == 0, silent.err
    assert "random weights" not in silent.err
