"""Attacks that are interrupted go on; runs of other commands, other seeds, other targets are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.refusals import refused
from torch import nn

from neurotest.data.source import ArraySource
from neurotest.errors import Interrupted
from neurotest.generate.gradient import AttackResult, attack
from neurotest.jobs.parts import FOLDER
from neurotest.runs.store import Run
from neurotest.target import Target

pytestmark = pytest.mark.plain


def target(seed: int = 3) -> Target:
    torch.manual_seed(seed)
    module = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 16, 3))
    return Target(module.eval(), shape=(1, 6, 6), spec="toy network")


def seeds(n: int = 20) -> ArraySource:
    return ArraySource(np.random.default_rng(0).integers(0, 256, (n, 1, 6, 6), dtype=np.uint8), spec="toy")


def run(**options: Any) -> AttackResult:
    return attack(target(), seeds(), options.pop("method", "pgd:eps=0.3,steps=4,step=0.1"), **{"batch": 6, **options})


def stop(done: int, total: int) -> None:
    if done >= 12:
        raise KeyboardInterrupt


@pytest.mark.parametrize("method", ["pgd:eps=0.3,steps=4,step=0.1", "cw:steps=5,searches=2", "fgsm:0.2"])
def test_it_goes_on_as_if_nothing_had_happened(tmp_path: Path, method: str) -> None:
    options: dict[str, Any] = {"method": method, "diversity": 1.0, "layers": "0"}
    whole = run(**options, out=tmp_path / "whole")
    with pytest.raises(Interrupted, match="2 of 4 batches"):
        run(**options, out=tmp_path / "part", progress=stop)
    assert len(list((tmp_path / "part" / FOLDER).glob("*.npz"))) == 2
    resumed = attack(target(), seeds(), resume=tmp_path / "part")
    assert np.array_equal(resumed.x, whole.x)
    assert resumed.to_dict()["forwards"] == whole.to_dict()["forwards"]
    assert resumed.diversity == whole.diversity
    assert not (tmp_path / "part" / FOLDER).exists()
    with Run.open(tmp_path / "part") as stored:
        assert stored["state"] == "done"
        assert len(stored.inputs()) == 20


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        run(out=tmp_path / "part", progress=stop)
    with refused("changed", "seeds"):
        attack(target(), seeds(19), resume=tmp_path / "part")
    with refused("changed", "target"):
        attack(target(4), seeds(), resume=tmp_path / "part")
    attack(target(), seeds(), resume=tmp_path / "part")
    with refused("finished"):
        attack(target(), seeds(), resume=tmp_path / "part")
    with refused("missing", "target"):
        attack(target())


def test_a_run_that_fails_at_once_leaves_nothing(tmp_path: Path) -> None:
    class Broken(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.stack([(x * 0).flatten(1).sum(1).sqrt(), x.flatten(1).sum(1)], 1)

    with refused("not-finite", "gradient"):
        attack(Target(Broken().eval(), shape=(1, 6, 6)), seeds(), out=tmp_path / "part")
    assert not (tmp_path / "part").exists()
