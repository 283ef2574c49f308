"""Adaptive selection from the command line: propose, label by file, go on; and studies."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

MODEL = """
import torch
from torch import nn

def build():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 4)).eval()
"""
Cli = Callable[..., Any]


@pytest.fixture
def begun(cli: Cli, tmp_path: Path) -> dict[str, Any]:
    (tmp_path / "model.py").write_text(MODEL)
    x = np.random.default_rng(0).integers(0, 256, (60, 1, 8, 8), dtype=np.uint8)
    np.savez(tmp_path / "pool.npz", x=x)
    done = cli(
        "select", "py:model.py:build", "npz:pool.npz#x", "--method", "adaptive", "--budget", 6, "--out", "run", "--json", "-q"
    )
    assert done.code == 0, done.err
    content: dict[str, Any] = json.loads(done.out)
    return content


def test_two_rounds(cli: Cli, begun: dict[str, Any]) -> None:
    assert cli("export", "run", "--format", "csv", "--out", "batch.csv").code == 0
    lines = Path("batch.csv").read_text().splitlines()
    where = lines[0].split(",").index("label")
    filled = [lines[0], *(",".join([*(c := line.split(","))[:where], "2", *c[where + 1 :]]) for line in lines[1:])]
    Path("batch.csv").write_text("\n".join(filled) + "\n")
    added = cli("labels", "run", "add", "batch.csv", "--json")
    assert json.loads(added.out)["added"] == 6
    second = json.loads(cli("select", "--resume", "run", "--json", "-q").out)
    assert (second["round"], len(second["indices"]), second["labels"]) == (2, 6, 6)
    assert not set(second["indices"]) & set(begun["indices"])
    assert len(list(Path("run/inputs").glob("picked-*.png"))) == 12
    shown = cli("labels", "run", "show")
    assert shown.code == 0
    assert "6 labels" in shown.out


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["select"], "TARGET POOL"),
        (["select", "--resume", "nowhere"], "is not a run"),
        (["labels", "run", "add"], "which file"),
        (["labels", "run", "remove", "x.csv"], "expected"),
        (["labels", "run", "add", "missing.csv"], "missing.csv"),
        (["study", "ns"], "nss"),
        (["study", "nss", "--scale", "huge"], "quick or full"),
    ],
)
def test_bad_usage_is_one_sentence(cli: Cli, begun: dict[str, Any], arguments: list[str], word: str) -> None:
    done = cli(*arguments)
    assert done.code == 2
    assert word in done.err
